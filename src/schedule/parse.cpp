// parse(): a text of schedules, line by line, into calls of the Builder.
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "schedule/builder.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/use.hpp"
#include "schedule/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

/// The lines before the steps.
struct Head {
    std::string algorithm;
    bool has_collective = false;
    int ranks = 0;
    Contract contract{};
};

// It is printed in many places.
std::string read_algorithm(Line& line) {
    std::string name(line.word("a name"));
    if (visible_line(name) != name) line.fail("the name has control characters", "a name of letters");
    return name;
}

void read_collective(Line& line, Head& head) {
    head.contract.collective = line.collective();
    head.has_collective = true;
}

void read_ranks(Line& line, Head& head) {
    if (head.ranks != 0) line.fail("the number of ranks comes twice", "one line \"ranks N\"");
    head.ranks = static_cast<int>(line.number(ranks_max, "number of ranks"));
    if (head.ranks == 0) line.fail("no ranks", fmt::format("1 to {}", ranks_max));
    head.contract.host_of.assign(static_cast<std::size_t>(head.ranks), 0);
}

void read_op(Line& line, Head& head) {
    const std::string_view name = line.word("an operation");
    std::vector<std::string_view> names;
    for (int kind = 0; kind < reduce_op_count; ++kind) {
        if (static_cast<ReduceOp::Kind>(kind) == ReduceOp::Kind::premul_sum) continue;  // a sum, of other values
        names.push_back(to_string(static_cast<ReduceOp::Kind>(kind)));
        if (names.back() == name) head.contract.op = static_cast<ReduceOp::Kind>(kind);
    }
    if (!head.contract.op)
        line.fail(fmt::format("\"{}\" is no operation{}", name, did_you_mean(name, names)),
                  fmt::format("one of {}", fmt::join(names, ", ")));
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
    static const HeadLines& lines = *new HeadLines{
        {"algorithm", [](Line& l, Head& h) { h.algorithm = read_algorithm(l); }},
        {"collective", read_collective},
        {"ranks", read_ranks},
        {"root", [](Line& l, Head& h) { h.contract.root = l.rank(h.ranks); }},
        {"dtype", [](Line& l, Head& h) { h.contract.dtype = l.dtype(); }},
        {"rounds_to", [](Line& l, Head& h) { h.contract.rounds_to.push_back(l.dtype()); }},
        {"calls", [](Line& l, Head& h) { h.contract.calls.emplace_back(l.word("a function")); }},
        {"codes",
         [](Line& l, Head& h) {
             h.contract.codes = l.code_form();
             h.contract.encodings = l.count("number of encodings");
         }},
        {"op", read_op},
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

// scratch 4, scratch bfloat16 4, scratch int8/256 512
void read_scratch(Line& line, Reading& r) {
    if (line.scratch_is_closed())
        line.fail("scratch elements behind a part", "the lines \"scratch\" of a rank above its first line \"use\"");
    std::optional<DType> dtype;
    std::optional<CodeForm> codes;
    if (line.has_code_form())
        codes = line.code_form();
    else if (!line.has_number())
        dtype = line.dtype();
    const std::uint64_t more = line.count();
    if (r.scratch + more > elements_max)
        line.fail("the scratch buffers are too long", fmt::format("at most {}", elements_max));
    r.scratch += codes ? r.builder.scratch(more, *codes).count : r.builder.scratch(more, dtype).count;
    if (r.builder.buffers().size() > buffers_max)
        line.fail("the rank has scratch buffers of too many types", fmt::format("at most {}", buffers_max - 3));
}

// The lines between "rank" and the next rank: those of the kinds, and those that are no step.
using StepLines = std::map<std::string_view, void (*)(Line&, Reading&)>;
const StepLines& step_lines() {
    static const StepLines& lines = *new StepLines([] {
        StepLines all{
            {"turn_group", [](Line&, Reading& r) { r.flags.turn_group = true; }},
            {"in_slots", [](Line&, Reading& r) { r.flags.in_slots = true; }},
            {"input_is_output", [](Line&, Reading& r) { r.flags.input_is_output = true; }},
            {"not_single_rounding", [](Line&, Reading& r) { r.flags.single_rounding = false; }},
            {"algorithm", [](Line& l, Reading& r) { r.flags.algorithm = read_algorithm(l); }},
            {"scratch", read_scratch},
            {"input_type", [](Line& l, Reading& r) { r.builder.input_type(l.dtype()); }},
            {"use", [](Line& l, Reading& r) { r.uses->read(l, r); }},
            {"use_rounds", [](Line& l, Reading& r) { r.builder.use_rounds(l.round()); }},
        };
        for (const Kind* const kind : kinds()) {
            for (const LineRule& line : kind->lines) all.emplace(line.name, line.read);
        }
        return all;
    }());
    return lines;
}

/// The text as a whole: its first line, the head, and the ranks in their order.
class Parser {
 public:
    Parser(std::string_view where, InputIs input, const PartMaker* parts) : line_(where, input), uses_(parts) {}

    Recipe run(std::string_view text) {
        while (!text.empty()) {
            line_.next(take_line(text));
            if (!line_.empty()) read_line();
        }
        line_.end();
        end_rank();
        TUTTI_ASSERT(!steps_ && of_rank_.empty());
        level_rounds();
        if (head_.ranks == 0 || recipe_.ranks.size() != static_cast<std::size_t>(head_.ranks))
            line_.fail(fmt::format("the text ends after {} ranks", recipe_.ranks.size()),
                       head_.ranks == 0 ? "a line \"ranks N\" and the steps of each" : fmt::format("{}", head_.ranks));
        check_contract();
        uses_.check();
        TUTTI_ASSERT(recipe_.ranks.size() == static_cast<std::size_t>(head_.ranks));
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
        if (steps_) check_cost();
    }

    void check_cost() const {
        TUTTI_ASSERT(steps_.has_value());
        const Builder& builder = steps_->builder;
        if (steps_ended_ + static_cast<std::uint64_t>(builder.last_step() + 1) > steps_max)
            line_.fail(fmt::format("the text has more than {} steps", steps_max), "fewer, in all ranks together");
        if (cost_ended_ + builder.cost() > touched_max)
            line_.fail(fmt::format("the steps touch more than {} stretches of elements", touched_max),
                       "fewer steps, or steps that touch whole buffers");
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
        TUTTI_ASSERT(steps_.has_value());
        if (of_rank_.size() >= 3) line_.fail("too many schedules of one rank", "at most 4");
        end_schedule();
        begin_schedule();
    }
    void begin_schedule() {
        TUTTI_ASSERT(!steps_);
        TUTTI_ASSERT(head_.ranks > 0 && !head_.algorithm.empty());
        steps_.emplace(Reading{.ranks = head_.ranks,
                               .rank = static_cast<Rank>(recipe_.ranks.size()),
                               .builder = Builder(head_.algorithm),
                               .contract = &head_.contract,
                               .uses = &uses_,
                               .alternative = of_rank_.size()});
        line_.set_buffers(&steps_->builder.buffers());
    }
    void end_schedule() {
        TUTTI_ASSERT(steps_.has_value());
        const Schedule& flags = steps_->flags;
        cost_ended_ += steps_->builder.cost();
        Schedule schedule = std::move(steps_->builder).finish();
        steps_ended_ += schedule.steps.size();
        schedule.turn_group = flags.turn_group;
        schedule.in_slots = flags.in_slots;
        schedule.input_is_output = flags.input_is_output;
        schedule.single_rounding = flags.single_rounding;
        if (!flags.algorithm.empty()) schedule.algorithm = flags.algorithm;
        check_scratch(schedule);
        of_rank_.push_back(std::move(schedule));
        line_.set_buffers(nullptr);
        steps_.reset();
        TUTTI_ASSERT(!of_rank_.empty());
    }
    void check_scratch(const Schedule& schedule) const {
        for (std::size_t b = row(Buffer::scratch); b < schedule.buffers.size(); ++b) {
            const BufferInfo& buffer = schedule.buffers[b];
            const std::string type = buffer.codes   ? to_string(*buffer.codes) + ' '
                                     : buffer.dtype ? fmt::format("{} ", to_string(*buffer.dtype))
                                                    : "";
            if (buffer.used_end > buffer.count)
                line_.fail(fmt::format("rank {} uses more than its scratch buffer of {} {}elements", steps_->rank,
                                       buffer.count, type),
                           fmt::format("a line \"scratch {}N\" for all of them", type));
            if (buffer.dtype && !head_.contract.dtype)
                line_.fail(fmt::format("rank {} has a scratch buffer of {}", steps_->rank, to_string(*buffer.dtype)),
                           "a line \"dtype NAME\" above the ranks: the type of the calls that the text is for");
        }
    }
    // A rank's schedules follow each other: what it runs, and what it runs otherwise.
    void end_rank() {
        if (!steps_) return;
        end_schedule();
        for (std::size_t i = of_rank_.size() - 1; i > 0; --i)
            of_rank_[i - 1].otherwise = std::make_shared<const Schedule>(std::move(of_rank_[i]));
        TUTTI_ASSERT(!of_rank_.empty());
        TUTTI_ASSERT(of_rank_.size() == 1 || of_rank_.front().otherwise);
        recipe_.ranks.push_back(std::move(of_rank_.front()));
        of_rank_.clear();
    }

    // In place, a rank with fewer signals than another one ends with as many rounds.
    void level_rounds() {
        std::uint32_t most = 0;
        for (const Schedule& s : recipe_.ranks) most = std::max(most, s.in_place ? s.publications : 0);
        for (Schedule& s : recipe_.ranks) {
            if (!s.in_place) continue;
            for (Step& step : s.steps) {
                const bool last = step.kind == StepKind::release || step.kind == StepKind::settle;
                if (last && step.round == s.publications) step.round = most;
            }
            s.publications = most;
        }
    }

    // The prover takes for granted that a contract is complete.
    void check_contract() const {
        TUTTI_ASSERT(head_.ranks > 0);
        TUTTI_ASSERT(head_.contract.host_of.size() == static_cast<std::size_t>(head_.ranks));
        const Contract& c = head_.contract;
        const auto ranks = static_cast<std::size_t>(head_.ranks);
        const CollectiveTraits& traits = traits_of(c.collective);
        const auto need = [&](bool there, std::string_view what) {
            if (!there)
                line_.fail(fmt::format("{} has no {}", to_string(c.collective), what),
                           fmt::format("lines of {}", what));
        };
        if (c.op && !traits.combines)
            line_.fail(fmt::format("{} has an operation, but combines nothing", to_string(c.collective)),
                       "no line \"op NAME\"");
        if (traits.has_blocks()) need(!c.counts.empty(), "counts");
        if (traits.input == CollectiveTraits::Extent::exchanged) need(c.matrix.size() == ranks, "blocks for each rank");
        for (const auto* offsets : {&c.send_offsets, &c.receive_offsets})
            if (!offsets->empty()) need(offsets->size() == ranks, "offsets for each rank");
        std::uint64_t most = c.count;
        for (const std::uint64_t count : c.counts) most += count;
        for (const auto& row : c.matrix)
            for (const std::uint64_t count : row) most += count;
        std::uint64_t of_all = most * ranks;
        for (const Schedule& s : recipe_.ranks) of_all += scratch_count(s);
        if (most > elements_max || of_all > 4 * elements_max) {
            line_.fail(
                fmt::format("{} elements, {} with the scratch buffers of all ranks", most, of_all),
                fmt::format("at most {}, and {}: larger calls run by multiples", elements_max, 4 * elements_max));
        }
    }

    Line line_;
    bool has_begun_ = false;
    std::uint64_t steps_ended_ = 0, cost_ended_ = 0;  // of the schedules that have been read
    Head head_;
    Uses uses_;
    std::optional<Reading> steps_;   // of the schedule that is read; none: the lines before
    std::vector<Schedule> of_rank_;  // read before it
    Recipe recipe_;
};

}  // namespace

Recipe parse(std::string_view text, std::string_view where, InputIs input, const PartMaker* parts) {
    return Parser(where, input, parts).run(text);
}

}  // namespace tutti::schedule
