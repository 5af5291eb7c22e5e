#include "nccl/adapted.hpp"

#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::nccl {
namespace {

struct State {
    std::mutex mutex;
    Result result = Result::in_progress;
    void* own = nullptr;
    std::atomic<bool> given_up{false};
    Adapted::End end;
};
using Handle = std::shared_ptr<State>;

Handle& handle_of(Comm comm) {
    return *reinterpret_cast<Handle*>(comm);
}

void make_it(const Handle& state, const Adapted::Make& make) {
    void* own = nullptr;
    const int code = make(&own, state->given_up);
    std::unique_lock lock(state->mutex);
    state->result = code == 0 ? Result::success : foreign(code);
    if (code != 0) return;
    state->own = own;
    if (!state->given_up) return;
    lock.unlock();
    state->end(own);
}

}  // namespace

// The thread may wait in the library for ranks that never come: no call can end it, so no thread waits for it.
Result Adapted::start(Comm* comm, Make make, End end) {
    auto state = std::make_shared<State>();
    state->end = std::move(end);
    try {
        std::thread([state, make = std::move(make)] { make_it(state, make); }).detach();
    } catch (const std::system_error&) {
        return Result::system_error;
    }
    *comm = reinterpret_cast<Comm>(new Handle(std::move(state)));
    return Result::in_progress;
}

void* Adapted::own(Comm comm) {
    State& state = *handle_of(comm);
    const std::lock_guard lock(state.mutex);
    return state.own;
}

Result Adapted::state(Comm comm) {
    State& state = *handle_of(comm);
    const std::lock_guard lock(state.mutex);
    return state.result;
}

Result Adapted::destroy(Comm comm) {
    const std::unique_ptr<Handle> handle(&handle_of(comm));
    State& state = **handle;
    void* own = nullptr;
    {
        const std::lock_guard lock(state.mutex);
        own = std::exchange(state.own, nullptr);
        state.given_up = true;
    }
    if (own == nullptr) return Result::success;
    const int code = state.end(own);
    return code == 0 ? Result::success : foreign(code);
}

Result Adapted::finalize(Comm) {
    return Result::success;
}

const char* Adapted::text(Result result) {
    switch (result) {
        case Result::success: return "no error";
        case Result::in_progress: return "in progress";
        case Result::invalid_argument: return "invalid argument";
        case Result::invalid_usage: return "invalid usage";
        case Result::system_error: return "no thread can be started";
        default: return nullptr;
    }
}

std::size_t size_of(Type type) {
    switch (type) {
        case float16:
        case bfloat16: return 2;
        case int32:
        case uint32:
        case float32: return 4;
        case int64:
        case uint64:
        case float64: return 8;
        default: return 1;
    }
}

}  // namespace tutti::nccl
