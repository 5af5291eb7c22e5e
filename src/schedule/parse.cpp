// parse(): a text of schedules, line by line, into calls of the Builder.
#include "core/suggestion.hpp"
#include "schedule/builder.hpp"
#include "schedule/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> words;
    while (true) {
        const std::size_t begin = line.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) return words;
        const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        line.remove_prefix(end);
    }
}

/// The words of one line, and what they have to be. Errors name the text, the line and what is expected.
class Line {
 public:
    Line(std::string_view where, InputIs input) : where_(where), input_(input) {}

    void next(std::string_view text) {
        words_ = words_of(text);
        next_ = 1;
        ++number_;
    }
    /// Behind the last line: errors have no words.
    void end() { words_.clear(); }
    bool empty() const { return words_.empty(); }
    std::string_view name() const { return words_.front(); }
    std::string text() const { return fmt::format("{}", fmt::join(words_, " ")); }

    [[noreturn]] void fail(std::string_view what, std::string_view expected) const {
        const std::string words = words_.empty() ? "" : fmt::format(" (\"{}\")", text());
        throw InvalidArgument(fmt::format("{}: line {}{}: {}: expected {}", where_, number_, words, what, expected));
    }

    bool more() const { return next_ < words_.size(); }
    std::string_view word(std::string_view expected) {
        if (!more()) fail("the line is too short", expected);
        return words_[next_++];
    }
    bool flag(std::string_view name) {
        const bool found = more() && words_[next_] == name;
        next_ += found ? 1 : 0;
        return found;
    }
    void end_of_line() const {
        if (more()) fail(fmt::format("\"{}\" is too much", words_[next_]), "the end of the line");
    }

    std::uint64_t number(std::uint64_t max, std::string_view what) { return to_number(word(what), max, what); }
    std::uint64_t count(std::string_view what = "count") { return number(elements_max, what); }
    std::uint32_t round() { return static_cast<std::uint32_t>(number(1U << 20U, "round")); }
    /// To the end of the line: one of each rank.
    std::vector<std::uint64_t> counts(int ranks) {
        std::vector<std::uint64_t> all;
        while (more()) all.push_back(count());
        if (all.size() != static_cast<std::size_t>(ranks))
            fail(fmt::format("there are {} numbers", all.size()), fmt::format("one of each rank: {}", ranks));
        return all;
    }
    Rank rank(int ranks) { return to_rank(word("a rank"), ranks); }

    Chunk chunk() { return to_chunk(word("a chunk")); }
    std::vector<Chunk> chunks() {
        std::vector<Chunk> all;
        while (more() && words_[next_].ends_with(']')) all.push_back(chunk());
        return all;
    }
    /// Chunks, 1@slot[0:2] or 1@input[0:2], each of as many elements as the target.
    std::vector<Operand> operands(const Chunk& target, int ranks) {
        std::vector<Operand> all;
        while (more() && words_[next_].ends_with(']')) {
            const std::string_view text = words_[next_++];
            const std::size_t at = text.find('@');
            Operand& operand = all.emplace_back();
            if (at != std::string_view::npos) operand.peer = to_rank(text.substr(0, at), ranks);
            const std::string_view what = at == std::string_view::npos ? text : text.substr(at + 1);
            if (operand.peer >= 0 && what.starts_with("slot["))
                std::tie(operand.slot_offset, operand.chunk.count) = to_range(what.substr(4));
            else
                operand.chunk = to_chunk(what);
            equal(target, operand.chunk);
        }
        if (all.empty()) fail("there is nothing to combine", "chunks, RANK@slot[BEGIN:END] or RANK@chunk");
        return all;
    }
    void equal(const Chunk& target, const Chunk& source) const {
        if (target.count != source.count)
            fail(fmt::format("{} elements from {}", target.count, source.count), "chunks of one length");
    }

 private:
    std::uint64_t to_number(std::string_view text, std::uint64_t max, std::string_view what) const {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value > max)
            fail(fmt::format("\"{}\" is no {}", text, what), fmt::format("a number from 0 to {}", max));
        return value;
    }
    Rank to_rank(std::string_view text, int ranks) const {
        if (ranks == 0) fail("a rank before the number of ranks", "a line \"ranks N\" above");
        return static_cast<Rank>(to_number(text, static_cast<std::uint64_t>(ranks - 1), "rank"));
    }
    // [2:4], as offset and count
    std::pair<std::uint64_t, std::uint64_t> to_range(std::string_view text) const {
        const std::size_t colon = text.find(':');
        if (!text.starts_with('[') || !text.ends_with(']') || colon == std::string_view::npos)
            fail(fmt::format("\"{}\" is no range", text), "[BEGIN:END]");
        const std::uint64_t begin = to_number(text.substr(1, colon - 1), elements_max, "element");
        const std::uint64_t end = to_number(text.substr(colon + 1, text.size() - colon - 2), elements_max, "element");
        if (end < begin) fail(fmt::format("{} ends before it begins", text), "[BEGIN:END] with END not below BEGIN");
        return {begin, end - begin};
    }
    // input[2:4]
    Chunk to_chunk(std::string_view text) const {
        const std::size_t open = std::min(text.find('['), text.size());
        const auto name = text.substr(0, open);
        Chunk chunk;
        if (name == "input")
            chunk.buffer = input_ == InputIs::output ? Buffer::output : Buffer::input;
        else if (name == "output")
            chunk.buffer = Buffer::output;
        else if (name == "scratch")
            chunk.buffer = Buffer::scratch;
        else
            fail(fmt::format("\"{}\" is no chunk", text), "input[BEGIN:END], output[BEGIN:END] or scratch[BEGIN:END]");
        std::tie(chunk.offset, chunk.count) = to_range(text.substr(open));
        return chunk;
    }

    std::string_view where_;
    InputIs input_;
    int number_ = 0;
    std::vector<std::string_view> words_;
    std::size_t next_ = 0;
};

/// The lines before the steps.
struct Head {
    std::string algorithm;
    bool has_collective = false;
    int ranks = 0;
    Contract contract{};
};

void read_collective(Line& line, Head& head) {
    const std::string_view name = line.word("a collective");
    if (const auto found = collective_named(name)) {
        head.contract.collective = *found;
        head.has_collective = true;
        return;
    }
    std::vector<std::string_view> names;
    for (const CollectiveTraits& traits : collective_table) names.push_back(traits.name);
    line.fail(fmt::format("\"{}\" is no collective{}", name, did_you_mean(name, names)),
              fmt::format("one of {}", fmt::join(names, ", ")));
}

void read_ranks(Line& line, Head& head) {
    head.ranks = static_cast<int>(line.number(ranks_max, "number of ranks"));
    if (head.ranks == 0) line.fail("no ranks", fmt::format("1 to {}", ranks_max));
    head.contract.host_of.assign(static_cast<std::size_t>(head.ranks), 0);
}

void read_hosts(Line& line, Head& head) {
    const auto hosts = line.counts(head.ranks);
    for (std::size_t r = 0; r < hosts.size(); ++r) {
        if (hosts[r] >= hosts.size()) line.fail("a host is no index", "the host of each rank, from 0 on");
        head.contract.host_of[r] = static_cast<int>(hosts[r]);
    }
}

void read_slots(Line& line, Head& head) {
    head.contract.slots = line.round();
    head.contract.slot_elements = line.count();
    if (head.contract.slots == 0) line.fail("no slots", "at least 1");
}

using HeadLines = std::map<std::string_view, void (*)(Line&, Head&)>;
const HeadLines& head_lines() {
    static const HeadLines lines{
        {"algorithm", [](Line& l, Head& h) { h.algorithm = l.word("a name"); }},
        {"collective", read_collective},
        {"ranks", read_ranks},
        {"root", [](Line& l, Head& h) { h.contract.root = l.rank(h.ranks); }},
        {"count", [](Line& l, Head& h) { h.contract.count = l.count(); }},
        {"counts", [](Line& l, Head& h) { h.contract.counts = l.counts(h.ranks); }},
        {"blocks", [](Line& l, Head& h) { h.contract.matrix.push_back(l.counts(h.ranks)); }},
        {"send_offsets", [](Line& l, Head& h) { h.contract.send_offsets.push_back(l.counts(h.ranks)); }},
        {"receive_offsets", [](Line& l, Head& h) { h.contract.receive_offsets.push_back(l.counts(h.ranks)); }},
        {"in_place", [](Line&, Head& h) { h.contract.in_place = true; }},
        {"single_rounding", [](Line&, Head& h) { h.contract.single_rounding = true; }},
        {"rank_order", [](Line&, Head& h) { h.contract.rank_order = true; }},
        {"hosts", read_hosts},
        {"slots", read_slots},
    };
    return lines;
}

/// A schedule whose steps are read.
struct Steps {
    int ranks = 0;
    Rank rank = 0;
    Builder builder;
    Schedule flags{};  ///< of which only these and the name count
    std::uint64_t scratch = 0;

    Rank peer(Line& line) const {
        const Rank found = line.rank(ranks);
        if (found == rank) line.fail(fmt::format("rank {} itself", found), "another rank");
        return found;
    }
};

void read_scratch(Line& line, Steps& s) {
    const std::uint64_t more = line.count();
    if (s.scratch + more > elements_max)
        line.fail("the scratch buffer is too long", fmt::format("at most {}", elements_max));
    s.scratch += s.builder.scratch(more).count;
}

void read_copy(Line& line, Steps& s) {
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    s.builder.copy(target, source, line.flag("whole") ? line.count() : 0);
}

void read_combine(Line& line, Steps& s) {
    const Chunk target = line.chunk();
    const auto sources = line.chunks();
    if (sources.empty()) line.fail("there is nothing to combine", "chunks");
    for (const Chunk& source : sources) line.equal(target, source);
    s.builder.combine(target, sources, line.flag("finish"));
}

void read_send(Line& line, Steps& s) {
    const Rank to = s.peer(line);
    const Chunk source = line.chunk();
    std::vector<std::int64_t> after;
    if (line.flag("after")) {
        while (line.more()) after.push_back(static_cast<std::int64_t>(line.count("number of a step")));
    }
    for (const std::int64_t step : after) {
        if (step > s.builder.last_step()) line.fail(fmt::format("step {} comes later", step), "an earlier step");
    }
    s.builder.send(to, source, after);
}

void read_receive_combine(Line& line, Steps& s) {
    const Rank from = s.peer(line);
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    const bool arrival_first = line.flag("arrival_first");
    s.builder.receive_combine(from, target, source, arrival_first, line.flag("finish"));
}

void read_read(Line& line, Steps& s) {
    const Rank from = s.peer(line);
    const std::uint32_t round = line.round();
    const std::uint64_t offset = line.count("element");
    s.builder.read(from, round, offset, line.chunk());
}

void read_read_combine(Line& line, Steps& s) {
    const std::uint32_t round = line.round();
    const Chunk target = line.chunk();
    const auto operands = line.operands(target, s.ranks);
    s.builder.read_combine(round, target, operands, line.flag("finish"));
}

void read_combine_in_place(Line& line, Steps& s) {
    const Rank owner = line.flag("-1") ? -1 : line.rank(s.ranks);
    const Chunk target = line.chunk();
    const auto operands = line.operands(target, s.ranks);
    const bool everywhere = line.flag("everywhere");
    s.builder.combine_in_place(owner, target, operands, everywhere, line.flag("finish"));
}

// read_in_place and write_in_place: a peer, a target and a source.
template <class Add>
void read_pair(Line& line, Steps& s, const Add& add) {
    const Rank peer = s.peer(line);
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    add(peer, target, source);
}

using StepLines = std::map<std::string_view, void (*)(Line&, Steps&)>;
const StepLines& step_lines() {
    static const StepLines lines{
        {"turn_group", [](Line&, Steps& s) { s.flags.turn_group = true; }},
        {"in_slots", [](Line&, Steps& s) { s.flags.in_slots = true; }},
        {"input_is_output", [](Line&, Steps& s) { s.flags.input_is_output = true; }},
        {"not_single_rounding", [](Line&, Steps& s) { s.flags.single_rounding = false; }},
        {"algorithm", [](Line& l, Steps& s) { s.flags.algorithm = l.word("a name"); }},
        {"scratch", read_scratch},
        {"use_rounds", [](Line& l, Steps& s) { s.builder.use_rounds(l.round()); }},
        {"copy", read_copy},
        {"combine", read_combine},
        {"send", read_send},
        {"receive",
         [](Line& l, Steps& s) {
             const Rank from = s.peer(l);
             s.builder.receive(from, l.chunk());
         }},
        {"send_signal", [](Line& l, Steps& s) { s.builder.send_signal(s.peer(l)); }},
        {"receive_signal", [](Line& l, Steps& s) { s.builder.receive_signal(s.peer(l)); }},
        {"receive_combine", read_receive_combine},
        {"meet",
         [](Line& l, Steps& s) {
             const bool maps = l.flag("maps");
             s.builder.meet(l.chunks(), maps);
         }},
        {"publish",
         [](Line& l, Steps& s) {
             const std::uint32_t round = l.round();
             s.builder.publish(round, l.chunks());
         }},
        {"publish_signal", [](Line& l, Steps& s) { s.builder.publish_signal(l.round()); }},
        {"read", read_read},
        {"read_combine", read_read_combine},
        {"release", [](Line& l, Steps& s) { s.builder.release(l.round()); }},
        {"read_in_place",
         [](Line& l, Steps& s) {
             read_pair(l, s,
                       [&](Rank peer, Chunk target, Chunk source) { s.builder.read_in_place(peer, source, target); });
         }},
        {"write_in_place",
         [](Line& l, Steps& s) {
             read_pair(l, s,
                       [&](Rank peer, Chunk target, Chunk source) { s.builder.write_in_place(peer, target, source); });
         }},
        {"combine_in_place", read_combine_in_place},
    };
    return lines;
}

/// The text as a whole: its first line, the head, and the ranks in their order.
class Parser {
 public:
    Parser(std::string_view where, InputIs input) : line_(where, input) {}

    Recipe run(std::string_view text) {
        while (!text.empty()) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            line_.next(text.substr(0, end));
            text.remove_prefix(std::min(text.size(), end + 1));
            if (!line_.empty()) read_line();
        }
        line_.end();
        end_rank();
        if (head_.ranks == 0 || recipe_.ranks.size() != static_cast<std::size_t>(head_.ranks))
            line_.fail(fmt::format("the text ends after {} ranks", recipe_.ranks.size()),
                       head_.ranks == 0 ? "a line \"ranks N\" and the steps of each" : fmt::format("{}", head_.ranks));
        check_contract();
        recipe_.contract = std::move(head_.contract);
        return std::move(recipe_);
    }

 private:
    void read_line() {
        if (!has_begun_) {
            if (line_.text() != "tutti schedule 1")
                line_.fail("this is no text of schedules", "\"tutti schedule 1\" in the first line");
            has_begun_ = true;
            return;
        }
        if (line_.name() == "rank")
            begin_rank();
        else if (!steps_)
            of_name(head_lines())(line_, head_);
        else if (line_.name() == "otherwise")
            begin_otherwise();
        else
            of_name(step_lines())(line_, *steps_);
        line_.end_of_line();
    }

    template <class Lines>
    typename Lines::mapped_type of_name(const Lines& lines) const {
        const auto found = lines.find(line_.name());
        if (found != lines.end()) return found->second;
        std::vector<std::string_view> names;
        for (const auto& [name, unused] : lines) names.push_back(name);
        line_.fail(fmt::format("\"{}\" is unknown here{}", line_.name(), did_you_mean(line_.name(), names)),
                   fmt::format("one of {}", fmt::join(names, ", ")));
    }

    void begin_rank() {
        if (head_.algorithm.empty()) line_.fail("the text has no algorithm yet", "a line \"algorithm NAME\" above");
        if (!head_.has_collective) line_.fail("the text has no collective yet", "a line \"collective NAME\" above");
        const Rank rank = line_.rank(head_.ranks);
        end_rank();
        if (rank != static_cast<Rank>(recipe_.ranks.size()))
            line_.fail("the ranks are not in order", fmt::format("rank {}", recipe_.ranks.size()));
        begin_schedule();
    }
    void begin_otherwise() {
        if (of_rank_.size() >= 3) line_.fail("too many schedules of one rank", "at most 4");
        end_schedule();
        begin_schedule();
    }
    void begin_schedule() {
        steps_.emplace(Steps{.ranks = head_.ranks,
                             .rank = static_cast<Rank>(recipe_.ranks.size()),
                             .builder = Builder(head_.algorithm)});
    }
    void end_schedule() {
        const Schedule& flags = steps_->flags;
        Schedule schedule = std::move(steps_->builder).finish();
        schedule.turn_group = flags.turn_group;
        schedule.in_slots = flags.in_slots;
        schedule.input_is_output = flags.input_is_output;
        schedule.single_rounding = flags.single_rounding;
        if (!flags.algorithm.empty()) schedule.algorithm = flags.algorithm;
        if (schedule.used_end[static_cast<std::size_t>(Buffer::scratch)] > schedule.scratch_count)
            line_.fail(fmt::format("rank {} uses more than its scratch buffer of {} elements", steps_->rank,
                                   schedule.scratch_count),
                       "a line \"scratch N\" for all of them");
        of_rank_.push_back(std::move(schedule));
        steps_.reset();
    }
    // A rank's schedules follow each other: what it runs, and what it runs otherwise.
    void end_rank() {
        if (!steps_) return;
        end_schedule();
        for (std::size_t i = of_rank_.size() - 1; i > 0; --i)
            of_rank_[i - 1].otherwise = std::make_shared<const Schedule>(std::move(of_rank_[i]));
        recipe_.ranks.push_back(std::move(of_rank_.front()));
        of_rank_.clear();
    }

    // The prover takes for granted that a contract is complete.
    void check_contract() const {
        const Contract& c = head_.contract;
        const auto ranks = static_cast<std::size_t>(head_.ranks);
        const CollectiveTraits& traits = traits_of(c.collective);
        const auto need = [&](bool there, std::string_view what) {
            if (!there)
                line_.fail(fmt::format("{} has no {}", to_string(c.collective), what),
                           fmt::format("lines of {}", what));
        };
        if (traits.has_blocks()) need(!c.counts.empty(), "counts");
        if (traits.input == CollectiveTraits::Extent::exchanged) need(c.matrix.size() == ranks, "blocks for each rank");
        for (const auto* offsets : {&c.send_offsets, &c.receive_offsets})
            if (!offsets->empty()) need(offsets->size() == ranks, "offsets for each rank");
        std::uint64_t most = c.count;
        for (const std::uint64_t count : c.counts) most += count;
        for (const auto& row : c.matrix)
            for (const std::uint64_t count : row) most += count;
        std::uint64_t of_all = most * ranks;
        for (const Schedule& s : recipe_.ranks) of_all += s.scratch_count;
        if (most > elements_max || of_all > 4 * elements_max) {
            line_.fail(
                fmt::format("{} elements, {} with the scratch buffers of all ranks", most, of_all),
                fmt::format("at most {}, and {}: larger calls run by multiples", elements_max, 4 * elements_max));
        }
    }

    Line line_;
    bool has_begun_ = false;
    Head head_;
    std::optional<Steps> steps_;     // of the schedule that is read; none: the lines before
    std::vector<Schedule> of_rank_;  // read before it
    Recipe recipe_;
};

}  // namespace

Recipe parse(std::string_view text, std::string_view where, InputIs input) {
    return Parser(where, input).run(text);
}

}  // namespace tutti::schedule
