// TUTTI_NCCL_FAULTS="missing=NAME": when the library is loaded it takes the name out of its own table of symbols, in
// this process alone, so that dlsym answers as if an older library stood there. A program that was linked with the
// library has its addresses before that, unless it was linked with lazy binding.
//
// An entry of the table without a section and a value stands for a symbol that is needed, not offered; that is what
// dlsym passes over. The table is read-only memory: its page is made writable for the moment.
#include "failure.hpp"
#include "faults.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace tutti::nccl_library {
namespace {

// How the pages of `address` may be used: what the segment says that it is in.
int protection_of(const void* address) {
    struct Search {
        std::uintptr_t address;
        int protection = PROT_READ;
    } search{reinterpret_cast<std::uintptr_t>(address)};
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const ElfW(Phdr)& segment = object->dlpi_phdr[i];
                const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
                if (segment.p_type != PT_LOAD || wanted.address < begin || wanted.address >= begin + segment.p_memsz)
                    continue;
                wanted.protection = ((segment.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                                    ((segment.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                                    ((segment.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
                return 1;
            }
            return 0;
        },
        &search);
    return search.protection;
}

bool withdraw_entry(ElfW(Sym) & entry) {
    const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(&entry) / page_bytes * page_bytes;
    const std::size_t bytes = reinterpret_cast<std::uintptr_t>(&entry + 1) - begin;
    const int protection = protection_of(&entry);
    if (::mprotect(reinterpret_cast<void*>(begin), bytes, protection | PROT_WRITE) != 0) return false;
    entry.st_shndx = SHN_UNDEF;
    entry.st_value = 0;
    ::mprotect(reinterpret_cast<void*>(begin), bytes, protection);
    return true;
}

// A name and its second spelling stand for one address; dladdr1 finds the entry of one of them after the other.
bool withdraw_name(void* library, const std::string& name) {
    void* address = nullptr;
    while ((address = ::dlsym(library, name.c_str())) != nullptr) {
        Dl_info info{};
        void* entry = nullptr;
        if (::dladdr1(address, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return false;
        if (!withdraw_entry(*static_cast<ElfW(Sym)*>(entry))) return false;
    }
    return true;
}

__attribute__((constructor)) void withdraw_missing() {
    try {
        if (faults().missing.empty()) return;
        Dl_info own{};
        if (::dladdr(reinterpret_cast<const void*>(&tuttiNcclHostMemory), &own) == 0) return;
        void* library = ::dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (library == nullptr) return;
        for (const std::string& name : faults().missing) {
            withdraw_name(library, name);
            withdraw_name(library, "p" + name);
        }
        ::dlclose(library);
    } catch (const Failure&) {
        // The calls that make communicators say what is wrong with the text.
    }
}

}  // namespace
}  // namespace tutti::nccl_library
