#include "recorder.hpp"

#include <c10/util/thread_name.h>

#include <pthread.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tutti::torch {
namespace {

std::size_t capacity_from_environment() {
    for (const char* name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
        const char* text = std::getenv(name);
        if (!text) continue;
        std::size_t number = 0;
        const std::string_view digits(text);
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
        return number;
    }
    return 0;
}

std::vector<Recorder::Shape> shapes_of(const Tensors& tensors) {
    std::vector<Recorder::Shape> shapes;
    shapes.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) shapes.push_back({tensor.scalar_type(), tensor.sizes().vec()});
    return shapes;
}

std::string text_of_ranks(const std::vector<std::uint64_t>& ranks) {
    std::string text = "[";
    for (const std::uint64_t rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
    return text + "]";
}

}  // namespace

void Recorder::prepare() {
    static const bool set = capacity_from_environment() > 0;
    on_ = set;
}

Recorder& Recorder::get() {
    static Recorder& recorder = *new Recorder(capacity_from_environment());  // tracebacks may outlive the interpreter
    return recorder;
}

std::size_t Recorder::add_group() {
    const std::lock_guard lock(mutex_);
    const std::size_t number = groups_.size();
    groups_[number];
    return number;
}

void Recorder::name_group(std::size_t number, const GroupName& name, const std::vector<std::uint64_t>& ranks) {
    const std::lock_guard lock(mutex_);
    groups_[number].name = name;
    groups_[number].ranks = text_of_ranks(ranks);
}

std::uint64_t Recorder::begin(const Facts& facts, const Tensors& inputs, const std::vector<Tensors>& outputs) {
    Entry entry{facts};
    entry.traceback = ::torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false);
    entry.created_ns = c10::getTime();
    entry.thread_id = static_cast<std::uint64_t>(::pthread_self());
    entry.thread_name = c10::getThreadName();
    entry.inputs = shapes_of(inputs);
    for (const Tensors& list : outputs) {
        for (Shape& shape : shapes_of(list)) entry.outputs.push_back(std::move(shape));
    }
    std::optional<Entry> oldest;  // its traceback's destructor takes the GIL, so it must not run under the lock
    const std::lock_guard lock(mutex_);
    Group& group = groups_[facts.group];
    if (facts.is_message && facts.peer >= 0) number(entry);
    if (!facts.is_message) group.last_enqueued = static_cast<std::int64_t>(facts.sequence);
    entry.id = next_id_++;
    if (entries_.size() >= capacity_) {
        oldest = std::move(entries_.front());
        entries_.pop_front();
    }
    entries_.push_back(std::move(entry));
    return entries_.back().id;
}

void Recorder::number(Entry& entry) {
    entry.number = ++messages_[{.group = entry.group, .peer = entry.peer, .sends = entry.title == "send"}];
}

void Recorder::end(std::uint64_t id, End how, int source) {
    const std::lock_guard lock(mutex_);
    if (entries_.empty() || id < entries_.front().id) return;  // forgotten
    Entry& entry = entries_[id - entries_.front().id];
    entry.over = true;
    if (how == End::failed) return;
    entry.completed_ns = c10::getTime();
    if (entry.is_message && entry.peer < 0 && source >= 0) {
        entry.peer = source;
        number(entry);
    }
    Group& group = groups_[entry.group];
    if (!entry.is_message) {
        group.last_completed = std::max(group.last_completed, static_cast<std::int64_t>(entry.sequence));
    }
}

std::vector<Recorder::Entry> Recorder::entries() {
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
}

std::map<std::size_t, Recorder::Group> Recorder::groups() {
    const std::lock_guard lock(mutex_);
    return groups_;
}

}  // namespace tutti::torch
