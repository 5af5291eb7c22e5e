#include "mpi/library.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

namespace tutti::backends::mpi {
namespace {

struct State {
    std::mutex mutex;
    std::condition_variable left;
    bool is_ours = false;  // MPI was initialised here
    bool exits = false;
    int groups = 0;
    std::atomic<bool> broken{false};
};
State& state() {
    static auto* const one = new State;  // groups may outlive static objects
    return *one;
}

bool is_over() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
}

void finalize_if_last() {
    if (state().is_ours && state().exits && state().groups == 0 && !state().broken && !is_over()) MPI_Finalize();
}

// A group may be ending just now, on a thread of its own.
void at_exit() {
    std::unique_lock lock(state().mutex);
    state().exits = true;
    state().left.wait_for(lock, std::chrono::seconds(1), [] { return state().groups == 0; });
    finalize_if_last();
}

void initialize() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (is_over()) throw DistBackendError("mpi: MPI_Finalize has been called: expected groups before it");
    int level = 0;
    if (initialized == 0) {
        // A process that mpirun has not started is a world by itself, and needs no daemon.
        if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
        state().is_ours = true;
        std::atexit(&at_exit);
    } else {
        check(MPI_Query_thread(&level), "MPI_Query_thread");
    }
    if (level < MPI_THREAD_MULTIPLE) {
        throw DistBackendError("mpi: MPI was initialised with thread level " + std::to_string(level) +
                               ": expected MPI_THREAD_MULTIPLE (" + std::to_string(MPI_THREAD_MULTIPLE) +
                               "), which a program that calls MPI_Init_thread itself must ask for");
    }
}

std::string job() {
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
        if (const char* value = std::getenv(name); value != nullptr) return value;
    }
    return "none";
}

}  // namespace

void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw DistBackendError(std::string("mpi: ") + call + ": " + text.data());
}

std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version = text.data();
    version.resize(std::min(version.find_first_of(",\n"), version.size()));
    for (char& c : version) c = c == '\t' ? ' ' : c;
    return version;
}

Membership enter() {
    const std::lock_guard lock(state().mutex);
    if (state().broken) {
        throw DistBackendError(
            "mpi: a group of this process was aborted while it was at work, and MPI cannot take back operations: "
            "expected a new process");
    }
    initialize();
    Membership own{.job = job()};
    check(MPI_Comm_rank(MPI_COMM_WORLD, &own.rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &own.size), "MPI_Comm_size");
    ++state().groups;
    return own;
}

void leave() noexcept {
    const std::lock_guard lock(state().mutex);
    --state().groups;
    if (!state().exits) return;
    state().left.notify_all();
    finalize_if_last();
}

void break_off() noexcept {
    state().broken = true;
}

bool has_broken_off() noexcept {
    return state().broken;
}

}  // namespace tutti::backends::mpi
