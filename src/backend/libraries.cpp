#include "backend/libraries.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"

#include <tutti/backend.hpp>
#include <tutti/error.hpp>
#include <tutti/transport.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace tutti::backend {
namespace {

// The library that this code is in says where it lies, in a build tree and wherever it was installed. A program that
// has tutti in itself has no such folder: backends need the shared library.
std::filesystem::path own_folder() {
    static const char inside = 0;
    Dl_info found{};
    if (::dladdr(&inside, &found) == 0 || found.dli_fname == nullptr) return {};
    std::error_code ignored;
    const std::filesystem::path library = std::filesystem::canonical(found.dli_fname, ignored);
    return library.empty() ? library : library.parent_path() / "tutti" / "backends";
}

// Whether this library is the one that the Python package carries: tutti/lib/libtutti.so.
bool in_python_package() {
    const std::filesystem::path lib = own_folder().parent_path().parent_path();
    std::error_code ignored;
    return !lib.empty() && std::filesystem::exists(lib.parent_path() / "__init__.py", ignored);
}

// The reports of loaded libraries about themselves; null: none.
using Report = const char* (*)();
class Reports {
 public:
    void set(const std::string& name, Report report) {
        TUTTI_ASSERT(!name.empty());
        const std::lock_guard lock(mutex_);
        by_name_[name] = report;
    }
    Report find(const std::string& name) {
        const std::lock_guard lock(mutex_);
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : found->second;
    }

 private:
    std::mutex mutex_;
    std::map<std::string, Report> by_name_;
};
Reports& reports() {
    static Reports& all = *new Reports;
    return all;
}

std::vector<std::filesystem::path> folders() {
    auto list = named_folders();
    if (auto own = own_folder(); !own.empty()) list.push_back(std::move(own));
    return list;
}

// A library says for which version of a header it was built; one that does not use the header says nothing.
void check_version(void* library, const std::string& name, const std::string& file, const char* function,
                   const char* header, int expected, int if_silent) {
    TUTTI_ASSERT(library != nullptr);
    auto* const ask = reinterpret_cast<int (*)()>(::dlsym(library, function));
    const int version = ask == nullptr ? if_silent : ask();
    if (version == expected) return;
    throw DistBackendError(
        fmt::format("backend \"{}\": {} was built for version {} of {}: expected {}, this tutti's; build it anew", name,
                    file, version, header, expected));
}

}  // namespace

std::vector<std::filesystem::path> named_folders() {
    std::vector<std::filesystem::path> list;
    const std::string path = env::get("TUTTI_BACKEND_PATH").value_or("");
    for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find(':', at), path.size());
        list.emplace_back(path.substr(at, end - at));
        at = end + 1;
    }
    return list;
}

std::string load_library(const std::string& name) {
    TUTTI_ASSERT(!name.empty());
    for (const auto& folder : folders()) {
        const std::string file = folder / fmt::format("libtutti-backend-{}.so", name);
        std::error_code ignored;
        if (!std::filesystem::exists(file, ignored)) continue;
        void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw DistBackendError(fmt::format("backend \"{}\": {}", name, ::dlerror()));
        auto* begin = reinterpret_cast<void (*)()>(::dlsym(library, "tutti_backend_library"));
        if (begin == nullptr) {
            throw DistBackendError(
                fmt::format("backend \"{}\": {} has no TUTTI_BACKEND_LIBRARY: expected a backend", name, file));
        }
        check_version(library, name, file, "tutti_backend_abi", "tutti/backend.hpp", TUTTI_BACKEND_ABI, 1);
        check_version(library, name, file, "tutti_transport_abi", "tutti/transport.hpp", TUTTI_TRANSPORT_ABI,
                      TUTTI_TRANSPORT_ABI);
        begin();
        reports().set(name, reinterpret_cast<Report>(::dlsym(library, "tutti_backend_report")));
        TUTTI_DEBUG("backend {} comes from {}", name, file);
        return file;
    }
    return {};
}

std::string trouble_of(const std::string& name) {
    TUTTI_ASSERT(!name.empty());
    constexpr std::string_view not_here = "not here: ";
    const Report ask = reports().find(name);
    const char* text = ask == nullptr ? nullptr : ask();
    const std::string_view said = text == nullptr ? "" : text;
    return said.starts_with(not_here) ? std::string(said.substr(not_here.size())) : "";
}

std::string canonical(std::string name) {
    return name == "hf_barrier" ? "hf_zmq" : std::move(name);
}

std::string how_to_get(const std::string& name) {
    // Those of python/CMakeLists.txt.
    static constexpr std::string_view extra[] = {"gloo", "hf_zmq", "rccl", "hccl", "xccl", "ucc"};
    if (std::ranges::find(extra, name) != std::end(extra) && in_python_package())
        return fmt::format("{} comes with an extra of the Python package: pip install 'libtutti[backends]'", name);
    const auto package = [&](const char* packages) {
        return fmt::format("tutti brings {} where {} installed when tutti is built (tools/install-deps does it)", name,
                           packages);
    };
    if (name == "gloo") return package("Debian's libgloo-dev is");
    if (name == "mpi") return package("Debian's libopenmpi-dev or libmpich-dev are");
    if (name == "hf_zmq") return package("Debian's libzmq3-dev and cppzmq-dev are");
    return {};
}

}  // namespace tutti::backend
