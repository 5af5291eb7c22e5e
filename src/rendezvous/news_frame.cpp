#include "rendezvous/news_frame.hpp"

#include "core/hash.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace tutti::rendezvous {
namespace {

std::string bytes_of(const NewsFrame& frame, std::string_view text) {
    return std::string(reinterpret_cast<const char*>(&frame), sizeof frame).append(text);
}

bool may_be_about_nobody(std::uint32_t kind) {
    const auto verdict = static_cast<VerdictKind>(kind);
    return is_accusation(verdict) || verdict == VerdictKind::aborted || verdict == VerdictKind::judged;
}

bool is_known(std::uint32_t kind) {
    return (kind >= static_cast<std::uint32_t>(VerdictKind::peer_lost) &&
            kind <= static_cast<std::uint32_t>(VerdictKind::damaged)) ||
           (kind >= static_cast<std::uint32_t>(Word::attached) &&
            kind <= static_cast<std::uint32_t>(Word::all_have_it));
}

}  // namespace

// The id is a hash of all the rest.
News::News(const Verdict& verdict) {
    const std::string_view text = std::string_view(verdict.text).substr(0, NewsFrame::text_max);
    NewsFrame frame{.kind = static_cast<std::uint32_t>(verdict.kind),
                    .rank = verdict.rank,
                    .text_bytes = static_cast<std::uint32_t>(text.size()),
                    .group = verdict.group,
                    .from = verdict.from,
                    .sequence = verdict.sequence};
    frame.id = id = fnv1a(bytes_of(frame, text));
    bytes = bytes_of(frame, text);
}

std::string to_bytes(Word word, int rank, NewsId id) {
    return bytes_of({.kind = static_cast<std::uint32_t>(word), .rank = rank, .id = id}, {});
}

Verdict ReadNews::verdict() && {
    return {static_cast<VerdictKind>(frame.kind), frame.rank, std::move(text), frame.group, frame.from, frame.sequence};
}

void NewsReader::feed(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool NewsReader::makes_sense(const NewsFrame& frame) const {
    const bool about =
        (frame.rank >= 0 || (frame.rank == -1 && may_be_about_nobody(frame.kind))) && frame.rank < world_size_;
    return is_known(frame.kind) && about && frame.text_bytes <= NewsFrame::text_max && frame.from >= -1 &&
           frame.from < world_size_;
}

std::optional<ReadNews> NewsReader::next() {
    if (broken_ || bytes_.size() < sizeof(NewsFrame)) return std::nullopt;
    ReadNews news;
    std::memcpy(&news.frame, bytes_.data(), sizeof news.frame);
    if (!makes_sense(news.frame)) {
        broken_ = true;
        return std::nullopt;
    }
    const std::size_t all = sizeof news.frame + news.frame.text_bytes;
    if (bytes_.size() < all) return std::nullopt;
    news.text = bytes_.substr(sizeof news.frame, news.frame.text_bytes);
    bytes_.erase(0, all);
    return news;
}

}  // namespace tutti::rendezvous
