#include "rendezvous/pmix.hpp"

#include "core/deadline.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/unique_fd.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <thread>
#include <utility>

namespace tutti::rendezvous {
namespace {

// PMIx's C interface, as far as it is used; its ABI has been the same since version 3.
struct Process {
    std::array<char, 256> name_space{};
    std::uint32_t rank = 0;
};
struct Value {
    std::uint16_t type;
    union {
        std::uint16_t uint16;
        std::uint32_t uint32;
        char* string;
    } data;
};
constexpr const char* library_name = "libpmix.so.2";
constexpr std::uint16_t type_string = 3, type_uint16 = 13, type_uint32 = 14;
constexpr std::uint32_t whole_job = std::numeric_limits<std::uint32_t>::max() - 1;

// The library's functions, between its beginning and its end.
class Client {
 public:
    explicit Client(void* library) {
        find(library, init_, "PMIx_Init");
        find(library, finalize_, "PMIx_Finalize");
        find(library, get_, "PMIx_Get");
        is_open_ = init_ != nullptr && finalize_ != nullptr && get_ != nullptr && init_(&own_, nullptr, 0) == 0;
    }
    ~Client() {
        if (is_open_) finalize_(nullptr, 0);
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    std::optional<PmixFacts> facts() {
        if (!is_open_) return std::nullopt;
        return PmixFacts{.size = number("pmix.job.size", whole_job),
                         .local_rank = number("pmix.lrank", own_.rank),
                         .local_size = number("pmix.local.size", whole_job),
                         .host_of_rank_0 = text("pmix.hname", 0)};
    }

 private:
    template <class Function>
    static void find(void* library, Function*& function, const char* name) {
        function = reinterpret_cast<Function*>(::dlsym(library, name));
    }

    std::optional<int> number(const char* key, std::uint32_t rank) {
        std::optional<int> found;
        with(key, rank, [&](const Value& value) {
            if (value.type == type_uint16) found = value.data.uint16;
            if (value.type == type_uint32) found = static_cast<int>(value.data.uint32);
        });
        return found;
    }
    std::string text(const char* key, std::uint32_t rank) {
        std::string found;
        with(key, rank, [&](const Value& value) {
            if (value.type != type_string || value.data.string == nullptr) return;
            found = value.data.string;
            std::free(value.data.string);
        });
        return found;
    }

    template <class Take>
    void with(const char* key, std::uint32_t rank, const Take& take) {
        const Process whom{own_.name_space, rank};
        Value* value = nullptr;
        if (get_(&whom, key, nullptr, 0, &value) != 0 || value == nullptr) return;
        take(*value);
        std::free(value);
    }

    int (*init_)(Process*, void*, std::size_t) = nullptr;
    int (*finalize_)(const void*, std::size_t) = nullptr;
    int (*get_)(const Process*, const char*, const void*, std::size_t, Value**) = nullptr;
    Process own_;
    bool is_open_ = false;
};

// Facts as a line: numbers (-1: not known) and a name.
std::string line_of(const PmixFacts& facts) {
    return fmt::format("{} {} {} {}", facts.size.value_or(-1), facts.local_rank.value_or(-1),
                       facts.local_size.value_or(-1), facts.host_of_rank_0);
}
std::optional<PmixFacts> facts_of(const std::string& line) {
    std::istringstream in(line);
    std::array<int, 3> numbers{-1, -1, -1};
    PmixFacts facts;
    for (int& number : numbers) in >> number;
    if (!in) return std::nullopt;
    in >> facts.host_of_rank_0;
    const auto known = [](int number) { return number < 0 ? std::nullopt : std::optional(number); };
    facts.size = known(numbers[0]);
    facts.local_rank = known(numbers[1]);
    facts.local_size = known(numbers[2]);
    return facts;
}

bool is_whole(const PmixFacts& facts) {
    return facts.size && facts.local_rank && facts.local_size && !facts.host_of_rank_0.empty();
}

// MPI holds the library open already, and it counts its users.
std::optional<PmixFacts> ask_beside_mpi() {
    void* const library = ::dlopen(library_name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return std::nullopt;
    auto* const is_open = reinterpret_cast<int (*)()>(::dlsym(library, "PMIx_Initialized"));
    if (is_open == nullptr || is_open() == 0) return std::nullopt;
    return Client(library).facts();
}

// Otherwise MPI may begin later, and the library bears no second beginning in one process: a child asks.
std::optional<PmixFacts> ask_in_child(const Deadline& deadline) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) return std::nullopt;
    const UniqueFd from(pipe[0]), to(pipe[1]);
    const pid_t child = ::fork();
    if (child == 0) {
        void* const library = ::dlopen(library_name, RTLD_LAZY | RTLD_LOCAL);
        const auto facts = library == nullptr ? std::nullopt : Client(library).facts();
        const std::string line = facts ? line_of(*facts) : "";
        (void)!::write(to.get(), line.data(), line.size());
        ::_exit(0);
    }
    if (child < 0) return std::nullopt;
    pollfd waiting{from.get(), POLLIN, 0};
    std::array<char, 1024> line{};
    ssize_t count = 0;
    if (::poll(&waiting, 1, deadline.poll_ms(std::chrono::seconds(5))) == 1)
        count = ::read(from.get(), line.data(), line.size());
    else
        ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    return count > 0 ? facts_of(std::string(line.data(), static_cast<std::size_t>(count))) : std::nullopt;
}

}  // namespace

std::optional<PmixFacts> ask_pmix() {
    if (!env::get("PMIX_NAMESPACE")) return std::nullopt;
    // Open MPI 4's server answers processes that ask as soon as they have begun with half of it now and then, or not.
    constexpr int tries = 4;
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    std::optional<PmixFacts> facts;
    for (int n = 0; n < tries && !deadline.expired() && !(facts && is_whole(*facts)); ++n) {
        if (n > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        auto again = ask_beside_mpi();
        if (!again) again = ask_in_child(deadline);
        if (again) facts = std::move(again);
    }
    if (!facts) TUTTI_DEBUG("PMIX_NAMESPACE is set, but {} is not here, or its server does not answer", library_name);
    return facts;
}

}  // namespace tutti::rendezvous
