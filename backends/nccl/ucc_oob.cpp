#include "nccl/ucc_oob.hpp"

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {

struct UccOob::Round {
    UccOob& oob;
    std::uint64_t number;
    char* receive;
    std::size_t bytes;
    bool complete = false;
};

ucc::Oob UccOob::functions() {
    return {.allgather = allgather,
            .req_test = test,
            .req_free = release,
            .info = this,
            .ranks = static_cast<std::uint32_t>(ranks_),
            .rank = static_cast<std::uint32_t>(rank_)};
}

std::string UccOob::key(std::uint64_t round, int rank) const {
    return std::to_string(round) + "/" + std::to_string(rank);
}

ucc::Status UccOob::allgather(void* send, void* receive, std::size_t bytes, void* info, void** request) {
    auto& oob = *static_cast<UccOob*>(info);
    try {
        auto round = std::make_unique<Round>(Round{oob, oob.rounds_++, static_cast<char*>(receive), bytes});
        oob.store_.set(oob.key(round->number, oob.rank_), std::string_view(static_cast<const char*>(send), bytes));
        *request = round.release();
        return ucc::ok;
    } catch (const std::exception&) {
        return ucc::io_error;
    }
}

// UCC polls without a pause.
ucc::Status UccOob::test(void* request) {
    auto& round = *static_cast<Round*>(request);
    if (round.complete) return ucc::ok;
    const bool given_up = round.oob.given_up_ != nullptr && *round.oob.given_up_;
    if (given_up || std::chrono::steady_clock::now() > round.oob.until_) return ucc::timed_out;
    try {
        const ucc::Status status = round.oob.look(round);
        if (status == ucc::in_progress) std::this_thread::sleep_for(std::chrono::microseconds(200));
        return status;
    } catch (const std::exception&) {
        return ucc::io_error;
    }
}

ucc::Status UccOob::look(Round& round) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < ranks_; ++rank) keys.push_back(key(round.number, rank));
    if (!store_.check(keys)) return ucc::in_progress;
    for (const std::string& one : keys) {
        const std::string value = store_.get(one);
        if (value.size() != round.bytes) return ucc::io_error;  // that rank has another UCC
        std::memcpy(round.receive, value.data(), round.bytes);
        round.receive += round.bytes;
    }
    round.complete = true;
    return ucc::ok;
}

ucc::Status UccOob::release(void* request) {
    delete static_cast<Round*>(request);
    return ucc::ok;
}

}  // namespace tutti::nccl
