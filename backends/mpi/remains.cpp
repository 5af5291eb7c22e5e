#include "mpi/remains.hpp"

#include <tutti/error.hpp>

#include <list>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::backends::mpi {
namespace {

struct Kept {
    MPI_Comm communicator;
    std::set<int> peers;
    int end;
};
struct AllKept {
    std::mutex mutex;
    std::list<Kept> list;
};
AllKept& all_kept() {
    static auto* const one = new AllKept;  // groups may outlive static objects
    return *one;
}

// False: nothing has come.
bool drop_one(Kept& kept) {
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, kept.communicator, &found, &message, &status), "MPI_Improbe");
    if (found == 0) return false;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::vector<char> nothing(static_cast<std::size_t>(bytes));
    check(MPI_Mrecv(nothing.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    if (status.MPI_TAG == kept.end) kept.peers.erase(status.MPI_SOURCE);
    return true;
}

}  // namespace

void keep_until_ended(MPI_Comm communicator, std::set<int> peers, int end) {
    const std::lock_guard lock(all_kept().mutex);
    all_kept().list.push_back({communicator, std::move(peers), end});
}

void look_after_remains() noexcept {
    const std::lock_guard lock(all_kept().mutex);
    if (has_broken_off()) return;
    try {
        for (auto it = all_kept().list.begin(); it != all_kept().list.end();) {
            while (!it->peers.empty() && drop_one(*it)) {
            }
            if (!it->peers.empty()) {
                ++it;
                continue;
            }
            MPI_Comm_free(&it->communicator);
            it = all_kept().list.erase(it);
        }
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): they stay
    }
}

}  // namespace tutti::backends::mpi
