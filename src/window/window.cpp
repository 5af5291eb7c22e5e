// The public functions.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "object/codec.hpp"
#include "record/public_call.hpp"
#include "window/access.hpp"
#include "window/atomics.hpp"
#include "window/signals.hpp"
#include "window/state.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>
#include <tutti/window.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using api::refuse;
using detail::Group;
using detail::Operation;
using detail::WindowState;
using std::chrono::milliseconds;
using window::check_kept;
using window::check_signal;
using window::check_target;
using window::check_tensor;

constexpr int signals_max = 65536;

/// What all ranks have to agree on, but for the first dimension.
struct Terms {
    int dtype = 0;
    std::vector<std::int64_t> shape;
    int signals = 0;

    bool fits(const Terms& other) const {
        return dtype == other.dtype && signals == other.signals && shape.size() == other.shape.size() &&
               std::ranges::equal(std::span(shape).subspan(shape.empty() ? 0 : 1),
                                  std::span(other.shape).subspan(shape.empty() ? 0 : 1));
    }
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
    TUTTI_ASSERT(all[static_cast<std::size_t>(group.rank())].fits(own));
    const auto& ranks = group.ranks();
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].fits(all[0])) continue;
        const bool mine = static_cast<int>(rank) == group.rank();
        const int peer = ranks.global(static_cast<int>(rank));
        throw CollectiveMismatch(
            fmt::format(
                "Window in group \"{}\" ({} ranks): rank {} makes {}, but rank {} makes {}: expected the same on "
                "all ranks, but for the first dimension",
                group.name(), group.size(), ranks.global(0), all[0].to_string(), peer,
                (mine ? own : all[rank]).to_string()),
            {.operation = "Window", .group = group.name(), .rank = ranks.own_global(), .peer = peer});
    }
}

/// The Work of an operation; null: it was over when it began.
Work work_of(const char* name, std::shared_ptr<Operation> operation, std::vector<TensorView> outputs = {}) {
    if (operation) return Work(std::move(operation));
    operation = std::make_shared<Operation>();
    operation->name = name;
    operation->is_collective = false;
    operation->outputs = std::move(outputs);
    operation->complete_unseen();
    return Work(std::move(operation));
}

/// The address of one element of `dtype` at the target, if this rank maps it and nothing speaks against it; else null,
/// and the ordinary way says what does.
std::byte* element_at_once(const WindowState& state, DType dtype, int target, const WindowAccess& access) {
    const window::Memory& memory = state.memory();
    const bool fits = target >= 0 && target < state.group().size() && dtype == memory.dtype() && access.offset >= 0 &&
                      access.offset < memory.element_count(target) && access.timeout.count() >= 0;
    if (!fits || !memory.is_mapped(target) || memory.was_let_go_by(target) ||
        !state.group().world().flight().looks_sound())
        return nullptr;
    return memory.elements(target) + static_cast<std::size_t>(access.offset) * size_of(dtype);
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
    const std::vector<Terms> all =
        all_gather_object(own, {.group = ProcessGroup(group), .timeout = deadline.timeout()});
    check_terms(*group, own, all);
    std::vector<Extents> shapes;
    for (const Terms& each : all) shapes.emplace_back(each.shape);
    auto memory = std::make_shared<const window::Memory>(*group, dtype, std::move(shapes), options.signals, deadline);
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
    const WindowState& state = checked("Window.shape");
    return state.memory().shape(state.group().rank());
}
const Extents& Window::shape(int rank) const {
    const WindowState& state = checked("Window.shape");
    check_target("Window.shape", state, rank);
    return state.memory().shape(rank);
}
std::int64_t Window::element_count() const {
    const WindowState& state = checked("Window.element_count");
    return state.memory().element_count(state.group().rank());
}
std::int64_t Window::element_count(int rank) const {
    const WindowState& state = checked("Window.element_count");
    check_target("Window.element_count", state, rank);
    return state.memory().element_count(rank);
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
    wait_for(window::put_to({"Window.put", state, source, target, access.offset, access.timeout}));
}

void Window::get(TensorView destination, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.get");
    const record::PublicCall public_call("Window.get");
    wait_for(window::get_from({"Window.get", state, destination, target, access.offset, access.timeout}, destination));
}

void Window::put_signal(ConstTensorView source, int target, const WindowSignalAccess& access) const {
    WindowState& state = checked("Window.put_signal");
    const record::PublicCall public_call("Window.put_signal");
    wait_for(window::put_signal_to("Window.put_signal", state, source, target, access));
}

Work Window::iput(ConstTensorView source, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.iput");
    const record::PublicCall public_call("Window.iput");
    return work_of("Window.iput",
                   window::put_to({"Window.iput", state, source, target, access.offset, access.timeout}));
}

Work Window::iget(TensorView destination, int target, const WindowAccess& access) const {
    WindowState& state = checked("Window.iget");
    const record::PublicCall public_call("Window.iget");
    return work_of(
        "Window.iget",
        window::get_from({"Window.iget", state, destination, target, access.offset, access.timeout}, destination),
        {destination});
}

Work Window::iput_signal(ConstTensorView source, int target, const WindowSignalAccess& access) const {
    WindowState& state = checked("Window.iput_signal");
    const record::PublicCall public_call("Window.iput_signal");
    return work_of("Window.iput_signal", window::put_signal_to("Window.iput_signal", state, source, target, access));
}

void Window::accumulate(ConstTensorView source, int target, AccumulateOp op, const WindowAccess& access) const {
    WindowState& state = checked("Window.accumulate");
    const record::PublicCall public_call("Window.accumulate");
    wait_for(window::accumulate_to({"Window.accumulate", state, source, target, access.offset, access.timeout}, op));
}

Work Window::iaccumulate(ConstTensorView source, int target, AccumulateOp op, const WindowAccess& access) const {
    WindowState& state = checked("Window.iaccumulate");
    const record::PublicCall public_call("Window.iaccumulate");
    return work_of(
        "Window.iaccumulate",
        window::accumulate_to({"Window.iaccumulate", state, source, target, access.offset, access.timeout}, op));
}

void Window::get_accumulate(ConstTensorView source, TensorView before, int target, AccumulateOp op,
                            const WindowAccess& access) const {
    WindowState& state = checked("Window.get_accumulate");
    const record::PublicCall public_call("Window.get_accumulate");
    wait_for(window::get_accumulate_from(
        {"Window.get_accumulate", state, before, target, access.offset, access.timeout}, source, before, op));
}

Work Window::iget_accumulate(ConstTensorView source, TensorView before, int target, AccumulateOp op,
                             const WindowAccess& access) const {
    WindowState& state = checked("Window.iget_accumulate");
    const record::PublicCall public_call("Window.iget_accumulate");
    return work_of(
        "Window.iget_accumulate",
        window::get_accumulate_from({"Window.iget_accumulate", state, before, target, access.offset, access.timeout},
                                    source, before, op),
        {before});
}

Work Window::icompare_and_swap(ConstTensorView expected, ConstTensorView desired, TensorView before, int target,
                               const WindowAccess& access) const {
    constexpr const char* name = "Window.icompare_and_swap";
    WindowState& state = checked(name);
    const record::PublicCall public_call(name);
    for (const ConstTensorView& one : {expected, desired, ConstTensorView(before)}) {
        check_tensor(name, one, state.memory().dtype());
        if (one.element_count() != 1) refuse("{}: tensor {}: expected one element", name, one.to_string());
    }
    return work_of(name,
                   window::compare_and_swap_at({name, state, before, target, access.offset, access.timeout},
                                               expected.data(), desired.data(), before),
                   {before});
}

void Window::fetch_one(const char* name, DType dtype, const void* value, void* before, int target, AccumulateOp op,
                       const WindowAccess& access) const {
    WindowState& state = checked(name);
    const record::PublicCall public_call(name);
    if (std::byte* const element = element_at_once(state, dtype, target, access)) [[likely]] {
        if (window::add_at_once(op, dtype, element, value, before)) return;
        if (window::has_one_value(dtype) && window::is_supported(op, dtype))
            return window::update(op, dtype, element, value, before, 1);
    }
    if (!window::has_one_value(dtype))
        refuse("{}: the value is {}: expected a type of at most 8 bytes; get_accumulate takes others", name,
               to_string(dtype));
    const ConstTensorView source(value, Extents::of(value == nullptr ? 0 : 1), dtype);
    const TensorView old(before, Extents::of(1), dtype);
    wait_for(window::get_accumulate_from({name, state, old, target, access.offset, access.timeout}, source, old, op));
}

void Window::compare_one(const char* name, DType dtype, const Swap& swap, int target,
                         const WindowAccess& access) const {
    WindowState& state = checked(name);
    const record::PublicCall public_call(name);
    if (window::has_one_value(dtype)) [[likely]] {
        if (std::byte* const element = element_at_once(state, dtype, target, access))
            return window::compare_and_swap(dtype, element, swap.expected, swap.desired, swap.before);
    }
    const TensorView old(swap.before, Extents::of(1), dtype);
    wait_for(window::compare_and_swap_at({name, state, old, target, access.offset, access.timeout}, swap.expected,
                                         swap.desired, old));
}

void Window::signal(int target, int signal, std::uint64_t value) const {
    WindowState& state = checked("Window.signal");
    check_signal("Window.signal", state, signal);
    const record::PublicCall public_call("Window.signal");
    const TensorView nothing(nullptr, Extents::of(0), state.memory().dtype());
    window::put_to({"Window.signal", state, nothing, target, 0, milliseconds(0)}, {signal, value});
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
