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

    /// Adds a verdict; returns its bytes, to be sent on all lifelines. Returns nothing if the verdict is known already
    /// (while lifelines move, it may arrive by two ways), or if it is an accusation and a known one prevails (over this
    /// rank's own, any known one).
    std::optional<News> add(const Verdict& verdict, Source source);
    /// All news so far, to be sent on a new lifeline. It includes goodbyes, so that a rank accepted later does not
    /// depend on a rank that has left. News is short and rare.
    const std::string& bytes() const noexcept { return bytes_; }
    /// Whether some of the news ends the world.
    bool is_final() const noexcept { return is_final_; }

 private:
    std::set<NewsId> known_;
    std::string bytes_;
    std::optional<Verdict> accusation_;  // the one that counts
    bool is_final_ = false;
};

}  // namespace tutti::rendezvous
