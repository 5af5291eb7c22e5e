#include "launch/output.hpp"

#include "core/assert.hpp"
#include "launch/logs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;

// A rank may write the beginning of a long line and then wait for another, which waits to write.
constexpr std::chrono::seconds long_line_patience{5};
constexpr std::chrono::milliseconds between_looks{500};

// Passes a question on before its line ends where a terminal shows it, or where the user answers at one.
Lines::Style style_of(const Task& task, int fd) {
    if (task.prefix.empty()) return Lines::Style::unchanged;
    const bool is_read_now = ::isatty(fd) != 0 || task.input == Task::Input::terminal;
    return is_read_now ? Lines::Style::prefixed_now : Lines::Style::prefixed;
}

UniqueFd log_at(const std::string& path) {
    return path.empty() ? UniqueFd() : make_log(path);
}

bool is_readable(const UniqueFd& pipe) {
    pollfd polled{pipe.get(), POLLIN, 0};
    return pipe && ::poll(&polled, 1, 0) == 1;
}

}  // namespace

std::string Output::Failure::text() const {
    return fmt::format("standard {} cannot be written: {}", fd == 1 ? "output" : "error", error.message());
}

Output::Member::Member(const Task& task, std::array<Unfinished, 2>& places, const Patience& patience)
    : streams{Stream{1,
                     {style_of(task, 1), task.prefix, task.shows_out ? 1 : -1, tail, places[0], patience},
                     task.name,
                     task.out_log,
                     log_at(task.out_log)},
              Stream{2,
                     {style_of(task, 2), task.prefix, task.shows_err ? 2 : -1, tail, places[is_one_file(1, 2) ? 0 : 1],
                      patience},
                     task.name,
                     task.err_log,
                     log_at(task.err_log)}} {}

Output::Output(Patience patience) : patience_(std::move(patience)) {
    TUTTI_ASSERT(patience_ != nullptr);
}

void Output::add(const Task& task) {
    members_.emplace_back(task, unfinished_, patience_);
}

void Output::attach(Child& child) {
    TUTTI_ASSERT(!members_.empty() && child.out && child.err);
    TUTTI_ASSERT(!members_.back().streams[0].pipe);
    members_.back().streams[0].pipe = std::move(child.out);
    members_.back().streams[1].pipe = std::move(child.err);
}

void Output::rename(std::size_t process, const std::string& name, const std::string& prefix) {
    TUTTI_ASSERT(process < members_.size());
    for (Stream& stream : members_[process].streams) {
        stream.name = name;
        stream.lines.set_prefix(prefix);
    }
}

std::vector<Output::Stream*> Output::streams() {
    std::vector<Stream*> all;
    for (Member& member : members_) {
        for (Stream& stream : member.streams) all.push_back(&stream);
    }
    TUTTI_ASSERT(all.size() == 2 * members_.size());
    return all;
}

// What others write waits in their pipes while a long line is passed on.
void Output::ask(std::vector<pollfd>& polled) {
    for (const Stream* stream : streams()) {
        const bool waits = !stream->pipe || stream->lines.must_wait();
        polled.push_back({waits ? -1 : stream->pipe.get(), POLLIN, 0});
    }
}

void Output::take(const std::vector<pollfd>& polled, std::size_t first) {
    TUTTI_ASSERT(first + 2 * members_.size() == polled.size());
    for (Stream* stream : streams()) {
        const pollfd& asked = polled[first++];
        if (asked.revents != 0 && !stream->lines.must_wait()) pass_on(*stream);
    }
    let_long_line_go();
    pass_beginnings();
}

void Output::pass_on(Stream& stream) {
    static std::array<char, 1 << 16> buffer;
    for (int turn = 0; stream.pipe && turn < 16; ++turn) {  // no stream is served for ever
        const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
        if (got > 0) {
            const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
            TUTTI_ASSERT(text.size() <= buffer.size());
            write_log(stream, text);
            note(stream, stream.lines.add(text));
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            note(stream, stream.lines.finish());
            stream.pipe.reset();
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void Output::write_log(Stream& stream, std::string_view text) {
    if (!stream.log) return;
    const std::error_code error = write_all(stream.log.get(), text, [] { return true; });
    if (!error) return;
    stream.log.reset();
    say(fmt::format("tutti run: {} ends here, incomplete: {}\n", stream.log_path, error.message()), patience_);
}

// Passes on beginnings without an end of line, which may be questions.
void Output::pass_beginnings() {
    const auto now = Clock::now();
    for (Stream* stream : streams()) {
        if (const auto due = stream->lines.due(); due && now >= *due) note(*stream, stream->lines.pass_beginning());
    }
}

void Output::let_long_line_go() {
    const auto now = Clock::now();
    for (Unfinished& place : unfinished_) {
        if (!place.held || now < place.held_since + long_line_patience) continue;
        const auto all = streams();
        const bool others_wait = std::ranges::any_of(
            all, [](const Stream* stream) { return stream->lines.must_wait() && is_readable(stream->pipe); });
        if (!others_wait) continue;
        const auto stream = std::ranges::find_if(all, [&](const Stream* s) { return &s->lines == place.line; });
        TUTTI_ASSERT(stream != all.end());
        place.line->let_go();
        say(fmt::format("tutti run: a line of {} has more than 1 MiB and has not ended in {} s: what others have "
                        "written meanwhile comes in its middle\n",
                        (*stream)->name, long_line_patience.count()),
            patience_);
    }
}

std::optional<Output::Moment> Output::due() {
    std::optional<Moment> next;
    const auto add = [&](Moment moment) { next = next ? std::min(*next, moment) : moment; };
    for (const Stream* stream : streams()) {
        if (const auto due = stream->lines.due()) add(*due);
    }
    for (const Unfinished& place : unfinished_) {
        if (place.held) add(std::max(place.held_since + long_line_patience, Clock::now() + between_looks));
    }
    return next;
}

// A long line first, for whose end others wait.
void Output::pass_rest_on() {
    auto all = streams();
    std::ranges::stable_partition(all, [](const Stream* stream) { return stream->lines.holds(); });
    for (Stream* stream : all) {
        pass_on(*stream);
        if (stream->pipe) note(*stream, stream->lines.finish());
    }
}

void Output::line_was_ended() {
    for (const Unfinished& one : unfinished_) {
        if (one.line != nullptr) one.line->line_was_ended();
    }
}

void Output::note(const Stream& stream, const std::error_code& error) {
    if (error && error != std::errc::operation_canceled && !failure_) failure_ = Failure{error, stream.fd};
}

}  // namespace tutti::launch
