#include "rendezvous/pmix.hpp"

#include "core/env.hpp"
#include "core/log.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

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
constexpr std::uint16_t type_string = 3, type_uint16 = 13, type_uint32 = 14;
constexpr std::uint32_t whole_job = std::numeric_limits<std::uint32_t>::max() - 1;

class Client {
 public:
    // MPI may have it loaded.
    Client() : library_(::dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL)) {
        if (library_ == nullptr) return;
        find(init_, "PMIx_Init");
        find(finalize_, "PMIx_Finalize");
        find(get_, "PMIx_Get");
        is_open_ = init_ != nullptr && finalize_ != nullptr && get_ != nullptr && init_(&own_, nullptr, 0) == 0;
    }
    // The library stays: threads of it may still be about to end.
    ~Client() {
        if (is_open_) finalize_(nullptr, 0);
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    bool is_open() const noexcept { return is_open_; }
    std::uint32_t rank() const noexcept { return own_.rank; }

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

 private:
    template <class Function>
    void find(Function*& function, const char* name) {
        function = reinterpret_cast<Function*>(::dlsym(library_, name));
    }

    template <class Take>
    void with(const char* key, std::uint32_t rank, const Take& take) {
        Process whom{own_.name_space, rank};
        Value* value = nullptr;
        if (get_(&whom, key, nullptr, 0, &value) != 0 || value == nullptr) return;
        take(*value);
        std::free(value);
    }

    void* const library_;
    int (*init_)(Process*, void*, std::size_t) = nullptr;
    int (*finalize_)(const void*, std::size_t) = nullptr;
    int (*get_)(const Process*, const char*, const void*, std::size_t, Value**) = nullptr;
    Process own_;
    bool is_open_ = false;
};

}  // namespace

std::optional<PmixFacts> ask_pmix() {
    if (!env::get("PMIX_NAMESPACE")) return std::nullopt;
    Client client;
    if (!client.is_open()) {
        TUTTI_DEBUG("PMIX_NAMESPACE is set, but libpmix.so.2 is not here, or its server does not answer");
        return std::nullopt;
    }
    return PmixFacts{.size = client.number("pmix.job.size", whole_job),
                     .local_rank = client.number("pmix.lrank", client.rank()),
                     .local_size = client.number("pmix.local.size", whole_job),
                     .host_of_rank_0 = client.text("pmix.hname", 0)};
}

}  // namespace tutti::rendezvous
