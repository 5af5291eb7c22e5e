#include "rendezvous/news_log.hpp"

namespace tutti::rendezvous {

std::optional<News> NewsLog::add(const Verdict& verdict, Source source) {
    News news(verdict);
    if (!known_.insert(news.id).second) return std::nullopt;
    if (is_accusation(verdict.kind)) {
        // A rank that has answered for another's accusation does not accuse any more: the other may judge already.
        if (accusation_ && (source == Source::this_rank || outranks(*accusation_, verdict))) return std::nullopt;
        accusation_ = verdict;
    }
    bytes_ += news.bytes;
    is_final_ = is_final_ || ends_the_world(verdict.kind);
    return news;
}

}  // namespace tutti::rendezvous
