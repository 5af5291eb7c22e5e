#include "record/call_site.hpp"

#include "core/assert.hpp"
#include "record/source_lines.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

namespace tutti::record {
namespace {

// Programs that are not relocated are looked up by the address itself.
bool is_relocated(const void* base) {
    TUTTI_ASSERT(base != nullptr);
    return static_cast<const Elf64_Ehdr*>(base)->e_type != ET_EXEC;
}

}  // namespace

const void* kept_call_site(const std::string& place) {
    constexpr std::size_t most = 1 << 16;
    static auto& mutex = *new std::mutex;
    static auto& texts = *new std::set<std::string>;
    if (place.empty()) return nullptr;
    const std::lock_guard lock(mutex);
    if (texts.size() >= most && !texts.contains(place)) return call_site_at("a captured call");
    TUTTI_ASSERT(texts.size() <= most);
    return call_site_at(texts.insert(place).first->c_str());
}

std::string describe_call_site(const void* address, SourceLines* lines) {
    if (address == nullptr) return {};
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    if ((value & is_text) != 0) return reinterpret_cast<const char*>(value & ~is_text);
    if (lines != nullptr) {
        if (std::string line = lines->of(address); !line.empty()) return line;
    }
    Dl_info info{};
    if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return fmt::format("{:#x}", value);
    std::string_view module = info.dli_fname;
    module = module.substr(module.find_last_of('/') + 1);
    const auto base = is_relocated(info.dli_fbase) ? reinterpret_cast<std::uintptr_t>(info.dli_fbase) : 0;
    std::string text = fmt::format("{}+{:#x}", module, value - base);
    if (info.dli_sname != nullptr) {
        text = fmt::format("{}+{:#x} in {}", demangled(info.dli_sname),
                           value - reinterpret_cast<std::uintptr_t>(info.dli_saddr), text);
    }
    return text;
}

}  // namespace tutti::record
