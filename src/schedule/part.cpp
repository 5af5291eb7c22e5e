#include "schedule/part.hpp"

#include "core/assert.hpp"
#include "schedule/races.hpp"

#include <algorithm>
#include <optional>

namespace tutti::schedule {
namespace {

/// A part's chunks, where the text has them.
class Places {
 public:
    Places(Builder& builder, const Schedule& part, const Placing& placing) : target_(placing.target) {
        const std::uint64_t count = part.of(Buffer::scratch).count;
        scratch_ = scratch_like(builder, target_.count > 0 ? target_ : placing.source, count);
        source_ = placing.source;
        if (!share_elements(target_, source_) || reads_first(part)) return;
        source_ = scratch_like(builder, source_, source_.count);
        builder.copy(source_, placing.source);
    }

    Chunk operator()(const Chunk& chunk) const {
        TUTTI_ASSERT(chunk.buffer <= Buffer::scratch);
        const Chunk& whole = chunk.buffer == Buffer::input    ? source_
                             : chunk.buffer == Buffer::output ? target_
                                                              : scratch_;
        TUTTI_ASSERT(chunk.count == 0 || chunk.offset + chunk.count <= whole.count);
        return {whole.buffer, whole.offset + chunk.offset, chunk.count};
    }

 private:
    static Chunk scratch_like(Builder& builder, const Chunk& chunk, std::uint64_t count) {
        return builder.scratch(count, builder.buffers()[row(chunk.buffer)].dtype);
    }
    // No step reads an element of the source after a step has written it as one of the target. One step may do both,
    // element by element.
    bool reads_first(const Schedule& part) const {
        std::vector<Chunk> written;
        for (const Step& step : part.steps) {
            const bool writes = step.target.buffer == Buffer::output && step.target.count > 0;
            const Chunk target = (*this)(step.target);
            if (step.kind == StepKind::copy && target == (*this)(operands_of(part, step)[0].chunk)) continue;
            for (const Operand& operand : operands_of(part, step)) {
                if (operand.chunk.buffer != Buffer::input || operand.chunk.count == 0) continue;
                const Chunk source = (*this)(operand.chunk);
                if (std::ranges::any_of(written, [&](const Chunk& before) { return share_elements(before, source); }))
                    return false;
                if (writes && target.buffer == source.buffer && !reads_before_writing(step.kind, source, target))
                    return false;
            }
            if (writes) written.push_back(target);
        }
        return true;
    }

    Chunk target_, source_, scratch_;
};

/// Writes the steps one by one.
class Copyist {
 public:
    Copyist(Builder& builder, const Schedule& part, const Placing& placing)
        : builder_(builder), part_(part), placing_(placing), place_(builder, part, placing) {}

    void run() {
        for (const Step& step : part_.steps) {
            const std::int64_t last = builder_.last_step();
            write(step);
            numbers_.push_back(builder_.last_step() > last ? builder_.last_step() : -1);
        }
        if (!part_.single_rounding) builder_.not_single_rounding();
    }

 private:
    void write(const Step& step) {
        TUTTI_ASSERT(step.peer < static_cast<Rank>(placing_.ranks.size()));
        TUTTI_ASSERT(is_local(step.kind) || step.kind == StepKind::send || receives(step.kind));
        sources_.clear();
        for (const Operand& operand : operands_of(part_, step)) sources_.push_back(place_(operand.chunk));
        const Rank peer = step.peer < 0 ? -1 : placing_.ranks[static_cast<std::size_t>(step.peer)];
        const Chunk target = place_(step.target);
        const bool finish = step.finish && placing_.finishes;
        TUTTI_ASSERT(step.kind == StepKind::receive || !sources_.empty());
        switch (step.kind) {
            case StepKind::copy: return builder_.copy(target, sources_[0], step.whole);
            case StepKind::combine: return builder_.combine(target, sources_, finish);
            case StepKind::send:
                if (sources_[0].count == 0) return builder_.send_signal(peer);
                return builder_.send(peer, sources_[0], after(step));
            case StepKind::receive:
                if (target.count == 0) return builder_.receive_signal(peer);
                return builder_.receive(peer, target);
            case StepKind::receive_combine:
                return builder_.receive_combine(peer, target, sources_[0], step.arrival_first, finish);
            default: break;  // a PartMaker makes no others
        }
    }
    // All that it waits for: the builder finds most of it again.
    std::vector<std::int64_t> after(const Step& step) const {
        TUTTI_ASSERT(numbers_.size() < part_.steps.size());
        std::vector<std::int64_t> steps;
        for (const std::uint32_t index : after_of(part_, step)) steps.push_back(numbers_[index]);
        return steps;
    }

    Builder& builder_;
    const Schedule& part_;
    const Placing& placing_;
    Places place_;
    std::vector<std::int64_t> numbers_;  // in the builder, by step; -1: it has none
    std::vector<Chunk> sources_;         // of one step
};

}  // namespace

void put(Builder& builder, const Schedule& part, const Placing& placing) {
    TUTTI_ASSERT(!part.in_place && !part.in_slots && part.publications == 0);
    TUTTI_ASSERT(part.functions.empty() && part.buffers.size() == row(Buffer::scratch) + 1);
    TUTTI_ASSERT(!placing.ranks.empty());
    Copyist(builder, part, placing).run();
}

}  // namespace tutti::schedule
