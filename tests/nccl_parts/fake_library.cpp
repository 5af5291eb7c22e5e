#include "nccl_parts/fake_library.hpp"

#include "nccl_parts/fake_driver.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace tutti::nccl {

namespace {

// The two ends of a message meet here, in the order of either side's calls.
struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int ranks = 0, present = 0;
    bool over = false;
    struct Sent {
        const void* data;
        std::size_t bytes;
        bool taken = false;
    };
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Sent>>> sent;  // by sender and receiver
};

struct Meetings {
    std::mutex mutex;
    int ids = 0;
    std::map<std::string, std::shared_ptr<Meeting>> by_id;
};
Meetings& meetings() {
    static auto* const all = new Meetings;
    return *all;
}

}  // namespace

struct CommTag {
    std::shared_ptr<Meeting> meeting;
    int rank = 0;
    std::atomic<Result> error{Result::success};
    bool has_ended = false;
};

namespace {

using test::FakeLibrary;

std::size_t size_of_type(Type type) {
    return size_of(type == uint8 ? DType::uint8 : DType::float64);  // nothing else is sent
}

Result get_version(int* version) {
    *version = 22800;
    return Result::success;
}
Result get_unique_id(UniqueId* id) {
    Meetings& all = meetings();
    const std::lock_guard lock(all.mutex);
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->bytes, sizeof id->bytes, "fake-%d", ++all.ids);
    return Result::success;
}
Result comm_init(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
    if (std::strncmp(id.bytes, "fake-", 5) != 0 || config->blocking != 0) return Result::invalid_argument;
    Meetings& all = meetings();
    auto made = std::make_unique<CommTag>();
    {
        const std::lock_guard lock(all.mutex);
        auto& meeting = all.by_id[id.bytes];
        if (!meeting) meeting = std::make_shared<Meeting>();
        made->meeting = meeting;
    }
    made->rank = rank;
    const std::lock_guard lock(made->meeting->mutex);
    made->meeting->ranks = ranks;
    ++made->meeting->present;
    made->meeting->changed.notify_all();
    ++FakeLibrary::communicators;
    ++FakeLibrary::communicators_made;
    *comm = made.release();
    return Result::in_progress;
}
Result comm_async_error(Comm comm, Result* error) {
    const std::lock_guard lock(comm->meeting->mutex);
    *error = comm->error;
    if (comm->meeting->present < comm->meeting->ranks || FakeLibrary::never_connects) *error = Result::in_progress;
    return Result::success;
}
Result comm_finalize(Comm /*comm*/) {
    return Result::success;
}
Result comm_end(Comm comm) {
    {
        const std::lock_guard lock(comm->meeting->mutex);
        comm->meeting->over = comm->has_ended = true;
        comm->meeting->changed.notify_all();
    }
    --FakeLibrary::communicators;
    return Result::success;  // calls in streams may still use it: it stays
}
const char* error_string(Result result) {
    return result == Result::remote_error ? "remote process exited or there was a network error"
                                          : "unhandled cuda error";
}
const char* last_error(Comm /*comm*/) {
    return "";
}

// In stream order, or at once. What fails in a stream holds it until its communicator is ended.
Result put(Comm comm, void* stream, const std::function<Result()>& work) {
    if (stream == nullptr) return work();
    test::FakeDriver::get()->push(stream, [comm, work] {
        const Result result = work();
        if (result == Result::success) return;
        std::unique_lock lock(comm->meeting->mutex);
        comm->error = result;
        comm->meeting->changed.wait(lock, [&] { return comm->has_ended; });
    });
    return Result::success;
}

Result send(const void* data, std::size_t count, Type type, int peer, Comm comm, void* stream) {
    if (FakeLibrary::failing_sends > 0 && FakeLibrary::failing_sends-- > 0) return Result::unhandled_cuda_error;
    const std::size_t bytes = count * size_of_type(type);
    return put(comm, stream, [=] {
        Meeting& meeting = *comm->meeting;
        const auto sent = std::make_shared<Meeting::Sent>(Meeting::Sent{data, bytes});
        std::unique_lock lock(meeting.mutex);
        meeting.sent[{comm->rank, peer}].push_back(sent);
        meeting.changed.notify_all();
        meeting.changed.wait(lock, [&] { return meeting.over || sent->taken; });
        return sent->taken ? Result::success : Result::remote_error;
    });
}

Result receive(void* data, std::size_t count, Type type, int peer, Comm comm, void* stream) {
    const std::size_t bytes = count * size_of_type(type);
    const bool is_lost = FakeLibrary::lost_receives > 0 && FakeLibrary::lost_receives-- > 0;
    return put(comm, stream, [=] {
        if (is_lost) return Result::remote_error;
        Meeting& meeting = *comm->meeting;
        std::unique_lock lock(meeting.mutex);
        auto& queue = meeting.sent[{peer, comm->rank}];
        meeting.changed.wait(lock, [&] { return meeting.over || !queue.empty(); });
        if (queue.empty()) return Result::remote_error;
        const auto sent = queue.front();
        queue.pop_front();
        if (sent->bytes != bytes) return Result::invalid_usage;
        std::memcpy(data, sent->data, bytes);
        sent->taken = true;
        meeting.changed.notify_all();
        return Result::success;
    });
}

Vendor vendor() {
    Vendor v;
    v.backend = "parts";
    v.title = "Fake";
    v.prefix = "nccl";
    v.devices = {Device::Type::cuda};
    v.version_text = [](int) { return std::string("2.28.0"); };
    v.abilities = &nccl_abilities;
    return v;
}

}  // namespace
}  // namespace tutti::nccl

namespace tutti::test {

std::shared_ptr<const nccl::Library> FakeLibrary::get(bool host_memory) {
    nccl::Interface calls;
    calls.GetVersion = &nccl::get_version;
    calls.GetUniqueId = &nccl::get_unique_id;
    calls.CommInitRankConfig = &nccl::comm_init;
    calls.CommFinalize = &nccl::comm_finalize;
    calls.CommDestroy = &nccl::comm_end;
    calls.CommAbort = &nccl::comm_end;
    calls.CommGetAsyncError = &nccl::comm_async_error;
    calls.GetErrorString = &nccl::error_string;
    calls.GetLastError = &nccl::last_error;
    calls.Send = &nccl::send;
    calls.Recv = &nccl::receive;
    return std::make_shared<nccl::Library>(nccl::vendor(), calls, "no library", 22800, host_memory);
}

}  // namespace tutti::test
