#include "schedule/steps/use.hpp"

#include "core/assert.hpp"
#include "core/suggestion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace tutti::schedule {
namespace {

using Extent = CollectiveTraits::Extent;

/// The chunks of one line; of no elements where the rank has none.
struct Chunks {
    Chunk target, source;
};

bool gets(const Part& part) {
    return traits_of(part.collective).writes(part.me, part.root);
}
// A broadcast has one buffer, its output.
bool gives(const Part& part) {
    return part.collective != Collective::broadcast && traits_of(part.collective).reads(part.me, part.root);
}

Chunks read_chunks(Line& line, const Part& part) {
    Chunks chunks;
    if (gets(part)) chunks.target = line.chunk();
    if (gives(part)) chunks.source = line.chunk();
    return chunks;
}

std::uint64_t equal_block(const Line& line, std::uint64_t count, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    if (count % static_cast<std::uint64_t>(ranks) != 0)
        line.fail(fmt::format("{} elements are no {} equal blocks", count, ranks),
                  fmt::format("a multiple of {}, or \"counts\" with the elements of each rank's block", ranks));
    return count / static_cast<std::uint64_t>(ranks);
}

// One block in each rank, of the lengths that the line says, or of the chunks'.
void read_blocks(Line& line, Part& part, const Chunks& chunks) {
    TUTTI_ASSERT(part.me >= 0 && part.me < part.ranks);
    const bool target_is_whole = traits_of(part.collective).output == Extent::all_blocks;
    const bool has_all = target_is_whole ? gets(part) : gives(part),
               has_own = target_is_whole ? gives(part) : gets(part);
    const Chunk& whole = target_is_whole ? chunks.target : chunks.source;
    const Chunk& block = target_is_whole ? chunks.source : chunks.target;
    if (line.flag("counts"))
        part.counts = line.counts(part.ranks);
    else
        part.counts.assign(static_cast<std::size_t>(part.ranks),
                           has_all ? equal_block(line, whole.count, part.ranks) : block.count);
    const std::uint64_t mine = part.counts[static_cast<std::size_t>(part.me)];
    TUTTI_ASSERT(part.counts.size() == static_cast<std::size_t>(part.ranks));
    const std::uint64_t sum = std::accumulate(part.counts.begin(), part.counts.end(), std::uint64_t{0});
    if (has_own && block.count != mine)
        line.fail(fmt::format("{} elements for this rank's block", block.count), fmt::format("{}", mine));
    if (has_all && whole.count != sum)
        line.fail(fmt::format("{} elements for the blocks of all", whole.count), fmt::format("{}", sum));
}

void read_counts(Line& line, Part& part, const Chunks& chunks) {
    TUTTI_ASSERT(part.ranks > 0);
    const CollectiveTraits& traits = traits_of(part.collective);
    if (traits.has_blocks()) return read_blocks(line, part, chunks);
    if (gives(part) && gets(part)) line.equal(chunks.target, chunks.source);
    const Chunk& one = gets(part) ? chunks.target : chunks.source;
    part.count = traits.input == Extent::exchanged ? equal_block(line, one.count, part.ranks) : one.count;
}

}  // namespace

void Uses::read(Line& line, Reading& r) {
    if (parts_ == nullptr) line.fail("there are no algorithms for parts here", "steps");
    Use use{.line = line, .alternative = r.alternative};
    use.part.collective = line.collective();
    use.algorithm = line.word("an algorithm");
    use.ranks = line.ranks(r.ranks);
    const auto position = [&](Rank rank) {
        const auto found = std::ranges::find(use.ranks, rank);
        if (found == use.ranks.end())
            line.fail(fmt::format("rank {} is not among the ranks {}", rank, fmt::join(use.ranks, ",")),
                      "a rank of them");
        return static_cast<Rank>(found - use.ranks.begin());
    };
    const CollectiveTraits& traits = traits_of(use.part.collective);
    if (traits.exchanges() && traits.is_rooted())
        line.fail(fmt::format("{} is for ranks that do not know the others' counts", to_string(use.part.collective)),
                  "gather or scatter, with counts");
    use.part.ranks = static_cast<int>(use.ranks.size());
    use.part.me = position(r.rank);
    if (traits.is_rooted()) {
        if (!line.flag("root"))
            line.fail(fmt::format("{} has a root", to_string(use.part.collective)), "\"root RANK\" behind the ranks");
        use.part.root = position(line.rank(r.ranks));
    }
    const Chunks chunks = read_chunks(line, use.part);
    use.finishes = traits.combines && line.flag("finish");
    read_counts(line, use.part, chunks);
    put(line, r, use, chunks.target, chunks.source);
    all_.push_back(std::move(use));
}

void Uses::put(Line& line, Reading& r, const Use& use, const Chunk& target, const Chunk& source) {
    TUTTI_ASSERT(static_cast<std::size_t>(use.part.ranks) == use.ranks.size());
    TUTTI_ASSERT(use.ranks[static_cast<std::size_t>(use.part.me)] == r.rank);
    const auto names = parts_->algorithms(use.part);
    if (std::ranges::find(names, use.algorithm) == names.end())
        line.fail(fmt::format("\"{}\" is no algorithm for {} among {} ranks{}", use.algorithm,
                              to_string(use.part.collective), use.part.ranks, did_you_mean(use.algorithm, names)),
                  fmt::format("one of {}", fmt::join(names, ", ")));
    line.close_scratch();
    const std::int64_t before = r.builder.last_step();
    TUTTI_ASSERT(line.scratch_is_closed());
    schedule::put(r.builder, parts_->schedule(use.part, use.algorithm),
                  {.ranks = use.ranks, .target = target, .source = source, .finishes = use.finishes});
    steps_ += static_cast<std::size_t>(r.builder.last_step() - before);
    TUTTI_ASSERT(r.builder.last_step() >= before);
    if (steps_ > steps_max)
        line.fail(fmt::format("the parts of this text have more than {} steps", steps_max), "fewer, or smaller, parts");
    r.scratch = 0;
    for (const BufferInfo& buffer : r.builder.buffers()) r.scratch += buffer.count;
    if (r.scratch > elements_max)
        line.fail(fmt::format("{} scratch elements with this part", r.scratch),
                  fmt::format("at most {}", elements_max));
}

bool Uses::Use::meets(const Use& other) const {
    return part.collective == other.part.collective && algorithm == other.algorithm && part.root == other.part.root &&
           part.count == other.part.count && part.counts == other.part.counts && finishes == other.finishes;
}

// Each of a rank's lines has one that meets it in the other rank.
void Uses::check(const Lines& uses, const Lines& others, Rank other) {
    TUTTI_ASSERT(other >= 0);
    TUTTI_ASSERT(!uses.empty() || !others.empty());
    for (std::size_t k = 0; k < uses.size(); ++k) {
        const Use& use = *uses[k];
        if (k >= others.size())
            use.line.fail(fmt::format("rank {} has no line \"use\" that meets this one", other),
                          fmt::format("one in each of the ranks {}", fmt::join(use.ranks, ",")));
        if (!use.meets(*others[k]))
            use.line.fail(
                fmt::format("rank {} has a different one in its place, in line {}", other, others[k]->line.number()),
                "the same collective, algorithm, root, counts and finish in all of its ranks");
    }
}

void Uses::check() const {
    // By list: those of each of its ranks, in the order of the text.
    std::map<std::pair<std::size_t, std::vector<Rank>>, std::vector<Lines>> lists;
    for (const Use& use : all_) {
        auto& of_ranks = lists[{use.alternative, use.ranks}];
        TUTTI_ASSERT(static_cast<std::size_t>(use.part.me) < use.ranks.size());
        of_ranks.resize(use.ranks.size());
        of_ranks[static_cast<std::size_t>(use.part.me)].push_back(&use);
    }
    for (const auto& [list, of_ranks] : lists) {
        for (std::size_t i = 1; i < of_ranks.size(); ++i) {
            check(of_ranks[0], of_ranks[i], list.second[i]);
            check(of_ranks[i], of_ranks[0], list.second[0]);
        }
    }
}

}  // namespace tutti::schedule
