// The vendor's library: finds and opens it, and resolves all its functions, once for the process.
//
// Threads: any. An opened library stays open.
#pragma once

#include "nccl/interface.hpp"

#include <tutti/tensor.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::nccl {

/// Looks up symbols of the library by name and notes the missing ones, so that messages can name them.
class Symbols {
 public:
    explicit Symbols(void* handle) : handle_(handle) {}
    /// A symbol that every supported version must have.
    template <class Function>
    void need(Function*& to, const char* name) {
        to = reinterpret_cast<Function*>(find(name));
        if (to == nullptr) missing_.emplace_back(name);
    }
    /// A symbol that came with a later version.
    template <class Function>
    void want(Function*& to, const char* name) {
        to = reinterpret_cast<Function*>(find(name));
        if (to == nullptr) absent_.emplace_back(name);
    }
    void* find(const char* name) const;
    const std::vector<std::string>& missing() const noexcept { return missing_; }
    const std::vector<std::string>& absent() const noexcept { return absent_; }

 private:
    void* const handle_;
    std::vector<std::string> missing_, absent_;
};

/// The library's abilities beyond those of every library; the plug-in composes the missing ones.
struct Abilities {
    std::vector<Type> reduced_types{int8,    uint8,   int32,   uint32,   int64,      uint64,
                                    float16, float32, float64, bfloat16, float8e4m3, float8e5m2};
    bool product = true;
    bool avg = true;
    bool premul_sum = true;
    bool carries_nan = true;  ///< through min and max
    bool split = true;
};

/// A kind of library: the description that makes a plug-in.
struct Vendor {
    std::string backend;                 ///< "nccl": the backend's name, for messages too
    std::string title;                   ///< "NCCL"
    std::string prefix;                  ///< of its functions' names, for messages: "nccl"
    std::vector<std::string> files;      ///< names for the loader, which takes the first that exists: "libnccl.so.2"
    std::string variable;                ///< names a file instead: "TUTTI_NCCL_LIB"
    std::vector<std::string> in_python;  ///< folders below site-packages: "nvidia/nccl/lib"
    std::vector<Device::Type> devices;   ///< the kinds that it serves
    int oldest = 0;                      ///< the version that is needed, as GetVersion counts; messages call it
    std::string oldest_text;             ///< "2.18"
    std::string how_to_get;              ///< "pip install nvidia-nccl-cu12 brings it", for messages
    /// Fills the table. tutti refuses a library that lacks a symbol of need().
    void (*resolve)(Symbols& symbols, Interface& calls) = nullptr;
    /// The abilities of a version, called after resolve().
    Abilities (*abilities)(int version) = nullptr;
    /// "2.28.3" from the number of GetVersion.
    std::string (*version_text)(int version) = nullptr;
    /// A symbol of the library, whose address leads to its file; null: the table's GetVersion.
    const char* anchor = nullptr;
    /// Whether it works on host memory, too; null: the library says so by int tuttiNcclHostMemory(void).
    bool (*on_host)() = nullptr;
};

/// NCCL's names and numbers, which RCCL has, too.
void resolve_nccl(Symbols& symbols, Interface& calls);
Abilities nccl_abilities(int version);
std::string nccl_version_text(int version);

class Library {
 public:
    /// Opens the file that is loaded already; else the one that the variable names; else one beside torch or in a
    /// Python environment; else one of the loader's path. Throws DistBackendError if it finds none (with the places),
    /// the file is too old or lacks functions (with their names), or the variable's file cannot be loaded (with the
    /// reason).
    static std::shared_ptr<const Library> open(const Vendor& vendor);
    /// The result of open(), and the devices, as a sentence for "tutti doctor"; it begins with "not here: " if groups
    /// cannot be made.
    static std::string report(const Vendor& vendor) noexcept;

    /// From a program's own table (tests).
    Library(const Vendor& vendor, const Interface& calls, std::string file, int version, bool host_memory);

    const Interface& calls() const noexcept { return calls_; }
    const Vendor& vendor() const noexcept { return vendor_; }
    const std::string& file() const noexcept { return file_; }
    bool was_loaded_before() const noexcept { return was_loaded_before_; }
    int version() const noexcept { return version_; }
    std::string version_text() const { return vendor_.version_text(version_); }
    /// Functions of later versions that the library lacks.
    const std::vector<std::string>& absent() const noexcept { return absent_; }
    const Abilities& abilities() const noexcept { return abilities_; }
    /// It works on host memory, without a device (int tuttiNcclHostMemory(void) says so).
    bool host_memory() const noexcept { return host_memory_; }
    /// "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"
    std::string describe() const;

 private:
    static std::shared_ptr<const Library> load(const Vendor& vendor);

    Vendor vendor_;
    Interface calls_;
    Abilities abilities_;
    std::string file_;
    std::vector<std::string> absent_;
    int version_ = 0;
    bool was_loaded_before_ = false, host_memory_ = false;
};

}  // namespace tutti::nccl
