#include "shared/messages.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstring>

namespace tutti::backends {
namespace {

// Up to this size a message goes eagerly: it is worth a copy at a receiver that does not wait for it.
constexpr std::uint64_t eager_bytes_max = 64 << 10;

void copy(void* to, const void* from, std::uint64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Messages::Messages(std::string name, int rank, std::shared_ptr<Carrier> carrier)
    : name_(std::move(name)), rank_(rank), carrier_(std::move(carrier)) {}

void Messages::start() {
    carrier_->start(shared_from_this());
}

std::exception_ptr Messages::mismatch(std::uint64_t sent, std::uint64_t expected, int from, int to) const {
    return std::make_exception_ptr(CollectiveMismatch(name_ + ": rank " + std::to_string(from) + " gave " +
                                                      std::to_string(sent) + " bytes where rank " + std::to_string(to) +
                                                      " expects " + std::to_string(expected)));
}

void Messages::send(int to, Label label, const void* data, std::uint64_t bytes, Done done) {
    if (to == rank_) return send_here(label, data, bytes, std::move(done));
    Frame frame{.channel = label.channel, .tag = label.tag, .bytes = bytes};
    const bool eager = bytes <= eager_bytes_max;
    {
        std::unique_lock lock(mutex_);
        if (ended_) {
            lock.unlock();
            return done(-1, ended_);
        }
        frame.number = ++numbers_;
        if (!eager) outgoing_[frame.number] = {to, frame, data, std::move(done)};
    }
    if (eager) return carrier_->send(to, frame, data, [done](const std::exception_ptr& error) { done(-1, error); });
    frame.kind = Frame::Kind::announce;
    carrier_->send(to, frame, nullptr, [self = shared_from_this(), number = frame.number](const auto& error) {
        if (!error) return;
        std::unique_lock lock(self->mutex_);
        auto node = self->outgoing_.extract(number);
        lock.unlock();
        if (node) node.mapped().done(-1, error);
    });
}

// A rank sends to itself with a copy of any length: no other thread would receive meanwhile.
void Messages::send_here(Label label, const void* data, std::uint64_t bytes, Done done) {
    const Frame frame{.channel = label.channel, .tag = label.tag, .bytes = bytes};
    const auto* begin = static_cast<const char*>(data);
    Waiting waiting{rank_, frame, {begin, begin + bytes}};
    std::unique_lock lock(mutex_);
    if (ended_) {
        lock.unlock();
        return done(-1, ended_);
    }
    std::optional<Posted> posted = take_posted(rank_, frame);
    if (!posted) lines_[label].waiting.push_back(std::move(waiting));
    lock.unlock();
    if (posted) deliver(std::move(*posted), std::move(waiting));
    done(-1, nullptr);
}

void Messages::receive(int from, Label label, void* data, std::uint64_t bytes, Done done) {
    std::unique_lock lock(mutex_);
    if (ended_) {
        lock.unlock();
        return done(-1, ended_);
    }
    Posted posted{from, label, data, bytes, std::move(done)};
    Line& line = lines_[label];
    const auto found = std::ranges::find_if(line.waiting, [&](const Waiting& w) { return from < 0 || w.from == from; });
    if (found == line.waiting.end()) {
        line.posted.push_back(std::move(posted));
        ++posted_;
        lock.unlock();
        return carrier_->hurry();
    }
    Waiting waiting = std::move(*found);
    line.waiting.erase(found);
    tidy(label);
    lock.unlock();
    if (waiting.frame.kind == Frame::Kind::announce) return accept(std::move(posted), waiting.from, waiting.frame);
    deliver(std::move(posted), std::move(waiting));
}

void Messages::deliver(Posted posted, Waiting waiting) {
    if (waiting.frame.bytes != posted.bytes)
        return posted.done(-1, mismatch(waiting.frame.bytes, posted.bytes, waiting.from, rank_));
    copy(posted.data, waiting.payload.data(), posted.bytes);
    posted.done(waiting.from, nullptr);
}

// Tells the sender to send a long message.
void Messages::accept(Posted posted, int from, const Frame& frame) {
    if (frame.bytes != posted.bytes) return refuse(posted, from, frame);
    Frame answer = frame;
    answer.kind = Frame::Kind::clear;
    {
        std::unique_lock lock(mutex_);
        if (ended_) {
            lock.unlock();
            return posted.done(-1, ended_);
        }
        cleared_[{from, frame.number}] = std::move(posted);
    }
    carrier_->send(from, answer, nullptr,
                   [self = shared_from_this(), key = std::pair(from, frame.number)](const auto& error) {
                       if (!error) return;
                       std::unique_lock lock(self->mutex_);
                       auto node = self->cleared_.extract(key);
                       lock.unlock();
                       if (node) node.mapped().done(-1, error);
                   });
}

void Messages::refuse(const Posted& posted, int from, const Frame& frame) {
    Frame answer = frame;
    answer.kind = Frame::Kind::refuse;
    answer.bytes = posted.bytes;
    carrier_->send(from, answer, nullptr, [](const auto&) {});
    posted.done(-1, mismatch(frame.bytes, posted.bytes, from, rank_));
}

std::optional<Messages::Posted> Messages::take_posted(int from, const Frame& frame) {
    const Label label{frame.channel, frame.tag};
    const auto line = lines_.find(label);
    if (line == lines_.end()) return {};
    auto& list = line->second.posted;
    const auto found = std::ranges::find_if(list, [&](const Posted& p) { return p.from < 0 || p.from == from; });
    if (found == list.end()) return {};
    std::optional<Posted> posted = std::move(*found);
    list.erase(found);
    --posted_;
    tidy(label);
    return posted;
}

void Messages::tidy(Label label) {
    const auto line = lines_.find(label);
    if (line != lines_.end() && line->second.posted.empty() && line->second.waiting.empty()) lines_.erase(line);
}

void* Messages::place(int from, const Frame& frame) {
    const std::lock_guard lock(mutex_);
    if (frame.kind == Frame::Kind::data) {
        if (auto node = cleared_.extract({from, frame.number})) landing_ = std::move(node.mapped());
    } else {
        landing_ = take_posted(from, frame);
    }
    if (landing_ && landing_->bytes == frame.bytes) return landing_->data;
    landing_aside_.resize(frame.bytes);
    return landing_aside_.data();
}

void Messages::arrived(int from, const Frame& frame) {
    if (frame.kind == Frame::Kind::clear || frame.kind == Frame::Kind::refuse) return sender_learns(from, frame);
    std::unique_lock lock(mutex_);
    std::optional<Posted> posted = std::exchange(landing_, {});
    std::vector<char> aside = std::exchange(landing_aside_, {});
    if (frame.kind == Frame::Kind::data) {
        lock.unlock();
        if (posted) posted->done(from, nullptr);
        return;
    }
    const bool landed = posted && posted->bytes == frame.bytes && frame.has_payload();
    if (!posted) posted = take_posted(from, frame);
    if (!posted) {
        lines_[{frame.channel, frame.tag}].waiting.push_back({from, frame, std::move(aside)});
        return;
    }
    lock.unlock();
    if (landed) return posted->done(from, nullptr);
    if (frame.kind == Frame::Kind::announce) return accept(std::move(*posted), from, frame);
    deliver(std::move(*posted), {from, frame, std::move(aside)});
}

bool Messages::awaits() const {
    const std::lock_guard lock(mutex_);
    return posted_ > 0 || !outgoing_.empty() || !cleared_.empty();
}

void Messages::lost(const std::exception_ptr& error) {
    std::unique_lock lock(mutex_);
    std::optional<Posted> posted = std::exchange(landing_, {});
    landing_aside_.clear();
    lock.unlock();
    if (posted) posted->done(-1, error);
}

void Messages::sender_learns(int from, const Frame& frame) {
    std::unique_lock lock(mutex_);
    auto node = outgoing_.extract(frame.number);
    lock.unlock();
    if (!node) return;  // the send has been given up meanwhile
    if (frame.kind == Frame::Kind::clear) return release(std::move(node.mapped()));
    node.mapped().done(-1, mismatch(node.mapped().frame.bytes, frame.bytes, rank_, from));
}

void Messages::release(Outgoing outgoing) {
    outgoing.frame.kind = Frame::Kind::data;
    carrier_->send(outgoing.to, outgoing.frame, outgoing.data,
                   [done = std::move(outgoing.done)](const std::exception_ptr& error) { done(-1, error); });
}

void Messages::cancel(std::uint64_t channel, const std::exception_ptr& error) {
    std::vector<Done> over;
    {
        const std::lock_guard lock(mutex_);
        for (auto line = lines_.lower_bound({channel, 0}); line != lines_.end() && line->first.channel == channel;) {
            for (Posted& posted : line->second.posted) over.push_back(std::move(posted.done));
            posted_ -= line->second.posted.size();
            line = lines_.erase(line);
        }
        for (auto it = outgoing_.begin(); it != outgoing_.end();) {
            const auto current = it++;
            if (current->second.frame.channel != channel) continue;
            over.push_back(std::move(current->second.done));
            outgoing_.erase(current);
        }
    }
    for (const Done& done : over) done(-1, error);
}

void Messages::end(const std::exception_ptr& error, Carrier::How how) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!ended_) ended_ = error;
    }
    carrier_->stop(how);
    std::vector<Done> over;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [label, line] : lines_) {
            for (Posted& posted : line.posted) over.push_back(std::move(posted.done));
        }
        for (auto& [number, outgoing] : outgoing_) over.push_back(std::move(outgoing.done));
        for (auto& [key, posted] : cleared_) over.push_back(std::move(posted.done));
        if (landing_) over.push_back(std::move(landing_->done));
        lines_.clear();
        posted_ = 0;
        outgoing_.clear();
        cleared_.clear();
        landing_.reset();
    }
    for (const Done& done : over) done(-1, error);
}

}  // namespace tutti::backends
