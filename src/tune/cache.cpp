#include "tune/cache.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/hash.hpp"
#include "core/this_host.hpp"
#include "object/codec.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>

namespace tutti::tune {
namespace {

using algorithm::CostModel;

constexpr std::size_t file_max = 4096;

/// Whether it is this user's, and no other can change it.
bool ours(int fd, mode_t kind) {
    TUTTI_ASSERT(fd >= 0);
    struct stat status {};
    return ::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == kind && status.st_uid == ::geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

Object object_of(const CostModel& costs) {
    Object::Map numbers;
    for (const algorithm::CostField& field : algorithm::cost_fields())
        numbers.emplace_back(Object(field.name), Object::real(costs.*field.value));
    TUTTI_ASSERT(!numbers.empty());
    return Object::map(std::move(numbers));
}

std::optional<CostModel> costs_of(const Object& object) {
    const auto fields = algorithm::cost_fields();
    if (object.kind() != ObjectKind::map || object.size() != fields.size()) return std::nullopt;
    CostModel costs;
    for (const algorithm::CostField& field : fields) {
        const Object* found = object.find(Object(field.name));
        if (!found || found->kind() != ObjectKind::real) return std::nullopt;
        const double value = found->as_double();
        if (!(value >= field.min && value <= field.max)) return std::nullopt;  // not a number, too
        costs.*field.value = value;
    }
    return costs;
}

std::string Cache::user_folder() {
    if (const auto folder = env::get("XDG_CACHE_HOME"); folder && folder->starts_with('/')) return *folder;
    if (const auto home = env::get("HOME"); home && home->starts_with('/')) return *home + "/.cache";
    return {};
}

Cache::Cache(const std::string& topology, const std::string& folder)
    : topology_(topology), file_(fmt::format("tune-{:016x}", fnv1a(topology))) {
    TUTTI_ASSERT(!topology.empty() && file_.size() == 21);
    if (folder.empty() || ::geteuid() != ::getuid()) return;
    const std::string own = folder + "/tutti";
    const auto open_own = [&] {
        folder_ = UniqueFd(::open(own.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    };
    open_own();
    if (!folder_ && errno == ENOENT) {
        ::mkdir(folder.c_str(), 0700);
        ::mkdir(own.c_str(), 0700);
        open_own();
    }
    if (folder_ && !ours(folder_.get(), S_IFDIR)) folder_.reset();
}

std::optional<Measurement> Cache::load() const {
    if (!folder_) return std::nullopt;
    const UniqueFd file(::openat(folder_.get(), file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file || !ours(file.get(), S_IFREG)) return std::nullopt;
    std::array<char, file_max + 1> text;
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
        if (count < 0) return std::nullopt;
        if (count == 0) break;
        size += static_cast<std::size_t>(count);
    }
    if (size > file_max) return std::nullopt;
    try {
        const Object all = object::decode_string({text.data(), size});
        if (all.size() != 9 || all.at("machine").as_string() != topology_) return std::nullopt;
        const auto costs = costs_of(all.at("costs"));
        if (!costs) return std::nullopt;
        const Circumstances circumstances{all.at("load").as_double(), all.at("stolen").as_double(),
                                          all.at("waited").as_double(), all.at("spread").as_double(),
                                          all.at("when").get<std::int64_t>()};
        return Measurement{*costs, all.at("missing").get<std::uint32_t>(), all.at("attempts").get<std::uint32_t>(),
                           circumstances};
    } catch (const ObjectError&) {
        return std::nullopt;
    }
}

bool Cache::save(const Measurement& measured) const {
    if (!folder_) return false;
    TUTTI_ASSERT(measured.missing >> algorithm::cost_fields().size() == 0);
    const Circumstances& c = measured.circumstances;
    const std::string text = object::encode_string(Object::map({{"machine", topology_},
                                                                {"costs", object_of(measured.costs)},
                                                                {"missing", measured.missing},
                                                                {"attempts", measured.attempts},
                                                                {"load", Object::real(c.load)},
                                                                {"stolen", Object::real(c.stolen)},
                                                                {"waited", Object::real(c.waited)},
                                                                {"spread", Object::real(c.spread)},
                                                                {"when", c.when}}));
    const std::string draft = fmt::format(".{}.{}", file_, ::getpid());
    const UniqueFd file(
        ::openat(folder_.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return false;
    const bool written = text.size() <= std::min<std::uint64_t>(file_max, this_host::file_size_limit()) &&
                         ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         ::renameat(folder_.get(), draft.c_str(), folder_.get(), file_.c_str()) == 0;
    if (!written) ::unlinkat(folder_.get(), draft.c_str(), 0);
    return written;
}

bool Cache::claim() {
    return folder_ && ::faccessat(folder_.get(), ".", W_OK, 0) == 0 && ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace tutti::tune
