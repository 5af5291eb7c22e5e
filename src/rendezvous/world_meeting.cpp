#include "rendezvous/world_meeting.hpp"

#include "core/rank_list.hpp"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <utility>

namespace tutti::rendezvous {
namespace {

class WorldSentences final : public MeetingSentences {
    std::string failed(int rank, const std::string& why) const override {
        return fmt::format("rank {} failed while joining{}", rank, why.empty() ? ", and has not said why" : ": " + why);
    }
    std::string ended(int rank, const MeetingProcess& process) const override {
        return fmt::format("rank {} is gone: {} ended before it had joined", rank, process.in_words);
    }
    std::string twice(int rank, const MeetingProcess& other, const MeetingProcess& own) const override {
        const bool in_threads = other.space == own.space && other.number == own.number;
        return fmt::format("two {} say that they are rank {}, {}: every rank must be used once",
                           in_threads ? "threads" : "processes", rank,
                           in_threads ? "both of " + own.in_words : other.in_words + " and " + own.in_words);
    }
    std::string was_there(int rank, const std::string& /*meeting*/, const MeetingProcess& other,
                          const MeetingProcess& own) const override {
        const bool in_threads = other.space == own.space && other.number == own.number;
        return fmt::format("rank {}: another {} has this rank in this world: {}", rank,
                           in_threads ? "thread" : "process", twice(rank, other, own));
    }
    std::string late(const Late& late) const override {
        const bool lacks_first = late.missing.empty() || late.missing.front() == late.first;
        std::string text = lacks_first ? fmt::format("rank {} did not answer; is it missing?", late.first) : "";
        if (!late.missing.empty())
            text += fmt::format("{}{} of them arrived in time; missing: {}", lacks_first ? " " : "",
                                late.size - static_cast<int>(late.missing.size()), rank_list(late.missing));
        return text + worlds_before(late.process_before, late.rank);
    }
};

// Whether this thread, which may come again as another rank, hears of the failure for the first time.
bool is_news(std::uint64_t nonce) {
    // A pointer: where a program loads the library late, the variables of all threads have to fit into a few hundred
    // bytes.
    thread_local std::unique_ptr<std::set<std::uint64_t>> known;
    if (!known) known = std::make_unique<std::set<std::uint64_t>>();
    return known->insert(nonce).second;
}

}  // namespace

std::string worlds_before(const std::string& process, int rank) {
    if (process.empty()) return "";
    return fmt::format("; a world has met there before, with {} as rank {}, and this rank waits for the next", process,
                       rank);
}

Meeting world_meeting(const MeetingTerms& terms, Meeting::Caller caller) {
    caller.sentences = std::make_shared<WorldSentences>();
    Meeting::Surroundings surroundings = Meeting::surroundings_of_this_process();
    surroundings.is_news = is_news;
    return {terms, std::move(caller), std::move(surroundings)};
}

}  // namespace tutti::rendezvous
