#include "record/source_lines.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/unique_fd.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tutti::record {
// The part of libdw's interface that is used here, as elfutils/libdw.h declares it. Its values are DWARF's.
namespace dw {  // not without a name, since the fields of SourceLines::Files have its types
struct Dwarf;
struct Line;
struct Die {
    void* address;
    void* unit;
    void* abbreviation;
    long padding;
};
struct Attribute {
    unsigned code, form;
    unsigned char* value;
    void* unit;
};
constexpr int read = 0;  // of Dwarf_Cmd
constexpr int tag_inlined_subroutine = 0x1d, tag_subprogram = 0x2e;
constexpr unsigned at_linkage_name = 0x6e;

struct Functions {
    Dwarf* (*begin)(int fd, int command);
    int (*end)(Dwarf* dwarf);
    Die* (*addrdie)(Dwarf* dwarf, std::uint64_t address, Die* result);
    int (*nextcu)(Dwarf* dwarf, std::uint64_t offset, std::uint64_t* next, std::size_t* header_bytes,
                  std::uint64_t* abbreviations, std::uint8_t* address_bytes, std::uint8_t* offset_bytes);
    Die* (*offdie)(Dwarf* dwarf, std::uint64_t offset, Die* result);
    int (*haspc)(Die* die, std::uint64_t address);
    Line* (*getsrc_die)(Die* unit, std::uint64_t address);
    const char* (*linesrc)(Line* line, std::uint64_t* time, std::uint64_t* length);
    int (*lineno)(Line* line, int* number);
    int (*getscopes)(Die* unit, std::uint64_t address, Die** scopes);
    int (*tag)(Die* die);
    const char* (*diename)(Die* die);
    Attribute* (*attr_integrate)(Die* die, unsigned name, Attribute* result);
    const char* (*formstring)(Attribute* attribute);
};

// Null: libdw is not here.
static const Functions* functions() {
    static const Functions* const found = []() -> const Functions* {
        void* const library = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            TUTTI_DEBUG("call sites have no lines: {}", ::dlerror());
            return nullptr;
        }
        auto* const f = new Functions{};
        bool all = true;
        const auto resolve = [&]<class F>(F*& function, const char* name) {
            function = reinterpret_cast<F*>(::dlsym(library, name));
            all &= function != nullptr;
        };
        resolve(f->begin, "dwarf_begin");
        resolve(f->end, "dwarf_end");
        resolve(f->addrdie, "dwarf_addrdie");
        resolve(f->nextcu, "dwarf_nextcu");
        resolve(f->offdie, "dwarf_offdie");
        resolve(f->haspc, "dwarf_haspc");
        resolve(f->getsrc_die, "dwarf_getsrc_die");
        resolve(f->linesrc, "dwarf_linesrc");
        resolve(f->lineno, "dwarf_lineno");
        resolve(f->getscopes, "dwarf_getscopes");
        resolve(f->tag, "dwarf_tag");
        resolve(f->diename, "dwarf_diename");
        resolve(f->attr_integrate, "dwarf_attr_integrate");
        resolve(f->formstring, "dwarf_formstring");
        return all ? f : nullptr;
    }();
    return found;
}
}  // namespace dw

namespace {

// Reading the index of a larger file could take seconds.
constexpr off_t file_bytes_max = off_t{1} << 30;

// The function around `place` by the file's own table of symbols, which also has the functions that the dynamic linker
// does not know: "train_step(int)+0x1f" for `shown`. Empty: there is none. Nothing in the file is trusted.
std::string symbol_at(std::span<const std::byte> file, std::uint64_t place, std::uint64_t shown) {
    TUTTI_ASSERT(file.data() != nullptr || file.empty());
    const auto table = [&]<class T>(std::uint64_t offset, std::uint64_t bytes, const T*) {
        const bool fits = offset <= file.size() && bytes <= file.size() - offset && offset % alignof(T) == 0;
        return fits ? std::span(reinterpret_cast<const T*>(file.data() + offset), bytes / sizeof(T))
                    : std::span<const T>();
    };
    const auto heads = table(0, sizeof(Elf64_Ehdr), static_cast<const Elf64_Ehdr*>(nullptr));
    if (heads.empty() || std::memcmp(heads[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        heads[0].e_ident[EI_CLASS] != ELFCLASS64)
        return {};
    const auto sections = table(heads[0].e_shoff, std::uint64_t{heads[0].e_shnum} * sizeof(Elf64_Shdr),
                                static_cast<const Elf64_Shdr*>(nullptr));
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        const Elf64_Shdr& texts = sections[section.sh_link];
        const auto names = table(texts.sh_offset, texts.sh_size, static_cast<const char*>(nullptr));
        for (const Elf64_Sym& s : table(section.sh_offset, section.sh_size, static_cast<const Elf64_Sym*>(nullptr))) {
            if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || place < s.st_value || place - s.st_value >= s.st_size) continue;
            if (s.st_name >= names.size()) return {};
            const auto name = names.subspan(s.st_name);
            TUTTI_ASSERT(!name.empty());
            const std::string symbol(name.data(), ::strnlen(name.data(), name.size()));
            return fmt::format("{}+{:#x}", demangled(symbol.c_str()), shown - s.st_value);
        }
    }
    return {};
}

// "std::function<...>::operator()(...)": for names that nobody would read to their end.
std::string without_arguments(std::string_view name) {
    std::string text;
    int depth = 0;
    for (const char c : name) {
        const bool opens = c == '<' || c == '(', closes = c == '>' || c == ')';
        if (closes && depth > 0) --depth;
        if (depth == 0) text += c;
        if (opens && depth++ == 0) text += "...";
    }
    return text;
}

// The places that were found for addresses; an empty one where there is none.
class Known {
 public:
    static Known& instance() {
        static Known& known = *new Known;  // groups may outlive static objects
        return known;
    }
    std::optional<std::string> find(std::uintptr_t address) {
        const std::lock_guard lock(mutex_);
        const auto found = lines_.find(address);
        return found == lines_.end() ? std::nullopt : std::optional(found->second);
    }
    void note(std::uintptr_t address, const std::string& line) {
        constexpr std::size_t most = 1 << 16;
        const std::lock_guard lock(mutex_);
        if (lines_.size() < most) lines_.emplace(address, line);
    }

 private:
    std::mutex mutex_;
    std::unordered_map<std::uintptr_t, std::string> lines_;
};

// The innermost function around the address, which may stand inlined in another one.
std::string function_at(const dw::Functions& f, dw::Die& unit, std::uint64_t address) {
    dw::Die* scopes = nullptr;
    const int count = f.getscopes(&unit, address, &scopes);
    const std::unique_ptr<dw::Die, decltype(&std::free)> owner(scopes, &std::free);
    for (int i = 0; i < count; ++i) {
        const int tag = f.tag(&scopes[i]);
        if (tag != dw::tag_subprogram && tag != dw::tag_inlined_subroutine) continue;
        dw::Attribute attribute{};
        if (f.attr_integrate(&scopes[i], dw::at_linkage_name, &attribute) != nullptr) {
            if (const char* symbol = f.formstring(&attribute)) return demangled(symbol);
        }
        const char* name = f.diename(&scopes[i]);
        return name == nullptr ? std::string() : name;
    }
    return {};
}

}  // namespace

std::string demangled(const char* symbol) {
    TUTTI_ASSERT(symbol != nullptr);
    constexpr std::size_t readable = 120;
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                           &std::free);
    std::string text = status == 0 && name ? name.get() : symbol;
    return text.size() > readable ? without_arguments(text) : text;
}

class SourceLines::Files {
 public:
    Files() = default;
    ~Files() {
        for (const auto& [map, file] : files_) {
            if (file.dwarf != nullptr) dw_->end(file.dwarf);
            if (!file.bytes.empty()) ::munmap(const_cast<std::byte*>(file.bytes.data()), file.bytes.size());
        }
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;

    // Of the instruction at an address, which messages show as `shown`. Nothing: the time was up.
    std::optional<std::string> place_of(const void* address, const void* shown, const Deadline& deadline) {
        Dl_info info{};
        link_map* map = nullptr;
        if (::dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr)
            return std::string();
        const File& file = file_of(*map);
        const std::uint64_t place = reinterpret_cast<std::uintptr_t>(address) - map->l_addr;
        auto line = file.dwarf == nullptr ? std::string() : line_at(file.dwarf, place, deadline);
        if (!line || !line->empty() || info.dli_sname != nullptr) return line;
        if (deadline.expired()) return std::nullopt;
        const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(shown) - map->l_addr;
        const std::string symbol = symbol_at(file.bytes, place, offset);
        const std::string_view path = info.dli_fname;
        return symbol.empty() ? std::string()
                              : fmt::format("{} in {}+{:#x}", symbol, path.substr(path.find_last_of('/') + 1), offset);
    }

 private:
    // Nothing: the time was up.
    std::optional<std::string> line_at(dw::Dwarf* dwarf, std::uint64_t place, const Deadline& deadline) {
        if (deadline.expired()) return std::nullopt;
        dw::Die unit{};
        if (dw_->addrdie(dwarf, place, &unit) == nullptr) {  // clang writes no index of addresses
            const auto found = find_unit(dwarf, place, unit, deadline);
            if (!found) return std::nullopt;
            if (!*found) return std::string();
        }
        dw::Line* const line = dw_->getsrc_die(&unit, place);
        const char* file = line == nullptr ? nullptr : dw_->linesrc(line, nullptr, nullptr);
        int number = 0;
        if (file == nullptr || dw_->lineno(line, &number) != 0 || number == 0) return std::string();
        const std::string function = function_at(*dw_, unit, place);
        return fmt::format("{}:{}{}{}", file, number, function.empty() ? "" : " in ", function);
    }

    struct File {
        UniqueFd fd;
        std::span<const std::byte> bytes;  // empty: it cannot be read, or is too large
        dw::Dwarf* dwarf = nullptr;        // null: it has no debug information, or there is no libdw
    };

    const File& file_of(const link_map& map) {
        const auto [place, is_new] = files_.try_emplace(&map);
        File& file = place->second;
        if (!is_new) return file;
        // The program's own name is empty; the path by which it was started may mean another file by now.
        const char* path = map.l_name == nullptr || *map.l_name == '\0' ? "/proc/self/exe" : map.l_name;
        file.fd = UniqueFd(::open(path, O_RDONLY | O_CLOEXEC));
        struct stat facts {};
        if (file.fd && ::fstat(file.fd.get(), &facts) == 0 && S_ISREG(facts.st_mode) &&
            facts.st_size <= file_bytes_max) {
            const auto bytes = static_cast<std::size_t>(facts.st_size);
            void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
            if (memory != MAP_FAILED) file.bytes = {static_cast<const std::byte*>(memory), bytes};
            if (dw_ != nullptr) file.dwarf = dw_->begin(file.fd.get(), dw::read);
        }
        return file;
    }
    // Nothing: the time was up.
    std::optional<bool> find_unit(dw::Dwarf* dwarf, std::uint64_t place, dw::Die& unit, const Deadline& deadline) {
        std::uint64_t offset = 0, next = 0;
        std::size_t header_bytes = 0;
        for (; dw_->nextcu(dwarf, offset, &next, &header_bytes, nullptr, nullptr, nullptr) == 0; offset = next) {
            if (deadline.expired()) return std::nullopt;
            if (dw_->offdie(dwarf, offset + header_bytes, &unit) != nullptr && dw_->haspc(&unit, place) > 0)
                return true;
        }
        return false;
    }

    const dw::Functions* const dw_ = dw::functions();
    std::map<const link_map*, File> files_;
};

SourceLines::SourceLines(std::chrono::milliseconds patience) : left_(patience) {}
SourceLines::~SourceLines() = default;

// The call stands before the address to which it returns, perhaps on another line.
std::string SourceLines::of(const void* return_address) {
    return look(static_cast<const char*>(return_address) - 1, return_address);
}
std::string SourceLines::at(const void* address) {
    return look(address, address);
}

std::string SourceLines::look(const void* address, const void* shown) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    if (auto known = Known::instance().find(value)) return *known;
    if (left_ <= Clock::duration::zero()) return {};
    const Instant begun = Clock::now();
    if (!files_) files_ = std::make_unique<Files>();
    const std::optional<std::string> place = files_->place_of(address, shown, Deadline::after(left_, begun));
    left_ -= Clock::now() - begun;
    if (place) Known::instance().note(value, *place);
    return place.value_or(std::string());
}

}  // namespace tutti::record
