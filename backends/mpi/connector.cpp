#include "mpi/connector.hpp"

#include "common/ways.hpp"

#include <mutex>
#include <utility>

namespace tutti::backends::mpi {
namespace {

class MpiCall final : public transport::LibraryCall {
 public:
    MpiCall(Post& post, std::shared_ptr<Task> task) : post_(post), task_(std::move(task)) {}
    ~MpiCall() override { post_.give_up(*task_); }
    MpiCall(const MpiCall&) = delete;
    MpiCall& operator=(const MpiCall&) = delete;

    bool done() override {
        post_.look();
        const std::lock_guard lock(post_.desk().mutex);
        if (task_->error) std::rethrow_exception(task_->error);
        return task_->is_over;
    }
    void pollables(std::vector<transport::Pollable>& into) const override {
        into.push_back({task_->bell.fd(), false});
        post_.expect();
    }

 private:
    Post& post_;
    const std::shared_ptr<Task> task_;
};

}  // namespace

MpiConnector::MpiConnector(const DistributedBackendOptions& options) : post_(std::make_shared<Communicators>(options)) {
    std::vector<MpiStream*> by_rank;
    for (int peer = 0; peer < options.group_size; ++peer) {
        streams_.push_back(peer == options.group_rank ? nullptr : std::make_unique<MpiStream>(post_, peer));
        by_rank.push_back(streams_.back().get());
    }
    if (options.group_size > 1) post_.start(std::move(by_rank));
}

transport::Stream* MpiConnector::to(int peer) {
    return streams_[static_cast<std::size_t>(peer)].get();
}

// What a peer has sent shows only when MPI is called, so any stream may have been used.
transport::Stream* MpiConnector::existing(int peer) {
    return to(peer);
}

bool MpiConnector::offers(const BackendRequest& request) {
    return has_collective(request);
}

std::unique_ptr<transport::LibraryCall> MpiConnector::begin(const BackendRequest& request) {
    count(Way::native);
    return std::make_unique<MpiCall>(post_, post_.begin(request));
}

std::unique_ptr<transport::LibraryCall> MpiConnector::receive(int peer, std::uint64_t number,
                                                              std::span<std::byte> into) {
    return std::make_unique<MpiCall>(post_, post_.receive(peer, number, into));
}

std::unique_ptr<transport::LibraryCall> MpiConnector::send(int peer, std::uint64_t number,
                                                           std::span<const std::byte> bytes) {
    return std::make_unique<MpiCall>(post_, post_.send(peer, number, bytes));
}

}  // namespace tutti::backends::mpi
