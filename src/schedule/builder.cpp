#include "schedule/builder.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

namespace schedule {

std::string_view to_string(StepKind kind) noexcept {
    switch (kind) {
        case StepKind::copy: return "copy";
        case StepKind::combine: return "combine";
        case StepKind::send: return "send";
        case StepKind::receive: return "receive";
        case StepKind::receive_combine: return "receive_combine";
        case StepKind::meet: return "meet";
        case StepKind::publish: return "publish";
        case StepKind::read: return "read";
        case StepKind::read_combine: return "read_combine";
        case StepKind::write: return "write";
        case StepKind::release: return "release";
        case StepKind::settle: return "settle";
    }
    return "unknown";
}

Chunk Builder::scratch(std::uint64_t count) {
    const Chunk chunk{Buffer::scratch, schedule_.scratch_count, count};
    schedule_.scratch_count += count;
    return chunk;
}

Step& Builder::begin(StepKind kind) {
    waits_.clear();
    read_now_.clear();
    written_now_.clear();
    Step& step = schedule_.steps.emplace_back();
    step.kind = kind;
    step.first_operand = static_cast<std::uint32_t>(schedule_.operands.size());
    return step;
}

void Builder::wait_for(std::int64_t step) {
    if (step >= 0) waits_.push_back(static_cast<std::uint32_t>(step));
}

void Builder::wait_for_all() {
    for (std::size_t i = 0; i + 1 < schedule_.steps.size(); ++i) waits_.push_back(static_cast<std::uint32_t>(i));
}

void Builder::uses(const Chunk& chunk) {
    std::uint64_t& end = schedule_.used_end[static_cast<std::size_t>(chunk.buffer)];
    end = std::max(end, chunk.offset + chunk.count);
}

void Builder::reads(const Chunk& chunk) {
    if (chunk.count == 0) return;
    uses(chunk);
    read_now_.push_back(chunk);
    uses_[static_cast<std::size_t>(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {},
                                                         [&](const Use& use) { wait_for(use.writer); });
}

void Builder::writes(const Chunk& chunk) {
    if (chunk.count == 0) return;
    uses(chunk);
    written_now_.push_back(chunk);
    uses_[static_cast<std::size_t>(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {},
                                                         [&](const Use& use) {
                                                             wait_for(use.writer);
                                                             for (const std::uint32_t reader : use.readers)
                                                                 wait_for(reader);
                                                         });
}

void Builder::end() {
    const auto index = static_cast<std::uint32_t>(schedule_.steps.size() - 1);
    for (const Chunk& chunk : read_now_) {
        uses_[static_cast<std::size_t>(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {},
                                                             [&](Use& use) { use.readers.push_back(index); });
    }
    for (const Chunk& chunk : written_now_)
        uses_[static_cast<std::size_t>(chunk.buffer)].set(chunk.offset, chunk.offset + chunk.count, {index, {}});
    std::ranges::sort(waits_);
    waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
    std::erase(waits_, index);
    Step& step = schedule_.steps.back();
    step.operand_count = static_cast<std::uint32_t>(schedule_.operands.size()) - step.first_operand;
    step.first_after = static_cast<std::uint32_t>(schedule_.after.size());
    step.after_count = static_cast<std::uint32_t>(waits_.size());
    schedule_.after.insert(schedule_.after.end(), waits_.begin(), waits_.end());
}

void Builder::copy(Chunk target, Chunk source, std::uint64_t whole) {
    if (target.count == 0 || target == source) return;
    Step& step = begin(StepKind::copy);
    step.target = target;
    step.whole = std::max(whole, target.count);
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    writes(target);
    end();
}

void Builder::combine(Chunk target, std::span<const Chunk> sources, bool finish) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::combine);
    step.target = target;
    step.finish = finish;
    for (const Chunk& source : sources) {
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    writes(target);
    end();
}

void Builder::send(Rank peer, Chunk source, std::span<const std::int64_t> after) {
    if (source.count > 0) {
        begin(StepKind::send).peer = peer;
        schedule_.operands.push_back({.chunk = source});
        for (const std::int64_t step : after) wait_for(step);
        reads(source);
        end();
    }
}

void Builder::receive(Rank peer, Chunk target) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::receive);
    step.peer = peer;
    step.target = target;
    writes(target);
    end();
}

// A signal follows everything before it: its sender says that it has come this far.
void Builder::send_signal(Rank peer) {
    begin(StepKind::send).peer = peer;
    schedule_.operands.push_back({});
    wait_for_all();
    end();
}

void Builder::receive_signal(Rank peer) {
    begin(StepKind::receive).peer = peer;
    end();
}

void Builder::receive_combine(Rank peer, Chunk target, Chunk source, bool arrival_first, bool finish) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::receive_combine);
    step.peer = peer;
    step.target = target;
    step.arrival_first = arrival_first;
    step.finish = finish;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    writes(target);
    end();
}

void Builder::publish(std::uint32_t round, std::span<const Chunk> sources) {
    begin(StepKind::publish).round = round;
    for (const Chunk& source : sources) {
        if (source.count == 0) continue;
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    end();
}

void Builder::publish_signal(std::uint32_t round) {
    begin(StepKind::publish).round = round;
    wait_for_all();
    end();
}

void Builder::read(Rank peer, std::uint32_t round, std::uint64_t slot_offset, Chunk target) {
    Step& step = begin(StepKind::read);
    step.peer = peer;
    step.round = round;
    step.slot_offset = slot_offset;
    step.target = target;
    writes(target);
    end();
}

void Builder::read_combine(std::uint32_t round, Chunk target, std::span<const Operand> operands, bool finish) {
    Step& step = begin(StepKind::read_combine);
    step.round = round;
    step.target = target;
    step.finish = finish;
    for (const Operand& operand : operands) {
        schedule_.operands.push_back(operand);
        if (operand.peer < 0) reads(operand.chunk);
    }
    writes(target);
    end();
}

void Builder::meet(std::span<const Chunk> open, bool maps) {
    schedule_.in_place = true;
    schedule_.maps = maps;
    begin(StepKind::meet).round = next_round_;
    use_rounds(1);
    for (const Chunk& chunk : open) {
        if (chunk.count == 0) continue;
        uses(chunk);
        schedule_.operands.push_back({.chunk = chunk});
    }
    end();
}

void Builder::read_in_place(Rank peer, Chunk source, Chunk target) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::read);
    step.peer = peer;
    step.target = target;
    schedule_.operands.push_back({.peer = peer, .chunk = source});
    writes(target);
    end();
}

void Builder::write_in_place(Rank peer, Chunk target, Chunk source) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::write);
    step.peer = peer;
    step.target = target;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    end();
}

void Builder::combine_in_place(Rank owner, Chunk target, std::span<const Operand> operands, bool everywhere,
                               bool finish) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::read_combine);
    step.peer = owner;
    step.target = target;
    step.everywhere = everywhere;
    step.finish = finish;
    for (const Operand& operand : operands) {
        schedule_.operands.push_back(operand);
        if (operand.peer < 0) reads(operand.chunk);
    }
    if (owner < 0) writes(target);
    end();
}

void Builder::release(std::uint32_t round) {
    begin(StepKind::release).round = round;
    end();
}

// This rank has read all before. The release matters where the schedule before has not ended with the last of four:
// publications that no rank makes need no room.
void Builder::begin_turn_group() {
    schedule_.turn_group = true;
    next_round_ = (next_round_ + 3) / 4 * 4;
    release(next_round_);
}

Schedule Builder::finish() && {
    if (next_round_ > 0) release(next_round_);
    if (schedule_.in_place) {
        begin(StepKind::settle).round = next_round_;
        end();
    }
    schedule_.publications = next_round_;
    return std::move(schedule_);
}

}  // namespace schedule
}  // namespace tutti
