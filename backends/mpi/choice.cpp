#include "mpi/choice.hpp"

#include <tutti/error.hpp>

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti::backends::mpi {

struct Family {
    const char* title;
    const char* part;                     // the file beside this plug-in
    std::array<const char*, 2> files;     // as the loader knows them
    std::array<const char*, 3> launched;  // variables that its mpirun sets
};

namespace {

constexpr Family open_mpi{
    "Open MPI", "libtutti-mpi-openmpi.so", {"libmpi.so.40", nullptr}, {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", nullptr}};
// Intel MPI, MVAPICH and Cray's have agreed with MPICH on one ABI. Debian gives MPICH's file another name.
constexpr Family mpich{"MPICH",
                       "libtutti-mpi-mpich.so",
                       {"libmpi.so.12", "libmpich.so.12"},
                       {"MPI_LOCALNRANKS", "PMI_RANK", "PALS_RANKID"}};

bool is_set(const char* variable) {
    const char* value = variable == nullptr ? nullptr : std::getenv(variable);
    return value != nullptr && *value != '\0';
}

bool has_started_us(const Family& family) {
    for (const char* variable : family.launched) {
        if (is_set(variable)) return true;
    }
    return false;
}

// The family whose mpirun has started this process comes first.
std::array<const Family*, 2> families() {
    if (!has_started_us(open_mpi) && has_started_us(mpich)) return {&mpich, &open_mpi};
    return {&open_mpi, &mpich};
}

std::filesystem::path folder_of_parts() {
    Dl_info found{};
    if (::dladdr(reinterpret_cast<void*>(&choose), &found) == 0) return {};
    return std::filesystem::path(found.dli_fname).parent_path();
}

bool is_built(const Family& family) {
    std::error_code none;
    return std::filesystem::exists(folder_of_parts() / family.part, none);
}

std::string last_error() {
    const char* text = ::dlerror();
    return text == nullptr ? "no reason given" : text;
}

// A library with the interface of MPI 5 has the standard's ABI, which neither part supports.
bool has_standard_abi(void* library) {
    auto* const version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(library, "MPI_Abi_get_version"));
    int major = 0, minor = 0;
    return version != nullptr && version(&major, &minor) == 0 && major > 0;
}

const Family& family_of(void* library) {
    return ::dlsym(library, "ompi_mpi_comm_world") != nullptr ? open_mpi : mpich;
}

bool is_initialized(void* library) {
    auto* const ask = reinterpret_cast<int (*)(int*)>(::dlsym(library, "MPI_Initialized"));
    int answer = 0;
    return ask != nullptr && ask(&answer) == 0 && answer != 0;
}

// The file of MPI's functions: `library` itself, or a library that it is linked with.
std::string file_of(void* library) {
    Dl_info found{};
    void* const function = ::dlsym(library, "MPI_Init_thread");
    return function != nullptr && ::dladdr(function, &found) != 0 ? found.dli_fname : "";
}

std::vector<std::string> loaded_files() {
    std::vector<std::string> files;
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* list) {
            const std::filesystem::path file = object->dlpi_name == nullptr ? "" : object->dlpi_name;
            if (file.filename().string().starts_with("libmpi"))
                static_cast<std::vector<std::string>*>(list)->push_back(file);
            return 0;
        },
        &files);
    return files;
}

// Opens the file, asks and closes it again; calls no function of MPI that changes anything.
std::optional<Choice> look_at(const std::string& file, int how) {
    void* const library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL | how);
    if (library == nullptr) return std::nullopt;
    const std::string own = file_of(library);
    std::optional<Choice> choice;
    if (!own.empty() && !has_standard_abi(library)) {
        const Family& family = family_of(library);
        choice = {&family, own, std::string(family.title) + ": " + own};
    }
    ::dlclose(library);
    return choice;
}

std::optional<Choice> loaded() {
    std::optional<Choice> first;
    for (const std::string& file : loaded_files()) {
        auto one = look_at(file, RTLD_NOLOAD);
        if (!one) continue;
        one->words += ", which the program has loaded";
        void* const library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
        const bool is_at_work = is_initialized(library);
        ::dlclose(library);
        if (is_at_work) return one;
        if (!first) first = std::move(one);
    }
    return first;
}

Choice named(const char* file) {
    auto found = look_at(file, 0);
    if (!found)
        return {nullptr, file,
                std::string("TUTTI_MPI_LIB=") + file + " is no MPI that can be loaded (" + last_error() +
                    "): expected the file of Open MPI, or of MPICH or one with its ABI"};
    found->words += ", by TUTTI_MPI_LIB";
    return *found;
}

// Names for the loader: first those in environments of pip and conda.
std::vector<std::string> names_of(const Family& family) {
    std::vector<std::string> names;
    for (const char* const prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        if (!is_set(prefix)) continue;
        for (const char* const file : family.files) {
            if (file != nullptr) names.push_back(std::filesystem::path(std::getenv(prefix)) / "lib" / file);
        }
    }
    for (const char* const file : family.files) {
        if (file != nullptr) names.emplace_back(file);
    }
    return names;
}

}  // namespace

Choice choose() {
    if (auto choice = loaded()) return *choice;
    if (is_set("TUTTI_MPI_LIB")) return named(std::getenv("TUTTI_MPI_LIB"));
    std::string tried;
    for (const Family* family : families()) {
        if (!is_built(*family)) continue;
        for (const std::string& name : names_of(*family)) {
            auto found = look_at(name, 0);
            if (found && found->family == family) return *found;
            tried += (tried.empty() ? "" : ", ") + name;
        }
    }
    return {nullptr, "",
            "no MPI was found: the program has loaded none, TUTTI_MPI_LIB is not set, and the loader finds none of " +
                tried};
}

Part part_for(const Choice& choice) {
    if (choice.family == nullptr) throw DistBackendError("mpi: " + choice.words);
    const Family& family = *choice.family;
    if (!is_built(family)) {
        throw DistBackendError("mpi: this process has " + choice.words + ", but this tutti was built without " +
                               family.part + ": expected " + family.title +
                               "'s headers (Debian packages libopenmpi-dev, libmpich-dev) when tutti is built");
    }
    // Open MPI loads parts of itself that look for its functions among all symbols, and our own part does the same.
    if (::dlopen(choice.library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
        throw DistBackendError("mpi: " + choice.library + " cannot be loaded: " + last_error());
    const std::string file = folder_of_parts() / family.part;
    void* const part = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (part == nullptr) throw DistBackendError("mpi: " + file + " cannot be loaded: " + last_error());
    auto* const make = reinterpret_cast<Make*>(::dlsym(part, "tutti_mpi_make"));
    auto* const ways = ::dlsym(part, "tutti_backend_ways");
    if (make == nullptr || ways == nullptr)
        throw DistBackendError("mpi: " + file + " is no part of this plug-in: build it anew");
    return {*make, reinterpret_cast<decltype(Part::ways)>(ways)};
}

}  // namespace tutti::backends::mpi
