// Messages: sends and receives between the ranks of a group, matched by channel, tag and source, over a Carrier. Short
// ones go at once (eager); a long one sends a note first, and its payload, into the receive's buffer, when the receive
// is posted (rendezvous).
//
// Threads: any. Callbacks run with no lock held, on the caller's thread or the carrier's.
// Invariant: every send and receive ends once, also at end().
#pragma once

#include "shared/carrier.hpp"

#include <compare>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::backends {

struct Label {
    std::uint64_t channel = 0, tag = 0;
    auto operator<=>(const Label&) const = default;
};

class Messages final : public Receiver, public std::enable_shared_from_this<Messages> {
 public:
    /// `source`: for a receive, the sender; otherwise -1.
    using Done = std::function<void(int source, const std::exception_ptr& error)>;

    /// `name`: of the backend, for messages.
    Messages(std::string name, int rank, std::shared_ptr<Carrier> carrier);

    void start();
    /// Both keep their buffer until `done`.
    void send(int to, Label label, const void* data, std::uint64_t bytes, Done done);
    /// `from`: -1, any rank.
    void receive(int from, Label label, void* data, std::uint64_t bytes, Done done);
    /// Fails the messages of this channel that wait for the other side. Those on their way end by themselves.
    void cancel(std::uint64_t channel, const std::exception_ptr& error);
    /// Fails all messages, now and later; when it returns, nothing touches a buffer any more.
    void end(const std::exception_ptr& error, Carrier::How how) noexcept;

    void* place(int from, const Frame& frame) override;
    void arrived(int from, const Frame& frame) override;
    void lost(const std::exception_ptr& error) override;
    bool awaits() const override;

 private:
    struct Posted {
        int from = -1;
        Label label;
        void* data = nullptr;
        std::uint64_t bytes = 0;
        Done done;
    };
    struct Waiting {  // a sender's message whose receive is not posted yet
        int from = -1;
        Frame frame;
        std::vector<char> payload;
    };
    struct Outgoing {
        int to = -1;
        Frame frame;
        const void* data = nullptr;
        Done done;
    };
    struct Line {  // of one label
        std::list<Posted> posted;
        std::list<Waiting> waiting;
    };

    std::optional<Posted> take_posted(int from, const Frame& frame);
    void send_here(Label label, const void* data, std::uint64_t bytes, Done done);
    void deliver(Posted posted, Waiting waiting);
    void accept(Posted posted, int from, const Frame& frame);
    void refuse(const Posted& posted, int from, const Frame& frame);
    void sender_learns(int from, const Frame& frame);
    void release(Outgoing outgoing);
    void tidy(Label label);
    std::exception_ptr mismatch(std::uint64_t sent, std::uint64_t expected, int from, int to) const;

    const std::string name_;
    const int rank_;
    const std::shared_ptr<Carrier> carrier_;
    mutable std::mutex mutex_;
    std::exception_ptr ended_;
    std::uint64_t numbers_ = 0;
    std::size_t posted_ = 0;  // receives in lines_
    std::map<Label, Line> lines_;
    std::map<std::uint64_t, Outgoing> outgoing_;               // announced, by number
    std::map<std::pair<int, std::uint64_t>, Posted> cleared_;  // waiting for their data, by sender and number
    std::optional<Posted> landing_;                            // the receive whose payload the carrier is writing
    std::vector<char> landing_aside_;                          // or the carrier's target if no receive waits
};

}  // namespace tutti::backends
