#!/usr/bin/env python3
"""Faults seeded into copies of the library's files, which the simulations must notice. Standard library only.

seed_faults.py SOURCES FOLDER: writes the copies, and rows.inc with a row of each fault for seeded_faults_test.cpp. In a copy
both versions of a line stand, and the test chooses; the library itself knows nothing of it. A row whose line is no longer in
its file ends the build: then write it anew.
"""
import pathlib
import sys

# Each row is a fault: its file, the right text, the faulty text (SEEDED: whether this fault is on), the simulation that must see it.
ROWS = {
    "credit_is_not_spent": (
        "transport/mailbox.cpp", "        p.credit.spend(cost);\n", "        if (!SEEDED) p.credit.spend(cost);\n", "jobs"),
    "credit_that_was_given_back_is_still_counted": (
        "transport/credit.hpp", "        unconsumed_ -= owed_;\n", "        if (!SEEDED) unconsumed_ -= owed_;\n", "jobs"),
    "surplus_that_comes_after_the_collective_is_kept": (
        "transport/call_checks.cpp", "const bool surplus = mine", "const bool surplus = !SEEDED && mine", "jobs"),
    "surplus_that_came_before_the_end_is_kept": (
        "transport/call_checks.cpp", "    if (messages.empty()) return;\n", "    if (messages.empty() || SEEDED) return;\n", "jobs"),
    "of_two_messages_the_later_is_taken_first": (
        "transport/matching.cpp", "    return message == found->second.end() ? nullptr : &*message;\n",
        "    if (SEEDED && message != found->second.end() && found->second.back().source == message->source &&\n"
        "        found->second.back().bound == nullptr)\n        return &found->second.back();\n"
        "    return message == found->second.end() ? nullptr : &*message;\n", "jobs"),
    "a_probe_that_waits_is_told_nothing": (
        "transport/mailbox.cpp", "probe = matching_.take_probe(message)", "probe = SEEDED ? nullptr : matching_.take_probe(message)", "jobs"),
    "a_released_message_stays_claimed": (
        "transport/mailbox.cpp", "    message->claimed = false;\n", "    message->claimed = SEEDED;\n", "jobs"),
    "bytes_with_a_wrong_checksum_pass_for_a_break": (
        "transport/peers.cpp", "    return state == StreamState::damaged;\n",
        "    return !SEEDED && state == StreamState::damaged;\n", "jobs"),
    "a_sender_is_cleared_twice": (
        "transport/mailbox.cpp", "        say(source, kind, receive.channel, id);\n",
        "        say(source, kind, receive.channel, id);\n    if (SEEDED) say(source, kind, receive.channel, id);\n", "jobs"),
    "an_orphan_tries_no_other_parent": (
        "rendezvous/reparenter.hpp", "    void failed() { trying_ = false; }\n",
        "    void failed() { trying_ = SEEDED; }\n", "worlds"),
    "an_orphan_never_tries_again": (
        "rendezvous/reparenter.cpp", "    due_ = now + pause;\n",
        "    due_ = SEEDED ? std::nullopt : std::optional<Instant>(now + pause);\n", "worlds"),
    "a_rank_accuses_after_it_has_answered": (
        "rendezvous/news_log.cpp", "(source == Source::this_rank ||", "((source == Source::this_rank && !SEEDED) ||", "worlds"),
    "a_goodbye_is_lost": (
        "rendezvous/lifelines.cpp", "        send(id, news->bytes);\n",
        "        if (!SEEDED || verdict.kind != VerdictKind::left) send(id, news->bytes);\n", "worlds"),
    "an_answer_counts_for_all_news": (
        "rendezvous/ledger.cpp", "    acknowledged(id, neighbour, now);\n",
        "    acknowledged(id, neighbour, now);\n"
        "    for (auto& [other, piece] : pieces_) {\n        if (SEEDED) piece.asked.clear();\n    }\n", "worlds"),
    "new_neighbours_are_not_told_of_the_end": (
        "rendezvous/lifelines.cpp", "    if (!end_) return;\n", "    if (!end_ || SEEDED) return;\n", "worlds"),
    "a_rank_makes_no_will": (
        "rendezvous/meeting.cpp", "        co_await ask::will(", "        if (!SEEDED) co_await ask::will(", "meetings"),
    "what_stands_does_not_count": (
        "rendezvous/meeting.cpp", "    co_return outcome_in(stands.value());\n}\n\n// ---- Waiting",
        "    co_return SEEDED ? outcome : outcome_in(stands.value());\n}\n\n// ---- Waiting", "meetings"),
    "an_earlier_card_is_taken_for_ones_own": (
        "rendezvous/meeting.cpp", "    entered_ = there.value() == own_;\n", "    entered_ = there.value() == own_ || SEEDED;\n", "meetings"),
    "digests_are_not_compared": (
        "rendezvous/meeting.cpp", "    if (card.digest != terms_.digest)\n", "    if (!SEEDED && card.digest != terms_.digest)\n", "meetings"),
    "a_circle_may_have_an_attempt_that_is_over": (
        "rendezvous/meeting_circles.cpp", "        if (over.is_there()) co_return false;\n",
        "        if (over.is_there() && !SEEDED) co_return false;\n", "meetings"),
    "nobody_sees_a_circle": (
        "rendezvous/meeting_circles.cpp", "    if (circle.empty()) co_return false;\n",
        "    if (circle.empty() || SEEDED) co_return false;\n", "meetings"),
    "a_rank_waits_beyond_its_time": (
        "rendezvous/meeting.cpp", "        if (is_late) co_return co_await give_up();\n",
        "        if (is_late && !SEEDED) co_return co_await give_up();\n", "meetings"),
    "a_rank_fails_without_a_word": (
        "rendezvous/meeting.cpp", "    if (error && !settled_) co_await say_failed(", "    if (error && !settled_ && !SEEDED) co_await say_failed(", "meetings"),
    "a_note_stays_on_the_board": (
        "rendezvous/meeting_circles.cpp", "    if (noted_.empty()) co_return true;\n", "    if (noted_.empty() || SEEDED) co_return true;\n", "meetings"),
    "nobody_opens_the_next_attempt": (
        "rendezvous/meeting.cpp", "std::to_string(*number + 1)", "std::to_string(*number + (SEEDED ? 0 : 1))", "meetings"),
    "a_failure_is_told_twice": (
        "rendezvous/meeting.cpp", "(is_of_others(outcome) || !is_news(outcome))", "(is_of_others(outcome) || (!is_news(outcome) && !SEEDED))",
        "meetings"),
    "a_process_hears_of_the_end_of_the_one_before_it": (
        "rendezvous/meeting.cpp", "is_of_other_size || outcome.rank == terms_.rank;",
        "is_of_other_size || (outcome.rank == terms_.rank && !SEEDED);", "meetings"),
    "a_failure_of_another_size_is_told": (
        "rendezvous/meeting.cpp", "is_of_other_size = outcome.size != 0", "is_of_other_size = !SEEDED && outcome.size != 0", "meetings"),
    "the_card_of_a_dead_process_is_taken": (
        "rendezvous/meeting.cpp", "    co_return dead_one();\n", "    co_return SEEDED ? Outcome{} : dead_one();\n", "meetings"),
    "rank_0_has_failed_where_it_refuses_a_card": (
        "rendezvous/meeting.cpp", "outcome(Outcome::disagrees, disagreement.rank",
        "outcome(SEEDED ? Outcome::failed : Outcome::disagrees, disagreement.rank", "meetings"),
    "a_store_that_may_be_busy_is_asked": (
        "rendezvous/meeting.cpp", "if (!will.is_there()) co_return true;", "if (!will.is_there() && !SEEDED) co_return true;", "meetings"),
    "a_newcomer_makes_no_will_for_those_who_took_it_in": (
        "rendezvous/newcomer.cpp", "    co_await ask::will(growth_key::gone(ticket_)", "    if (!SEEDED) co_await ask::will(growth_key::gone(ticket_)", "growth"),
    "the_leader_makes_no_will_for_those_who_join": (
        "rendezvous/growth.cpp", "    co_await ask::will(growth_key::leader_gone(", "    if (!SEEDED) co_await ask::will(growth_key::leader_gone(", "growth"),
    "the_newcomers_of_a_lost_plan_are_taken_again": (
        "rendezvous/growth.cpp", "    tickets_.clear();", "    if (!SEEDED) tickets_.clear();", "growth"),
    "newcomers_are_told_another_plan_than_the_ranks": (
        "rendezvous/growth.cpp", "    if (taken > 0) co_await ask::write(key_of_newcomers, stands);\n",
        "    if (taken > 0) co_await ask::write(key_of_newcomers, SEEDED ? mine : stands);\n", "growth"),
    "a_rank_that_waits_in_vain_for_the_leader_writes_nothing": (
        "rendezvous/growth.cpp", "        if (ended.is_there() || last.expired()) stands = co_await settle(key, mine);\n",
        "        if (ended.is_there() || last.expired()) stands = mine;\n        if (!SEEDED && !stands.empty()) stands = co_await settle(key, mine);\n", "growth"),
    "the_leader_does_not_look_for_newcomers_that_have_gone": (
        "rendezvous/growth.cpp", "    for (std::size_t i = 0; i < tickets_.size(); ++i)\n", "    for (std::size_t i = 0; i < tickets_.size() && !SEEDED; ++i)\n", "growth"),
    "of_two_lists_of_survivors_each_counts": (
        "rendezvous/survivors.cpp", "    co_return stands.value();\n", "    co_return SEEDED ? outcome : stands.value();\n", "growth"),
    "a_lifeline_that_ends_tells_a_changing_group_nothing": (
        "rendezvous/lifelines.cpp", "    if (counts) verdict = ", "    if (counts && !SEEDED) verdict = ", "growth"),
    "a_rank_that_was_stopped_takes_what_it_heard_before_for_the_present": (
        "rendezvous/survivors.cpp", "heard_ - start_ >= *terms_.patience", "(SEEDED ? Clock::now() : heard_) - start_ >= *terms_.patience",
        "growth"),
    "each_rank_decides_alone_whether_the_new_group_is_made": (
        "rendezvous/growth.cpp", "    co_return stands.value() == made ? \"\" : stands.value();\n",
        "    co_return SEEDED ? trouble : stands.value() == made ? \"\" : stands.value();\n", "growth"),
    "a_rank_that_fails_at_the_last_boundary_does_not_ask_how_it_ended": (
        "rendezvous/steps.cpp", "    co_return stands.value() == done;", "    co_return (SEEDED ? here : stands.value()) == done;", "growth"),
    "a_rank_goes_back_one_step_too_few": (
        "rendezvous/steps.hpp", "|| completed_ != agreed;", "|| (completed_ != agreed && !SEEDED);", "growth"),
    "a_rank_goes_on_from_within_a_step": (
        "rendezvous/steps.hpp", "const bool goes_back = is_dirty_ ||", "const bool goes_back = (is_dirty_ && !SEEDED) ||", "growth"),
}


def main() -> int:
    sources, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    texts = {file: (sources / file).read_text() for file, *_ in ROWS.values()}
    rows = []
    for number, (name, (file, right, faulty, simulation)) in enumerate(ROWS.items(), start=1):
        if texts[file].count(right) != 1:
            print(f"seed_faults.py: {name}: {file} has not one place with: {right}", file=sys.stderr)
            return 1
        texts[file] = texts[file].replace(right, faulty.replace("SEEDED", f"(::tutti::simulation::seeded_fault == {number})"))
        rows.append(f'{{"{name}", "{simulation}"}},\n')
    for file, text in texts.items():
        copy = folder / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        once = "#pragma once\n" if file.endswith(".hpp") else ""
        copy.write_text(f"{once}namespace tutti::simulation {{ extern int seeded_fault; }}\n" + text)
    (folder / "rows.inc").write_text("".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
