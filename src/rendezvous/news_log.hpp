// NewsLog: the news that a rank has passed on over its lifelines, each piece once, and what follows from them for the
// next: which accusation counts, and whether the world has ended.
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

    /// The verdict's bytes, for all lifelines. Nothing if it is known: while lifelines move there may be two ways to a
    /// rank; and nothing for an accusation where another counts.
    std::optional<News> add(const Verdict& verdict, Source source);
    /// All of them, for a lifeline that was not there before; goodbyes too: a rank that is accepted later counts on
    /// none that has gone. They are few and short.
    const std::string& bytes() const noexcept { return bytes_; }
    /// One of them ends the world.
    bool is_final() const noexcept { return is_final_; }

 private:
    std::set<NewsId> known_;
    std::string bytes_;
    std::optional<Verdict> accusation_;  // the one that counts
    bool is_final_ = false;
};

}  // namespace tutti::rendezvous
