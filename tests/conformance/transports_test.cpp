// Transports of others: a group whose bytes they carry behaves as one whose bytes tutti carries.
#include "conformance/world.hpp"
#include "support/message_of.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using transport::StreamState;

// A pipe between threads of this process, with little room, so that bytes go in pieces.
struct Pipe {
    static constexpr std::size_t room = 10'000;
    std::mutex mutex;
    std::deque<std::byte> bytes;
    bool ended = false, cut = false, used = false;
    int readable = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), writable = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Pipe() = default;
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        ::close(readable);
        ::close(writable);
    }
    static void set(int fd, bool rings) {
        eventfd_t number = 0;
        ::eventfd_read(fd, &number);
        if (rings) ::eventfd_write(fd, 1);
    }
};
using Pipes = std::map<std::pair<int, int>, std::shared_ptr<Pipe>>;  // from, to

std::atomic<bool> cuts{false};         // rank 1's streams break off
std::atomic<bool> has_threads{false};  // that move the bytes, as the streams say
std::atomic<int> looks{0};             // of rank 0 at its streams

class PipeStream final : public transport::Stream {
 public:
    PipeStream(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out, int rank)
        : in_(std::move(in)), out_(std::move(out)), rank_(rank) {}
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        const std::lock_guard lock(out_->mutex);
        if (cuts && rank_ == 1) out_->cut = true;
        if (out_->cut || out_->ended) return 0;
        std::size_t done = 0;
        for (const auto part : std::array{header, payload}) {
            const std::size_t count = std::min(part.size(), Pipe::room - out_->bytes.size());
            out_->bytes.insert(out_->bytes.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
            done += count;
        }
        out_->used |= done > 0;
        ring(*out_);
        return done;
    }
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override {
        const std::lock_guard lock(in_->mutex);
        if (rank_ == 0) ++looks;
        std::size_t done = 0;
        for (const auto part : std::array{into, ahead}) {
            const std::size_t count = std::min(part.size(), in_->bytes.size());
            std::copy_n(in_->bytes.begin(), count, part.begin());
            in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(count));
            done += count;
        }
        ring(*in_);
        return done;
    }
    StreamState state() const noexcept override {
        const std::lock_guard lock(in_->mutex);
        if (!in_->bytes.empty()) return StreamState::open;
        return in_->cut ? StreamState::closed : in_->ended ? StreamState::ended : StreamState::open;
    }
    bool end() override {
        const std::lock_guard lock(out_->mutex);
        out_->ended = true;
        ring(*out_);
        return true;
    }
    void close() noexcept override { end(); }
    std::string reason() const override { return "somebody has cut the pipe"; }
    void pollables(bool output, std::vector<transport::Pollable>& into) const override {
        into.push_back({in_->readable, false});
        if (output) into.push_back({out_->writable, false});
    }
    bool used() const {
        const std::scoped_lock both(in_->mutex, out_->mutex);
        return in_->used || out_->used;
    }

 private:
    static void ring(Pipe& pipe) {
        Pipe::set(pipe.readable, !pipe.bytes.empty() || pipe.ended || pipe.cut);
        Pipe::set(pipe.writable, pipe.bytes.size() < Pipe::room);
    }
    const std::shared_ptr<Pipe> in_, out_;
    const int rank_;
};

// What the library behind the pipes has of its own: barriers, among the ranks of one group, which pass for reductions
// too.
struct PipeLibrary {
    static inline std::atomic<bool> is_here{false}, fails{false}, hangs{false}, reduces{false};
    static inline std::atomic<int> begun{0}, given_up{0};
    static inline std::atomic<int> slow_rank{-1};  // whose calls take a while longer than those of the others
    std::atomic<int> arrived{0};
    int readable = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    PipeLibrary() = default;
    PipeLibrary(const PipeLibrary&) = delete;
    PipeLibrary& operator=(const PipeLibrary&) = delete;
    ~PipeLibrary() { ::close(readable); }
};

class PipeCall final : public transport::LibraryCall {
 public:
    PipeCall(std::shared_ptr<PipeLibrary> library, int awaited, std::chrono::milliseconds takes)
        : library_(std::move(library)), awaited_(awaited), over_(std::chrono::steady_clock::now() + takes) {
        ++PipeLibrary::begun;
        ++library_->arrived;
        ::eventfd_write(library_->readable, 1);
    }
    ~PipeCall() override {
        if (!is_over_) ++PipeLibrary::given_up;
    }
    PipeCall(const PipeCall&) = delete;
    PipeCall& operator=(const PipeCall&) = delete;
    bool done() override {
        if (PipeLibrary::fails) throw DistBackendError("the library has a bad day");
        const bool may_end = library_->arrived >= awaited_ && !PipeLibrary::hangs;
        return is_over_ = may_end && std::chrono::steady_clock::now() >= over_;
    }
    void pollables(std::vector<transport::Pollable>& into) const override {
        into.push_back({library_->readable, false});
    }

 private:
    const std::shared_ptr<PipeLibrary> library_;
    const int awaited_;
    const std::chrono::steady_clock::time_point over_;
    bool is_over_ = false;
};

class PipeStreams final : public transport::Streams {
 public:
    explicit PipeStreams(const DistributedBackendOptions& options) : rank_(options.group_rank) {
        static std::mutex mutex;
        static std::map<std::string, Pipes> all;  // by where the ranks meet
        Store store = options.store;
        if (options.group_rank == 0) store.set("pipes", std::to_string(++made));
        const std::string place = store.get("pipes");
        const std::lock_guard lock(mutex);
        Pipes& pipes = all[place];
        const auto pipe = [&](int from, int to) {
            auto& one = pipes[{from, to}];
            if (!one) one = std::make_shared<Pipe>();
            return one;
        };
        static std::map<std::string, std::shared_ptr<PipeLibrary>> libraries;
        auto& library = libraries[place];
        if (!library) library = std::make_shared<PipeLibrary>();
        library_ = library;
        for (int peer = 0; peer < options.group_size; ++peer) {
            const int own = options.group_rank;
            streams_.push_back(peer == own ? nullptr
                                           : std::make_unique<PipeStream>(pipe(peer, own), pipe(own, peer), own));
        }
        ++open;
    }
    ~PipeStreams() override { --open; }
    PipeStreams(const PipeStreams&) = delete;
    PipeStreams& operator=(const PipeStreams&) = delete;
    transport::Stream* to(int peer) override { return streams_[static_cast<std::size_t>(peer)].get(); }
    transport::Stream* existing(int peer) override {
        PipeStream* const stream = streams_[static_cast<std::size_t>(peer)].get();
        return stream != nullptr && stream->used() ? stream : nullptr;
    }
    bool offers(const BackendRequest& request) override {
        if (!PipeLibrary::is_here) return false;
        return request.call == BackendCall::barrier ||
               (PipeLibrary::reduces && request.call == BackendCall::all_reduce);
    }
    std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& /*request*/) override {
        awaited_ += static_cast<int>(streams_.size());
        return std::make_unique<PipeCall>(library_, awaited_, PipeLibrary::slow_rank == rank_ ? 300ms : 0ms);
    }
    bool has_threads() const noexcept override { return test::has_threads; }
    static inline std::atomic<int> made{0}, open{0};

 private:
    const int rank_;
    std::shared_ptr<PipeLibrary> library_;
    int awaited_ = 0;  // arrivals, of all ranks and calls so far
    std::vector<std::unique_ptr<PipeStream>> streams_;
};

void run_on_pipes(int size, const std::function<void(ProcessGroup&)>& body,
                  TransportKind transport = TransportKind::automatic) {
    static const bool once = [] {
        register_transport("pipes", [](const auto& options) { return std::make_unique<PipeStreams>(options); });
        return true;
    }();
    EXPECT_TRUE(once);
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ProcessGroup g({.store = store,
                                .rank = rank,
                                .world_size = size,
                                .timeout = 20s,
                                .transport = transport,
                                .backend = "pipes"});
                body(g);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(PipeStreams::open, 0) << "streams are left";
}

TEST(Transports, of_others_carry_collectives_and_messages_of_all_lengths) {
    run_on_pipes(3, [](ProcessGroup& g) {
        EXPECT_EQ(g.backend(), "pipes");
        EXPECT_EQ(g.hosts(), (std::vector<int>{0, 1, 2})) << "no rank shares memory with another";
        for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
            std::vector<float> x(count, static_cast<float>(g.rank() + 1));
            all_reduce(x, {.group = g});
            EXPECT_EQ(x.back(), 6);
            const int next = (g.rank() + 1) % 3, before = (g.rank() + 2) % 3;
            std::vector<int> out(count, g.rank()), in(count);
            Work sent = isend(out, next, {.group = g});
            recv(in, {.src = before, .group = g});
            sent.wait();
            EXPECT_EQ(in.back(), before);
        }
        barrier({.group = g});
        g.destroy();
    });
}

// A rank that looked again and again would take the cores that the transport's threads need.
TEST(Transports, of_others_with_threads_are_waited_for_asleep) {
    has_threads = true;
    run_on_pipes(2, [](ProcessGroup& g) {
        std::vector<int> x(10, 1);
        all_reduce(x, {.group = g});
        if (g.rank() == 1) std::this_thread::sleep_for(200ms);
        if (g.rank() == 0) looks = 0;
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, std::vector<int>(10, 4));
        EXPECT_LT(looks, 50);
        Work later = async::all_reduce(x, {.group = g});
        later.wait();
        EXPECT_EQ(x, std::vector<int>(10, 8));
        g.destroy();
    });
    has_threads = false;
}

TEST(Transports, of_others_show_ranks_that_disagree_both_sides) {
    run_on_pipes(3, [](ProcessGroup& g) {
        std::vector<float> x(10, 1);
        const std::string text = message_of<CollectiveMismatch>([&] {
            if (g.rank() == 1)
                broadcast(x, {.src = 0, .group = g});
            else
                all_reduce(x, {.group = g});
            barrier({.group = g});
        });
        EXPECT_TRUE(has(text, "all_reduce of float32 × 10") && has(text, "broadcast of float32 × 10")) << text;
    });
}

TEST(Transports, of_others_belong_to_one_group_each_and_end_with_it) {
    run_on_pipes(3, [](ProcessGroup& g) {
        ProcessGroup part = g.split({.color = g.rank() < 2 ? 0 : -1});
        std::vector<int> x(5, 1);
        if (g.rank() < 2) {
            all_reduce(x, {.group = part});
            EXPECT_EQ(x, std::vector<int>(5, 2));
            if (g.rank() == 0) {
                part.destroy();
            } else {
                const std::string text = message_of<DistError>([&] { recv(x, {.src = 0, .group = part}); });
                EXPECT_TRUE(has(text, "rank 0 has left the group")) << text;
            }
        }
    });
    run_on_pipes(2, [](ProcessGroup& g) {
        const ProcessGroup native = new_group({0, 1}, {.backend = "native", .world = g});
        std::vector<int> x(5, 1);
        all_reduce(x, {.group = native});
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, std::vector<int>(5, 4));
        ProcessGroup(native).destroy();
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, std::vector<int>(5, 8));
        g.destroy();
    });
}

TEST(Transports, of_others_let_a_rank_leave_whose_messages_have_yet_to_be_received) {
    run_on_pipes(2, [](ProcessGroup& g) {
        std::vector<int> x(100, g.rank());
        if (g.rank() == 1) {
            send(x, 0, {.group = g});
            g.destroy();
            return;
        }
        std::this_thread::sleep_for(100ms);
        EXPECT_EQ(recv(x, {.group = g}), 1);
        EXPECT_EQ(x, std::vector<int>(100, 1));
        EXPECT_TRUE(has(message_of<DistError>([&] { recv(x, {.src = 1, .group = g}); }), "rank 1 has left the group"));
    });
}

TEST(Transports, of_others_that_break_off_end_the_group_on_all_ranks_with_the_cause) {
    cuts = false;
    run_on_pipes(3, [](ProcessGroup& g) {
        std::vector<int> x(100'000, 1);
        all_reduce(x, {.group = g});
        barrier({.group = g});
        if (g.rank() == 1) cuts = true;  // from its next byte on
        const std::string text = message_of<DistError>([&] {
            all_reduce(x, {.group = g});
            barrier({.group = g});
        });
        EXPECT_TRUE(has(text, "cannot be reached any more: somebody has cut the pipe")) << text;
    });
    cuts = false;
}

// Beside the library's collectives go tutti's, and messages.
TEST(Transports, of_others_carry_out_the_collectives_that_their_library_has) {
    PipeLibrary::is_here = true;
    PipeLibrary::begun = PipeLibrary::given_up = 0;
    run_on_pipes(3, [](ProcessGroup& g) {
        std::vector<Work> works;
        std::vector<int> x(1000, 1);
        for (int i = 0; i < 5; ++i) {
            works.push_back(async::barrier({.group = g}));
            works.push_back(async::all_reduce(x, {.group = g}));
        }
        std::vector<int> y(1000);
        if (g.rank() == 1) send(y, 2, {.tag = 7, .group = g});
        if (g.rank() == 2) recv(y, {.src = 1, .tag = 7, .group = g});
        for (Work& work : works) work.wait();
        if (g.rank() == 2) std::this_thread::sleep_for(300ms);  // the others sleep
        barrier({.group = g});
        EXPECT_EQ(x, std::vector<int>(1000, 243));
        Plan again = plan::barrier({.group = g});
        for (int i = 0; i < 3; ++i) again.run();
        again = {};
        g.destroy();
    });
    EXPECT_EQ(PipeLibrary::begun, 27);
    EXPECT_EQ(PipeLibrary::given_up, 0);
    PipeLibrary::is_here = false;
}

// MPI cannot take back a call that it has begun, and all ranks had come to that one.
TEST(Transports, of_others_end_a_call_of_the_library_before_a_later_disagreement_counts) {
    PipeLibrary::is_here = true;
    PipeLibrary::slow_rank = 2;
    PipeLibrary::begun = PipeLibrary::given_up = 0;
    run_on_pipes(3, [](ProcessGroup& g) {
        std::vector<float> x(10, 1);
        EXPECT_NO_THROW(barrier({.group = g})) << "rank " << g.rank();
        EXPECT_THROW(
            {
                if (g.rank() == 1)
                    all_reduce(x, {.group = g});
                else
                    barrier({.group = g});
                barrier({.group = g});
            },
            CollectiveMismatch);
    });
    EXPECT_EQ(PipeLibrary::begun, 3);
    EXPECT_EQ(PipeLibrary::given_up, 0);
    PipeLibrary::slow_rank = -1;
    PipeLibrary::is_here = false;
}

TEST(Transports, of_others_give_up_a_call_of_the_library_and_say_why) {
    PipeLibrary::is_here = true;
    PipeLibrary::begun = 0;
    run_on_pipes(3, [](ProcessGroup& g) {
        std::vector<float> x(10, 1);
        const std::string text = message_of<CollectiveMismatch>([&] {
            if (g.rank() == 1)
                all_reduce(x, {.group = g});
            else
                barrier({.group = g});
            barrier({.group = g});
        });
        EXPECT_TRUE(has(text, "all_reduce of float32 × 10") && has(text, "barrier")) << text;
    });
    EXPECT_EQ(PipeLibrary::begun, 0) << "the library compares nothing";
    run_on_pipes(2, [](ProcessGroup& g) {
        if (g.rank() == 1) {
            std::vector<int> x(1);
            EXPECT_THROW(recv(x, {.src = 0, .group = g}), DistError);
            return;
        }
        const std::string text = message_of<Timeout>([&] { barrier({.group = g, .timeout = 200ms}); });
        EXPECT_TRUE(has(text, "rank 0 has nothing from rank 1")) << text;
    });
    EXPECT_EQ(PipeLibrary::begun, 0) << "a rank has not come";
    PipeLibrary::hangs = true;
    PipeLibrary::given_up = 0;
    run_on_pipes(2, [](ProcessGroup& g) { EXPECT_THROW(barrier({.group = g, .timeout = 200ms}), Timeout); });
    EXPECT_EQ(PipeLibrary::begun, 2);
    EXPECT_EQ(PipeLibrary::given_up, 2);
    PipeLibrary::hangs = false;
    PipeLibrary::fails = true;
    run_on_pipes(2, [](ProcessGroup& g) {
        const std::string text = message_of<DistBackendError>([&] { barrier({.group = g}); });
        EXPECT_TRUE(has(text, "the library has a bad day")) << text;
        std::vector<int> x(5, 1);
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, std::vector<int>(5, 2)) << "that call alone has failed";
        Plan again = plan::barrier({.group = g});
        EXPECT_THROW(again.run(), DistBackendError);
        all_reduce(x, {.group = g});
        PipeLibrary::fails = false;
        all_reduce(x, {.group = g});
        again.run();
    });
    PipeLibrary::fails = PipeLibrary::is_here = false;
}

// To meet would take longer than a short collective.
TEST(Transports, of_others_ask_their_library_for_long_collectives_where_no_memory_is_shared) {
    PipeLibrary::is_here = PipeLibrary::reduces = true;
    PipeLibrary::begun = 0;
    std::latch seen(2);
    run_on_pipes(
        2,
        [&seen](ProcessGroup& g) {
            std::vector<int> x(4096, 1), y(4097, 1);
            barrier({.group = g});
            all_reduce(x, {.group = g});
            EXPECT_EQ(x, std::vector<int>(4096, 2));
            EXPECT_EQ(PipeLibrary::begun, 0);
            all_reduce(y, {.group = g});
            EXPECT_EQ(y, std::vector<int>(4097, 1)) << "not tutti's";
            seen.arrive_and_wait();
            EXPECT_EQ(PipeLibrary::begun, 2);
            const std::string text = message_of<CollectiveMismatch>([&] {
                all_reduce(g.rank() == 1 ? x : y, {.group = g});  // one is short
            });
            EXPECT_TRUE(has(text, "int32 × 4096") && has(text, "int32 × 4097")) << text;
        },
        TransportKind::tcp);
    EXPECT_EQ(PipeLibrary::begun, 2);
    PipeLibrary::is_here = PipeLibrary::reduces = false;
}

TEST(Transports, of_others_need_a_name_that_is_free_and_a_function) {
    const auto none = [](const auto&) { return nullptr; };
    EXPECT_THROW(register_transport("a b", none), InvalidArgument);
    EXPECT_THROW(register_transport("native", none), InvalidArgument);
    EXPECT_THROW(register_transport("nothing", {}), InvalidArgument);
    register_transport("nothing", none);
    EXPECT_THROW(register_transport("nothing", none), InvalidArgument);
    const std::string text = message_of<DistBackendError>(
        [&] { ProcessGroup({.store = HashStore(), .rank = 0, .world_size = 1, .backend = "nothing"}); });
    EXPECT_TRUE(has(text, "backend \"nothing\" made nothing for group")) << text;
}

}  // namespace
}  // namespace tutti::test
