#include "nccl/library.hpp"

#include "nccl/driver.hpp"
#include "nccl/search.hpp"

#include <tutti/error.hpp>

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace tutti::nccl {
namespace {

// The file that a symbol of the library is in; `asked` may be a name, or a file that is linked with it.
std::string file_of(void* symbol, const std::string& asked) {
    Dl_info where{};
    if (symbol == nullptr || ::dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) return asked;
    return where.dli_fname;
}

// Whether the text, a path or a name for the loader, means this file.
bool names(std::string_view text, const std::string& file) {
    std::error_code none;
    return text.find('/') == std::string_view::npos ? std::filesystem::path(file).filename() == text
                                                    : std::filesystem::equivalent(text, file, none);
}

std::string driver_text(const Library& library) {
    const auto driver = open_driver(library.vendor().devices.front());
    if (driver->device_count() == 0) throw DistBackendError(driver->file() + " has none");
    return driver->file() + " has " + std::to_string(driver->device_count()) + " devices";
}

bool works_on_host_memory(const Vendor& vendor, const Symbols& symbols) {
    if (vendor.on_host != nullptr) return vendor.on_host();
    auto* const says = reinterpret_cast<int (*)()>(symbols.find("tuttiNcclHostMemory"));
    return says != nullptr && says() != 0;
}

}  // namespace

Library::Library(const Vendor& vendor, const Interface& calls, std::string file, int version, bool host_memory)
    : vendor_(vendor),
      calls_(calls),
      abilities_(vendor.abilities(version)),
      file_(std::move(file)),
      version_(version),
      host_memory_(host_memory) {}

std::shared_ptr<const Library> Library::load(const Vendor& vendor) {
    const Found found = find_library(vendor);
    Symbols symbols(found.handle);
    Interface calls;
    vendor.resolve(symbols, calls);
    int version = 0;
    const std::string file = file_of(
        vendor.anchor == nullptr ? reinterpret_cast<void*>(calls.GetVersion) : symbols.find(vendor.anchor), found.file);
    const std::string where =
        vendor.backend + ": " + file + (found.was_loaded_before ? ", which was loaded already," : "");
    if (calls.GetVersion != nullptr && calls.GetVersion(&version) == Result::success && version < vendor.oldest) {
        throw DistBackendError(where + " is " + vendor.title + " " + vendor.version_text(version) + ": expected " +
                               vendor.oldest_text + " or later");
    }
    if (!symbols.missing().empty()) {
        throw DistBackendError(where + " lacks " + joined(symbols.missing()) + ": expected the library of " +
                               vendor.title + " " + vendor.oldest_text + " or later");
    }
    if (version == 0) throw DistBackendError(where + " does not say its version: expected " + vendor.title);
    auto library = std::make_shared<Library>(vendor, calls, file, version, works_on_host_memory(vendor, symbols));
    library->was_loaded_before_ = found.was_loaded_before;
    library->absent_ = symbols.absent();
    return library;
}

std::shared_ptr<const Library> Library::open(const Vendor& vendor) {
    static auto* const mutex = new std::mutex;
    static auto* const open = new std::map<std::string, std::shared_ptr<const Library>>;
    const std::lock_guard lock(*mutex);
    auto& library = (*open)[vendor.backend];
    if (!library) library = load(vendor);  // a failed load is repeated the next time
    return library;
}

std::string Library::describe() const {
    return vendor_.title + " " + version_text() + " (" + file_ + ")";
}

std::string Library::report(const Vendor& vendor) noexcept {
    const std::string not_here = "not here: ";
    std::string text;
    try {
        const auto library = open(vendor);
        text = library->describe() + (library->was_loaded_before() ? ", loaded before" : "");
        if (library->host_memory()) text += ", works on host memory";
        if (!library->absent().empty()) text += "; lacks " + joined(library->absent());
        const char* named = std::getenv(vendor.variable.c_str());
        if (library->was_loaded_before() && named != nullptr && *named != '\0' && !names(named, library->file()))
            text += "; " + vendor.variable + "=" + named + " is not used";
        try {
            return text + "; " + driver_text(*library);
        } catch (const std::exception& error) {
            return (library->host_memory() ? "" : not_here) + text + "; no device: " + error.what();
        }
    } catch (const std::exception& error) {
        return not_here + error.what();
    }
}

}  // namespace tutti::nccl
