// Probes: what the next message is, before a receive takes it; and matched receives, which take the message that a
// probe has found.
//
//     const tutti::MessageInfo next = tutti::probe({.tag = 7});  // from any rank
//     std::vector<float> values(next.element_count);
//     tutti::recv(values, {.src = next.source, .tag = 7});
//
// Where several threads receive, another one may take the message between the two calls. So these threads write:
//
//     tutti::MatchedMessage message = tutti::matched_probe({.tag = 7});  // now it is this thread's
//     tutti::Tensor values = message.recv();
//
// Threads: any, but a MatchedMessage by one at a time.
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/dtype.hpp>
#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace tutti {

/// What a probe knows of a message.
struct MessageInfo {
    int source = -1;        ///< global rank of the sender
    int group_source = -1;  ///< its rank in the group
    int tag = 0;
    DType dtype = DType::float32;
    std::int64_t element_count = 0;
    std::size_t byte_count = 0;

    bool operator==(const MessageInfo&) const = default;
};

struct ProbeOptions {
    std::optional<int> src{};  ///< global rank of the sender; neither src nor group_src: any rank
    std::optional<int> tag{};  ///< empty: any tag
    ProcessGroup group{};
    std::optional<int> group_src{};
    milliseconds timeout{0};  ///< of the probes that block; zero: the group's
};

/// Blocks until a message has come that the options name and that no receive waits for, and describes it. The message
/// stays: the next receive or probe that it matches finds the same one. Of the messages of one sender it is the one
/// that was sent first. A message is one of send, isend and sendrecv; objects are none.
///
/// errors   InvalidArgument: also where a backend that moves whole messages serves the group's host memory (gloo, mpi
///          and hf_zmq carry bytes, and probes work over them), and in a graph's capture. PeerLost, Timeout, Aborted:
///          as recv; the group is unusable afterwards.
/// cost     no message: the description is in the head that every message has. With any tag: a look at all messages
///          that wait, otherwise at those with the tag.
/// source   MPI 4.1, 3.8
[[nodiscard]] TUTTI_API MessageInfo probe(const ProbeOptions& options = {});
/// As probe, without waiting: empty if no such message has come. Each call moves this rank's operations in flight.
///
/// errors   as probe, but a named source that has left and sends nothing more is a PeerLost that leaves the group
///          usable
[[nodiscard]] TUTTI_API std::optional<MessageInfo> iprobe(const ProbeOptions& options = {});

/// A message that matched_probe has found, and that no other receive and no probe can get. It keeps the group alive.
/// A message that is dropped unreceived is not lost: it returns to its place before the later ones of its sender and
/// tag, and a receive that waits for such a message gets it at once.
class TUTTI_API MatchedMessage {
 public:
    MatchedMessage() = default;  ///< no message
    MatchedMessage(MatchedMessage&& other) noexcept;
    MatchedMessage& operator=(MatchedMessage&& other) noexcept;
    ~MatchedMessage();

    /// Whether it holds a message: false when it has been received or released.
    explicit operator bool() const noexcept { return number_ != 0; }
    /// The description; also after the message has been received.
    const MessageInfo& info() const noexcept { return info_; }
    /// Receives the message into `tensor`: host memory of its dtype and number of elements, any shape and strides.
    /// errors   InvalidArgument: for another tensor, and the message is still held; for a message that is not held any
    ///          more. PeerLost, Timeout, Aborted: as recv.
    void recv(TensorView tensor, milliseconds timeout = milliseconds{0});
    /// The same into a new tensor of one dimension.
    [[nodiscard]] Tensor recv(milliseconds timeout = milliseconds{0});
    [[nodiscard]] Work irecv(TensorView tensor, milliseconds timeout = milliseconds{0});
    /// Gives the message back, as the destructor does.
    void release() noexcept;

 private:
    friend struct MatchedMessages;
    Work start(const char* name, const TensorView& tensor, milliseconds timeout, bool waits);

    std::shared_ptr<detail::Group> group_;
    std::uint64_t channel_ = 0, number_ = 0;
    MessageInfo info_;
};

/// As probe and iprobe, and takes the message out of the sight of all others (MPI_Mprobe, MPI_Improbe).
[[nodiscard]] TUTTI_API MatchedMessage matched_probe(const ProbeOptions& options = {});
[[nodiscard]] TUTTI_API std::optional<MatchedMessage> matched_iprobe(const ProbeOptions& options = {});

}  // namespace tutti
