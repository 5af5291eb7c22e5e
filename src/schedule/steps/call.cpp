// Functions of a user's own: call, call_combine.
//
// The prover takes a function for what the step says: what it makes stands for its only source, or for the combination
// of its sources. What it loses counts as a rounding of its own. In another type than the call's its values are codes,
// which only further calls understand; all else may move them.
#include "core/assert.hpp"
#include "schedule/contract.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

void Builder::call(std::string_view function, Chunk target, Chunk source) {
    add_call(function, target, {&source, 1}, false, false);
}

void Builder::call_combine(std::string_view function, Chunk target, std::span<const Chunk> sources, bool finish) {
    add_call(function, target, sources, true, finish);
}

void Builder::add_call(std::string_view function, Chunk target, std::span<const Chunk> sources, bool combines,
                       bool finish) {
    TUTTI_ASSERT(!function.empty());
    TUTTI_ASSERT(!sources.empty());
    if (target.count == 0) return;
    auto& functions = schedule_.functions;
    const auto found = std::ranges::find(functions, function);
    Step& step = begin(StepKind::call);
    step.target = target;
    step.combines = combines;
    step.finish = finish;
    step.function = static_cast<std::uint32_t>(found - functions.begin());
    TUTTI_ASSERT(step.function <= functions.size());
    if (found == functions.end()) functions.emplace_back(function);
    for (const Chunk& source : sources) {
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    writes(target);
    end();
}

namespace {

std::string function_of(Line& line, const Reading& r) {
    std::string name(line.word("a function"));
    if (std::ranges::find(r.contract->calls, name) == r.contract->calls.end())
        line.fail(fmt::format("the text names no function \"{}\"", name),
                  fmt::format("a line \"calls {}\" above the ranks", name));
    return name;
}
void read_call(Line& line, Reading& r) {
    const std::string function = function_of(line, r);
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    r.builder.call(function, target, source);
}
void read_call_combine(Line& line, Reading& r) {
    const std::string function = function_of(line, r);
    if (!r.contract->op)
        line.fail("the text does not say what the function computes",
                  "a line \"op NAME\" above the ranks, as \"op sum\"");
    const Chunk target = line.chunk();
    const auto sources = line.chunks();
    if (sources.empty()) line.fail("there is nothing to combine", "chunks");
    for (const Chunk& source : sources) line.equal(target, source);
    r.builder.call_combine(function, target, sources, line.flag("finish"));
}

void write_call(Writer& writer, const At& at) {
    const Step& step = at.step;
    writer.add(fmt::format("{} {} {}{}{}", step.combines ? "call_combine" : "call",
                           at.schedule.functions[step.function], to_text(at.schedule, step.target), writer.operands(at),
                           step.finish ? " finish" : ""));
}

bool prove_call(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.step.function < at.schedule.functions.size());
    TUTTI_ASSERT(at.step.combines || at.operands().size() == 1);
    const std::string& function = at.schedule.functions[at.step.function];
    const auto is_coded = [&](const Chunk& chunk) { return at.schedule.of(chunk.buffer).codes.has_value(); };
    if (is_coded(at.step.target) || std::ranges::any_of(at.operands(), is_coded, &Operand::chunk)) {
        proof.fault(at, "takes codes of a form, which have scales among them: expected numbers, or a function's codes");
        return true;
    }
    std::vector<Values> inputs;
    // A function may write an element before it reads another one.
    if (std::ranges::any_of(at.operands(), [&](const Operand& o) { return share_elements(at.step.target, o.chunk); }))
        proof.fault(at, "writes elements that its function reads: expected a target apart from all sources");
    for (const Operand& operand : at.operands()) inputs.push_back(proof.load(at, operand.chunk));
    Values values = at.step.combines ? proof.combined(at, inputs) : inputs.front();
    const bool codes = proof.type_of(at, at.step.target) != Type{proof.contract().dtype};
    for (Value& value : values) {
        if (!value) continue;
        if (!at.step.combines) ++value->combinations;
        value->roundings.push_back({.first = 0,
                                    .last = static_cast<std::uint32_t>(value->parts.size()),
                                    .to = function,
                                    .by = Rounding::By::call});
        value->coded_by = codes ? function : "";
    }
    proof.save(at, at.step.target, values);
    return true;
}

std::string call_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = {}({})", words_of(s, step.target), s.functions[step.function],
                       words_of_operands(s, step, ", "));
}

constexpr LineRule call_lines[] = {{"call", read_call}, {"call_combine", read_call_combine}};

}  // namespace

const Kind call_kind{.name = "call",
                     .meaning = "runs a function of the user's on values of the rank's own buffers",
                     .sentence = call_sentence,
                     .write = write_call,
                     .prove = prove_call,
                     .lines = call_lines,
                     .types = Types::own};

}  // namespace tutti::schedule
