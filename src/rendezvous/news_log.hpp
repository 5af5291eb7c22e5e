// NewsLog: the news that a rank has passed on over its lifelines, each piece once, and what it implies for later news:
// which accusation prevails, and whether the world has ended.
//
// Threads: one at a time.
#pragma once

#include "rendezvous/news_frame.hpp"

#include <optional>
#include <set>
#include <string>

namespace tutti::rendezvous {

class NewsLog {
 public:
    enum class Source { this_rank, neighbour };

    /// The verdict's bytes, for all lifelines. Nothing if the verdict is known (while lifelines move it may arrive by
    /// two ways), or if it is an accusation and another one prevails.
    std::optional<News> add(const Verdict& verdict, Source source);
    /// All news so far, for a new lifeline; goodbyes, too, so that a rank accepted later depends on no rank that has
    /// left. News is short and rare.
    const std::string& bytes() const noexcept { return bytes_; }
    /// Some of the news ends the world.
    bool is_final() const noexcept { return is_final_; }

 private:
    std::set<NewsId> known_;
    std::string bytes_;
    std::optional<Verdict> accusation_;  // the one that counts
    bool is_final_ = false;
};

}  // namespace tutti::rendezvous
