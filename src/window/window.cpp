// The public functions: checks, and whether a call copies memory or sends messages.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "object/codec.hpp"
#include "record/public_call.hpp"
#include "window/signals.hpp"
#include "window/state.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>
#include <tutti/window.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using api::refuse;
using detail::Group;
using detail::Operation;
using detail::WindowState;
using std::chrono::milliseconds;
using window::Raise;

constexpr int signals_max = 65536;

/// What all ranks have to agree on.
struct Terms {
    int dtype = 0;
    std::vector<std::int64_t> shape;
    int signals = 0;

    bool operator==(const Terms&) const = default;
    std::string to_string() const {
        return fmt::format("{}{} with {} signals", tutti::to_string(static_cast<DType>(dtype)),
                           Extents(shape).to_string(), signals);
    }
};
TUTTI_OBJECT(Terms, dtype, shape, signals);

milliseconds limit_of(const Group& group, milliseconds timeout) {
    return timeout.count() > 0 ? timeout : group.timeout();
}

void check_backend(const Group& group) {
    const auto& names = group.backends().names();
    const auto of_host = names.find(Device::Type::cpu);
    if (group.serves(Device::Type::cpu) && (of_host == names.end() || of_host->second == backend::native)) return;
    refuse("Window: host memory of group \"{}\" is served by {}: expected a group of tutti's own backend, native",
           group.name(), of_host == names.end() ? "no backend" : "the backend " + of_host->second);
}

void check_terms(const Group& group, const Terms& own, const std::vector<Terms>& all) {
    TUTTI_ASSERT(all.size() == static_cast<std::size_t>(group.size()));
    TUTTI_ASSERT(all[static_cast<std::size_t>(group.rank())] == own);
    const auto& ranks = group.ranks();
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] == all[0]) continue;
        const bool mine = static_cast<int>(rank) == group.rank();
        const int peer = ranks.global(static_cast<int>(rank));
        throw CollectiveMismatch(
            fmt::format(
                "Window in group \"{}\" ({} ranks): rank {} makes {}, but rank {} makes {}: expected the same on "
                "all ranks",
                group.name(), group.size(), ranks.global(0), all[0].to_string(), peer,
                (mine ? own : all[rank]).to_string()),
            {.operation = "Window", .group = group.name(), .rank = ranks.own_global(), .peer = peer});
    }
}

/// A put or a get, checked.
struct Access {
    const char* name;
    WindowState& state;
    const ConstTensorView& tensor;
    int target;
    std::int64_t offset;
    milliseconds timeout;
    Raise raise{};

    std::size_t offset_bytes() const {
        TUTTI_ASSERT(offset >= 0);
        return static_cast<std::size_t>(offset) * size_of(tensor.dtype());
    }
    bool is_mapped() const { return state.memory().is_mapped(target); }
    std::byte* there() const {
        TUTTI_ASSERT(is_mapped() && offset >= 0);
        return state.memory().elements(target) + offset_bytes();
    }
};

void check_target(const char* name, const WindowState& state, int target) {
    const int size = state.group().size();
    if (target < 0 || target >= size) [[unlikely]]
        refuse("{}: target {}: expected a rank of the group, 0 to {}", name, target, size - 1);
}

void check_kept(const char* name, const WindowState& state, int target) {
    if (state.was_let_go_by(target)) [[unlikely]]
        state.remote().refuse(name, target);
}

void check_signal(const char* name, const WindowState& state, int signal) {
    const int count = state.memory().signal_count();
    if (signal >= 0 && signal < count) return;
    if (count == 0) refuse("{}: signal {}: the window was made with no signals", name, signal);
    refuse("{}: signal {}: expected 0 to {}", name, signal, count - 1);
}

void check(const Access& access) {
    const char* const name = access.name;
    const ConstTensorView& tensor = access.tensor;
    const window::Memory& memory = access.state.memory();
    check_target(name, access.state, access.target);
    if (tensor.device().type != Device::Type::cpu)
        refuse("{}: tensor is on {}: expected host memory", name, to_string(tensor.device()));
    if (tensor.dtype() != memory.dtype())
        refuse("{}: tensor is {}: expected {}, as the window", name, tensor.to_string(), to_string(memory.dtype()));
    if (!tensor.contiguous())
        refuse("{}: tensor {} is not in one piece: expected contiguous", name, tensor.to_string());
    const std::int64_t all = memory.element_count(), count = tensor.element_count();
    if (access.offset < 0 || access.offset > all || count > all - access.offset) {
        refuse("{}: offset {} and {} elements: expected no more than the window's {} elements", name, access.offset,
               count, all);
    }
    api::check_timeout(name, access.timeout);
    window::check_sound(access.state.group(), name);
    check_kept(name, access.state, access.target);
}

/// An operation that was over when it began.
Work over(const char* name, std::vector<TensorView> outputs = {}) {
    auto operation = std::make_shared<Operation>();
    operation->name = name;
    operation->is_collective = false;
    operation->outputs = std::move(outputs);
    operation->complete_unseen();
    return Work(std::move(operation));
}

void copy_bytes(std::byte* to, const void* from, std::size_t bytes) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    if (bytes > 0) std::memmove(to, from, bytes);
}

// Null: it is done.
std::shared_ptr<Operation> put_to(const Access& access) {
    check(access);
    if (access.is_mapped()) {
        copy_bytes(access.there(), access.tensor.data(), access.tensor.byte_count());
        const auto& [signal, value] = access.raise;
        if (value != 0 && !access.state.memory().raise(access.target, signal, value))
            refuse("{}: value {}: it would raise signal {} of rank {}, which is {}, beyond 2^64 - 1", access.name,
                   value, signal, access.target, access.state.memory().value_of(access.target, signal));
        return nullptr;
    }
    return access.state.remote().put(access.name, access.target, access.offset_bytes(),
                                     {static_cast<const std::byte*>(access.tensor.data()), access.tensor.byte_count()},
                                     access.raise, limit_of(access.state.group(), access.timeout));
}

std::shared_ptr<Operation> get_from(const Access& access, const TensorView& destination) {
    check(access);
    auto* const to = static_cast<std::byte*>(destination.data());
    if (access.is_mapped()) {
        copy_bytes(to, access.there(), destination.byte_count());
        return nullptr;
    }
    if (destination.byte_count() == 0) return nullptr;
    return access.state.remote().get(access.name, access.target, access.offset_bytes(), {to, destination.byte_count()},
                                     limit_of(access.state.group(), access.timeout));
}

Access signalled(const char* name, WindowState& state, const ConstTensorView& source, int target,
                 const WindowSignalAccess& access) {
    check_signal(name, state, access.signal);
    return {name, state, source, target, access.offset, access.timeout, {access.signal, access.value}};
}

void wait_for(const std::shared_ptr<Operation>& operation) {
    if (operation) detail::group_of(*operation).world().wait_for_call(*operation);
}

void flush_all(const char* name, const WindowState& state, const Deadline& deadline) {
    for (int rank = 0; rank < state.group().size(); ++rank) check_kept(name, state, rank);
    std::vector<std::shared_ptr<Operation>> answers;
    for (int rank = 0; rank < state.group().size(); ++rank) {
        if (!state.memory().is_mapped(rank)) answers.push_back(state.remote().flush(rank, deadline.timeout()));
    }
    for (const auto& answer : answers) wait_for(answer);
}

// The other ranks of the host acquire the words of the barrier, and with them see all that this one wrote before it.
void fence_by(const char* name, const WindowState& state, const Deadline& deadline) {
    flush_all(name, state, deadline);
    // Not the public call, which a coalescing scope of this thread would put off.
    state.group().run(api::prepare(api::describe::barrier,
                                   {.group = ProcessGroup(state.shared_group()), .timeout = deadline.timeout()}));
}

Deadline deadline_of(const char* name, const WindowState& state, milliseconds timeout) {
    api::check_timeout(name, timeout);
    window::check_sound(state.group(), name);
    return Deadline::after(limit_of(state.group(), timeout));
}

}  // namespace

Window::Window(DType dtype, Extents shape, const WindowOptions& options) {
    api::refuse_if_recorded("Window");
    const std::shared_ptr<Group> group = api::group_of(options.group, "Window");
    api::check_timeout("Window", options.timeout);
    check_backend(*group);
    if (options.signals < 0 || options.signals > signals_max)
        refuse("Window: signals {}: expected 0 to {}", options.signals, signals_max);
    const ConstTensorView wanted(&group, shape, dtype);  // checks the shape, and counts
    if (wanted.byte_count() > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max() / 2))
        refuse("Window: shape {}: expected a window that fits in memory", shape.to_string());
    const Deadline deadline = Deadline::after(limit_of(*group, options.timeout));
    const Terms own{static_cast<int>(dtype), {shape.begin(), shape.end()}, options.signals};
    check_terms(*group, own, all_gather_object(own, {.group = ProcessGroup(group), .timeout = deadline.timeout()}));
    auto memory = std::make_shared<const window::Memory>(*group, dtype, std::move(shape), options.signals, deadline);
    state_ = std::make_shared<WindowState>(group, std::move(memory), group->next_window());
}

WindowState& Window::checked(const char* method) const {
    if (!state_) [[unlikely]]
        refuse("{}: this Window is empty: expected one that was made with a dtype and a shape", method);
    if (state_->is_closed()) [[unlikely]]
        refuse("{}: the window in group \"{}\" is closed", method, state_->group().name());
    api::refuse_if_recorded(method);
    return *state_;
}

DType Window::dtype() const {
    return checked("Window.dtype").memory().dtype();
}
const Extents& Window::shape() const {
    return checked("Window.shape").memory().shape();
}
std::int64_t Window::element_count() const {
    return checked("Window.element_count").memory().element_count();
}
int Window::signal_count() const {
    return checked("Window.signal_count").memory().signal_count();
}
ProcessGroup Window::group() const {
    return ProcessGroup(checked("Window.group").shared_group());
}

Tensor Window::local() const {
    const WindowState& state = checked("Window.local");
    return state.memory().tensor(state.group().rank());
}

bool Window::is_mapped(int rank) const {
    const WindowState& state = checked("Window.is_mapped");
    check_target("Window.is_mapped", state, rank);
    return state.memory().is_mapped(rank);
}

Tensor Window::map_remote(int rank) const {
    const WindowState& state = checked("Window.map_remote");
    check_target("Window.map_remote", state, rank);
    if (!state.memory().is_mapped(rank)) {
        refuse(
            "Window.map_remote: rank {} shares no memory with rank {} (it is on another host, or their group talks "
            "over TCP): expected a rank of this host; get() reads the others'",
            rank, state.group().rank());
    }
    return state.memory().tensor(rank);
}

void Window::put(ConstTensorView source, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.put");
    const record::PublicCall public_call("Window.put");
    wait_for(put_to({"Window.put", state, source, target, access.offset, access.timeout}));
}

void Window::get(TensorView destination, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.get");
    const record::PublicCall public_call("Window.get");
    wait_for(get_from({"Window.get", state, destination, target, access.offset, access.timeout}, destination));
}

void Window::put_signal(ConstTensorView source, int target, const WindowSignalAccess& access) const {
    WindowState& state = checked("Window.put_signal");
    const record::PublicCall public_call("Window.put_signal");
    wait_for(put_to(signalled("Window.put_signal", state, source, target, access)));
}

Work Window::iput(ConstTensorView source, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.iput");
    const record::PublicCall public_call("Window.iput");
    auto operation = put_to({"Window.iput", state, source, target, access.offset, access.timeout});
    return operation ? Work(std::move(operation)) : over("Window.iput");
}

Work Window::iget(TensorView destination, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.iget");
    const record::PublicCall public_call("Window.iget");
    auto operation = get_from({"Window.iget", state, destination, target, access.offset, access.timeout}, destination);
    return operation ? Work(std::move(operation)) : over("Window.iget", {destination});
}

Work Window::iput_signal(ConstTensorView source, int target, const WindowSignalAccess& access) const {
    WindowState& state = checked("Window.iput_signal");
    const record::PublicCall public_call("Window.iput_signal");
    auto operation = put_to(signalled("Window.iput_signal", state, source, target, access));
    return operation ? Work(std::move(operation)) : over("Window.iput_signal");
}

void Window::signal(int target, int signal, std::uint64_t value) const {
    WindowState& state = checked("Window.signal");
    check_signal("Window.signal", state, signal);
    const record::PublicCall public_call("Window.signal");
    const TensorView nothing(nullptr, Extents::of(0), state.memory().dtype());
    put_to({"Window.signal", state, nothing, target, 0, milliseconds(0), {signal, value}});
}

void Window::wait_signal(int signal, std::uint64_t at_least, milliseconds timeout) const {
    WindowState& state = checked("Window.wait_signal");
    check_signal("Window.wait_signal", state, signal);
    api::check_timeout("Window.wait_signal", timeout);
    state.memory().check_overflow("Window.wait_signal", signal);
    if (state.memory().value_of(state.group().rank(), signal) >= at_least) return;
    const record::PublicCall public_call("Window.wait_signal");
    window::wait_for(state.group(), state.memory(), {signal, at_least},
                     Deadline::after(limit_of(state.group(), timeout)));
}

std::uint64_t Window::read_signal(int signal) const {
    const WindowState& state = checked("Window.read_signal");
    check_signal("Window.read_signal", state, signal);
    window::take_what_has_come(state.group());
    state.memory().check_overflow("Window.read_signal", signal);
    return state.memory().value_of(state.group().rank(), signal);
}

void Window::flush(int target, milliseconds timeout) const {
    WindowState& state = checked("Window.flush");
    check_target("Window.flush", state, target);
    const record::PublicCall public_call("Window.flush");
    const Deadline deadline = deadline_of("Window.flush", state, timeout);
    check_kept("Window.flush", state, target);
    if (!state.memory().is_mapped(target)) wait_for(state.remote().flush(target, deadline.timeout()));
}

void Window::flush(milliseconds timeout) const {
    WindowState& state = checked("Window.flush");
    const record::PublicCall public_call("Window.flush");
    flush_all("Window.flush", state, deadline_of("Window.flush", state, timeout));
}

void Window::fence(milliseconds timeout) const {
    WindowState& state = checked("Window.fence");
    const record::PublicCall public_call("Window.fence");
    fence_by("Window.fence", state, deadline_of("Window.fence", state, timeout));
}

void Window::close(milliseconds timeout) const {
    if (!state_ || state_->is_closed()) return;
    api::refuse_if_recorded("Window.close");
    const record::PublicCall public_call("Window.close");
    api::check_timeout("Window.close", timeout);
    const std::shared_ptr<WindowState> state = state_;
    try {
        fence_by("Window.close", *state, deadline_of("Window.close", *state, timeout));
    } catch (...) {
        state->close(WindowState::End::by_this_rank_alone);
        throw;
    }
    state->close(WindowState::End::by_all);
}

}  // namespace tutti
