// What an ncclComm_t points at: a few words that are never given back, so that a handle of a communicator that is gone
// can be told from all others as long as the process lives.
#include "communicator.hpp"
#include "process_mutex.hpp"

#include <unordered_set>
#include <utility>

struct ncclComm {
    std::shared_ptr<tutti::nccl_library::Communicator> communicator;
    std::string fate;  // of one that is gone
};

namespace tutti::nccl_library {
namespace {

struct Handles {
    ProcessMutex mutex;
    std::unordered_set<ncclComm_t> all;
};
Handles& handles() {
    static Handles* instance = new Handles;  // threads may ask after main() has ended
    return *instance;
}

// Precondition: the mutex is held.
ncclComm& known(Handles& all, ncclComm_t handle) {
    if (handle == nullptr) fail(ncclInvalidArgument, "comm is NULL");
    if (!all.all.contains(handle)) fail(ncclInvalidArgument, "comm is ", handle, ", which is no communicator");
    if (!handle->communicator) fail(ncclInvalidArgument, "comm was ", handle->fate);
    return *handle;
}

}  // namespace

ncclComm_t make_handle(std::shared_ptr<Communicator> communicator) {
    Handles& all = handles();
    const std::lock_guard lock(all.mutex);
    auto* const handle = new ncclComm{std::move(communicator), {}};
    all.all.insert(handle);
    return handle;
}

std::shared_ptr<Communicator> communicator_of(ncclComm_t handle) {
    Handles& all = handles();
    const std::lock_guard lock(all.mutex);
    return known(all, handle).communicator;
}

void end_handle(ncclComm_t handle, const char* fate) {
    std::shared_ptr<Communicator> communicator;  // goes when the mutex is free
    Handles& all = handles();
    const std::lock_guard lock(all.mutex);
    ncclComm& one = known(all, handle);
    one.fate = text(fate, " (", one.communicator->describe(), ")");
    communicator = std::exchange(one.communicator, nullptr);
}

}  // namespace tutti::nccl_library
