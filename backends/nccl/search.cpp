#include "nccl/search.hpp"

#include <tutti/error.hpp>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr int how = RTLD_NOW | RTLD_LOCAL;

std::string last_error() {
    const char* text = ::dlerror();
    return text == nullptr ? "no reason given" : text;
}

std::vector<std::string> loaded_files() {
    std::vector<std::string> files;
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* list) {
            if (object->dlpi_name != nullptr && *object->dlpi_name != '\0')
                static_cast<std::vector<std::string>*>(list)->emplace_back(object->dlpi_name);
            return 0;
        },
        &files);
    return files;
}

// The ".../site-packages" that a file is below; empty: none.
std::string packages_folder(const std::string& file) {
    for (const std::string_view name : {"/site-packages/", "/dist-packages/"}) {
        const auto at = file.find(name);
        if (at != std::string::npos) return file.substr(0, at + name.size() - 1);
    }
    return {};
}

void add_environment(const char* variable, std::vector<std::string>& folders) {
    const char* prefix = std::getenv(variable);
    if (prefix == nullptr || *prefix == '\0') return;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(prefix) / "lib", none)) {
        if (entry.path().filename().string().starts_with("python3")) folders.push_back(entry.path() / "site-packages");
    }
}

// Libraries that a search has opened. They stay open, and a later search must not take them for the program's. It lives
// for ever, since a group may look for a library while static objects end.
std::set<void*>& opened_by_searches() {
    static auto* const handles = new std::set<void*>;
    return *handles;
}

bool open_loaded(const std::string& file, Found& found) {
    found.handle = ::dlopen(file.c_str(), how | RTLD_NOLOAD);
    found.file = file;
    found.was_loaded_before = found.handle != nullptr && !opened_by_searches().contains(found.handle);
    return found.handle != nullptr;
}

bool open_new(const std::string& file, Found& found) {
    if (open_loaded(file, found)) return true;
    found.handle = ::dlopen(file.c_str(), how);
    if (found.handle != nullptr) opened_by_searches().insert(found.handle);
    return found.handle != nullptr;
}

Found open_named(const Vendor& vendor, const std::string& file) {
    Found found;
    if (open_new(file, found)) return found;
    throw DistBackendError(vendor.backend + ": " + vendor.variable + "=" + file + " cannot be loaded (" + last_error() +
                           "): expected the file of " + vendor.title + " " + vendor.oldest_text + " or later");
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

std::vector<std::string> python_folders() {
    std::vector<std::string> first, rest;
    for (const std::string& file : loaded_files()) {
        if (const std::string folder = packages_folder(file); !folder.empty())
            (file.find("/torch/lib/") != std::string::npos ? first : rest).push_back(folder);
    }
    add_environment("VIRTUAL_ENV", rest);
    add_environment("CONDA_PREFIX", rest);
    std::vector<std::string> folders;
    first.insert(first.end(), rest.begin(), rest.end());
    for (std::string& folder : first) {
        if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(std::move(folder));
    }
    return folders;
}

Found find_library(const Vendor& vendor) {
    Found found;
    for (const std::string& name : vendor.files) {
        if (open_loaded(name, found)) return found;
    }
    const char* named = std::getenv(vendor.variable.c_str());
    if (named != nullptr && *named != '\0') return open_named(vendor, named);
    std::vector<std::string> folders;
    for (const std::string& packages : python_folders()) {
        for (const std::string& below : vendor.in_python) {
            const std::filesystem::path folder = std::filesystem::path(packages) / below;
            folders.push_back(folder);
            for (const std::string& name : vendor.files) {
                std::error_code none;
                if (!std::filesystem::exists(folder / name, none)) continue;
                if (open_new(folder / name, found)) return found;
                throw DistBackendError(vendor.backend + ": " + (folder / name).string() + " cannot be loaded (" +
                                       last_error() + "): " + vendor.variable + " can name another file");
            }
        }
    }
    std::string reason;
    for (const std::string& name : vendor.files) {
        if (open_new(name, found)) return found;
        if (reason.empty()) reason = last_error();
    }
    throw DistBackendError(
        vendor.backend + ": " + vendor.title + "'s library " + joined(vendor.files) +
        " was not found: it is not loaded, " + vendor.variable + " is not set, " +
        (folders.empty() ? "no folder with Python's packages is known" : "it is not in " + joined(folders)) +
        ", and the loader says \"" + reason + "\": expected " + vendor.title + " " + vendor.oldest_text + " or later" +
        (vendor.how_to_get.empty() ? "" : "; " + vendor.how_to_get));
}

}  // namespace tutti::nccl
