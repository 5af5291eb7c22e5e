// How an attempt has ended, as a status and in words.
#include "core/assert.hpp"
#include "launch/attempt.hpp"

#include <fmt/format.h>
#include <string.h>

namespace tutti::launch {

Outcome Attempt::outcome() const {
    Outcome result;
    result.report = report();
    if (ended_by_ != 0 && !blame_)
        result.status = 128 + ended_by_;
    else if (outcome_)
        result = {outcome_->status, outcome_->again && ended_by_ == 0, result.report};
    else if (blame_)
        result = {exit_status(members_[blame_->decisive()].child),
                  !members_[blame_->decisive()].child.not_started && restarts_.may_start_all() && ended_by_ == 0 &&
                      !is_full(),
                  result.report};
    else if (timed_out_)
        result.status = 124;
    if (result.status == 0 && is_full()) result.status = 1;
    result.repairs = restarts_.repairs();
    return result;
}

std::string Attempt::report() const {
    TUTTI_ASSERT(!outcome_ || nodes_ != nullptr);
    const std::string full = is_full() ? fmt::format("tutti run: {}\n", output_.failure()->text()) : "";
    const bool elsewhere = outcome_ && !outcome_->good && outcome_->node != nodes_->node_rank();
    if (elsewhere && ended_by_ == 0 && !timed_out_) {
        // The user who watches the job over ssh reads it from the node itself.
        return full +
               (limits_.lifeline ? "" : fmt::format("tutti run: node {} failed: {}\n", outcome_->node, outcome_->text));
    }
    const bool said_by_others = outcome_ && !outcome_->good && !blame_ && !timed_out_ && ended_by_ == 0;
    if (said_by_others) return fmt::format("tutti run: this node, {}: {}\n", outcome_->node, outcome_->text);
    if (blame_) return full + report_failure();
    if (timed_out_) {
        return fmt::format("{}tutti run: the job was stopped: it did not end in {:g} s (--timeout)\n", full,
                           std::chrono::duration<double>(*limits_.timeout).count());
    }
    if (ended_by_ != 0 && ended_by_ != SIGPIPE && !limits_.lifeline)
        return fmt::format("{}tutti run: stopped by SIG{}\n", full, ::sigabbrev_np(ended_by_));
    return full;
}

std::string Attempt::report_failure() const {
    TUTTI_ASSERT(blame_.has_value());
    const std::size_t decisive = blame_->decisive();
    const Child& child = members_[decisive].child;
    const bool ssh_failed = child.not_started || exit_status(child) == 255;
    if (members_[decisive].task.reports_itself && !ssh_failed) return {};
    std::string text = fmt::format("tutti run: {}\n", words());
    if (child.not_started) text += fmt::format("  the program: {}\n", tasks_.front().command.front());
    // One that has the same verdict to say has said it.
    const bool repeats = blame_->way == Blame::Way::accused && blame_->culprit && members_[*blame_->culprit].said;
    if (blame_->culprit && !repeats) {
        const auto& lines = output_.tail(members_[*blame_->culprit].output);
        if (!lines.empty()) text += "  its last lines:\n";
        for (const std::string& line : lines) text += fmt::format("    {}\n", line);
    }
    text += the_others(*blame_, suspects(is_lost_));
    if (replacements_ == nullptr || child.not_started) return text;
    if (is_lost_ && have_met_)
        return text + "  no rank was left that could take another process in (docs/membership.md)\n";
    return text + (restarts_.left() == 0 ? "  no restarts were left\n" : "");
}

std::string Attempt::words() const {
    const bool alone = tasks_.size() == 1 && nodes_ == nullptr;
    const std::string memory = in_words(memory_kills_.since());
    return in_words(*blame_, suspects(is_lost_), limits_.started, alone) + (memory.empty() ? "" : "\n  " + memory);
}

}  // namespace tutti::launch
