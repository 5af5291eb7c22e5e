#include "algorithm/step_cost.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::algorithm {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

double operand_bytes(const Schedule& schedule, const Step& step, std::uint64_t element_bytes) {
    double bytes = 0;
    for (const schedule::Operand& operand : operands_of(schedule, step))
        bytes += static_cast<double>(bytes_of(schedule, operand.chunk, element_bytes));
    return bytes;
}

double held_bytes(const Schedule& schedule, std::uint64_t element_bytes) {
    TUTTI_ASSERT(element_bytes > 0);
    return static_cast<double>((schedule.of(schedule::Buffer::input).used_end +
                                schedule.of(schedule::Buffer::output).used_end + scratch_count(schedule)) *
                               element_bytes);
}

StepCosts::StepCosts(const Layout& layout, const CostModel& costs, double held_bytes)
    : layout_(layout),
      costs_(costs),
      rates_(rates_of(held_bytes, layout, costs)),
      // Of input and output, which are most of it, each has its half.
      kernel_byte_us_(kernel_byte_us(rates_, held_bytes / 2, false, costs)) {}

StepCosts::Message StepCosts::message(double bytes, bool near) const {
    const MessageCosts of = message_costs(rates_, bytes, near, layout_.pulls, costs_);
    Message message{.send_us = of.send_us, .receive_us = of.receive_us, .latency_us = of.latency_us};
    if (!near) {
        message.send_bytes_us = message.receive_bytes_us = bytes / (costs_.tcp_gbps * 1e3);
    } else if (layout_.pulls && !of.ringed && bytes >= 16384) {
        message.pulled = true;
        message.receive_bytes_us = bytes * kernel_byte_us_;
    } else {
        message.send_bytes_us = bytes * rates_.copy_us;
        message.receive_bytes_us = bytes * (rates_.copy_us + rates_.cross_us);
    }
    TUTTI_ASSERT(message.send_bytes_us >= 0 && message.receive_bytes_us >= 0);
    return message;
}

double StepCosts::work_us(const Schedule& schedule, const Step& step, std::uint64_t element_bytes) const {
    const double target = static_cast<double>(bytes_of(schedule, step.target, element_bytes));
    const double operands = operand_bytes(schedule, step, element_bytes);
    const double inputs = step.operand_count + (step.kind == StepKind::receive_combine ? 1.0 : 0.0);
    // k inputs in one pass: k streams are read and one written (as in the formulas).
    const double combined_us = (inputs + 1) / 3 * target * rates_.sum_us;
    const double longer = std::max(target, operands);
    switch (step.kind) {
        case StepKind::encode:  // about as quick as numbers are combined
        case StepKind::decode: return longer * rates_.sum_us;
        case StepKind::magnitudes: return operands * rates_.sum_us;
        case StepKind::decode_add: return target * inputs * rates_.sum_us;
        case StepKind::largest:
        case StepKind::convert:
        case StepKind::copy: return longer * rates_.copy_us;
        case StepKind::call:
        case StepKind::combine:
        case StepKind::receive_combine: return combined_us;
        case StepKind::meet: return 2 * costs_.line_us;
        case StepKind::publish: return operands * rates_.copy_us + costs_.line_us;
        case StepKind::read: return target * (rates_.copy_us + rates_.cross_us);
        case StepKind::get:
        case StepKind::put: return longer * kernel_byte_us_ + 1.4 * costs_.pull_us;
        case StepKind::read_combine: return combined_us + std::max(0.0, operands - target) * rates_.cross_us;
        case StepKind::signal: return costs_.line_us;
        case StepKind::send:
        case StepKind::receive:
        case StepKind::wait:
        case StepKind::release:
        case StepKind::settle: return 0;
    }
    return 0;
}

}  // namespace tutti::algorithm
