#include "window/remote.hpp"

#include "group/channel.hpp"

#include <tutti/error.hpp>
#include <tutti/tensor.hpp>

#include <fmt/format.h>

#include <cstring>

namespace tutti::window {

std::shared_ptr<Operation> Remote::put(const char* name, int target, std::uint64_t offset,
                                       std::span<const std::byte> source, Raise raise,
                                       std::chrono::milliseconds timeout) {
    Request request{.kind = Request::Kind::put,
                    .signal = static_cast<std::uint32_t>(raise.signal),
                    .value = raise.value,
                    .offset = offset,
                    .bytes = source.size()};
    if (request.is_whole() && !source.empty()) std::memcpy(request.payload.data(), source.data(), source.size());
    auto last = messages_.send(name, target, request, timeout);
    const std::lock_guard lock(mutex_);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(last, true);
    if (request.is_whole()) return last;
    last = messages_.send(name, target, WindowMessage::payload, source, timeout);
    messages_.group().submit(last, true);
    return last;
}

std::shared_ptr<Operation> Remote::get(const char* name, int target, std::uint64_t offset,
                                       std::span<std::byte> destination, std::chrono::milliseconds timeout) {
    const Request request{.kind = Request::Kind::get, .offset = offset, .bytes = destination.size()};
    auto answer = messages_.receive(name, target, WindowMessage::answer, destination, timeout);
    const std::lock_guard lock(mutex_);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(answer, true);
    messages_.group().submit(messages_.send(name, target, request, timeout), true);
    return answer;
}

std::shared_ptr<Operation> Remote::flush(int target, std::chrono::milliseconds timeout) {
    constexpr const char* name = "Window.flush";
    const std::lock_guard lock(mutex_);
    check(name, target);
    if (!unflushed_[static_cast<std::size_t>(target)]) return nullptr;
    Tensor room = empty(uint8, Extents::of(1));
    auto answer =
        messages_.receive(name, target, WindowMessage::answer, {static_cast<std::byte*>(room.raw_data()), 1}, timeout);
    answer->temporaries.push_back(std::move(room));
    messages_.group().submit(answer, true);
    messages_.group().submit(messages_.send(name, target, {.kind = Request::Kind::flush}, timeout), true);
    unflushed_[static_cast<std::size_t>(target)] = false;
    return answer;
}

void Remote::note_let_go(int rank) {
    const std::lock_guard lock(mutex_);
    let_go_[static_cast<std::size_t>(rank)] = true;
}

bool Remote::was_let_go_by(int rank) {
    const std::lock_guard lock(mutex_);
    return let_go_[static_cast<std::size_t>(rank)];
}

void Remote::check(const char* name, int target) const {
    if (let_go_[static_cast<std::size_t>(target)]) refuse(name, target);
}

void Remote::refuse(const char* name, int owner) const {
    const Group& group = messages_.group();
    throw InvalidArgument(
        fmt::format(
            "{}: rank {} has let go of the {} without close(): expected a window that all ranks keep until they "
            "close it together",
            name, owner, title_),
        {.operation = name, .group = group.name(), .rank = group.rank(), .peer = owner});
}

}  // namespace tutti::window
