// Two legs of codes (ZeRO++, arXiv 2306.10209; QuickReduce): by slices, of which each rank owns one. In the first leg
// every rank sends to each owner its part of the owner's slice, as codes, and the owner adds up their values, in the
// order of ranks. In the second leg it sends the sums to all, as codes again, or as they are. So a value is rounded
// twice, however many ranks there are, and all ranks, the owner too, take the values of the codes: they have the same
// bits.
//
//     rank 0        rank 1                         one tile of a slice, in a message:
//     slice 0 <──── codes of its part of slice 0     | scales (float32) | codes |
//     codes   ────> slice 1
//     sums 0 ─────> codes of the sums of slice 0
//
// Slices are cut into tiles, and the tiles of both legs overlap. A tile that a longer block would cut becomes two, so
// that each has whole blocks, or a part of one. Memory: a bounded number of tiles for each peer.
#include "algorithm/quantized.hpp"
#include "algorithm/table.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

namespace tutti::algorithm {

namespace {

using schedule::CodeForm;
using Scales = Quantizing::Scales;

/// A tile of a slice.
struct Tile {
    std::uint64_t in_slice = 0, in_all = 0, count = 0;
    std::uint64_t scale = 0;    ///< its first one in the table
    bool begins_block = false;  ///< else it goes on with one
};

class Legs {
 public:
    Legs(Builder& b, const Context& c)
        : b_(b),
          ranks_(c.all),
          q_(*c.request.quantizing),
          form_{q_.format, std::min(q_.block, q_.tile)},
          reduces_(c.request.collective != Collective::all_gather),
          gathers_(c.request.collective != Collective::reduce_scatter),
          counts_(c.request.counts),
          input_(c.request.in_place ? Buffer::output : Buffer::input) {
        if (reduces_ && gathers_) counts_ = even_slices(c.request.count, size(), q_.block, q_.tile);
        if (!c.request.in_place && q_.input_type != q_.output_type) b_.input_type(q_.input_type);
        for (int step = 1; step < size(); ++step) others_.push_back((ranks_.me + step) % size());
        cut();
        TUTTI_ASSERT(counts_.size() == static_cast<std::size_t>(size()) && tiles_.size() == counts_.size());
        TUTTI_ASSERT(others_.size() + 1 == static_cast<std::size_t>(size()));
    }

    void write() {
        if (has_table()) write_table();
        // Tiles under way of one peer: fewer where there are many peers.
        places_ = std::clamp<std::uint64_t>(32 / std::max<std::uint64_t>(others_.size(), 1), 2, 8);
        places_ = std::min(places_, std::max<std::uint64_t>(1, most_tiles()));
        TUTTI_ASSERT(places_ >= 1);
        out_ = cells(reduces_ ? others_.size() : 0);
        in_ = cells(reduces_ ? others_.size() : 0);
        back_ = cells(gathers_codes() ? others_.size() : 0);
        own_ = cells(gathers_codes() ? 1 : 0);
        if (reduces_) own_codes_ = b_.scratch(cell(), form_);
        if (reduces_ && !adds_to_output()) sums_ = b_.scratch(std::min(q_.tile, longest()), DType::float32);
        // As many tiles are sent before the first one is added up, so that no rank waits for another one's.
        const std::uint64_t lag = std::max<std::uint64_t>(1, places_ - 1);
        const std::array<Stage, 3> all{[this](std::uint64_t t) { send_codes(t); },
                                       [this](std::uint64_t t) { finish_own(t); },
                                       [this](std::uint64_t t) { take_results(t); }};
        // Without a leg its stage is empty.
        interleave(most_tiles(), std::span(all).subspan(reduces_ ? 0 : 1), lag);
    }

 private:
    int size() const { return ranks_.size(); }
    std::size_t me() const { return static_cast<std::size_t>(ranks_.me); }
    bool is_long() const { return q_.block > q_.tile; }
    bool gathers_codes() const { return gathers_ && (!reduces_ || q_.gathers_codes); }
    bool adds_to_output() const { return !gathers_codes() && q_.output_type == DType::float32; }
    /// Scales are not found block by block on the way: common ones, and those of blocks that are longer than a tile.
    bool has_table() const { return q_.scales != Scales::given && (q_.scales == Scales::common || is_long()); }
    bool is_common() const { return q_.scales == Scales::common && size() > 1; }

    void cut() {
        tiles_.resize(counts_.size());
        std::uint64_t begin = 0;  // of the slice
        for (std::size_t slice = 0; slice < counts_.size(); ++slice) {
            // Short blocks begin with their slice, long ones with what is encoded.
            const std::uint64_t first = is_long() && reduces_ ? begin : 0;
            for (std::uint64_t at = 0; at < counts_[slice];) {
                const std::uint64_t block_begins = (first + at) / q_.block * q_.block;
                std::uint64_t end = std::min(counts_[slice], (at / q_.tile + 1) * q_.tile);
                if (is_long()) end = std::min(end, block_begins + q_.block - first);
                TUTTI_ASSERT(end > at);
                tiles_[slice].push_back({at, begin + at, end - at,
                                         is_long() ? (first + at) / q_.block : scales_ + at / q_.block,
                                         !is_long() || first + at == block_begins});
                at = end;
            }
            if (!is_long()) scales_ += form_.run(counts_[slice]).blocks();
            begin += counts_[slice];
        }
        if (is_long()) scales_ = CodeForm{q_.format, q_.block}.run(reduces_ ? begin : counts_[me()]).blocks();
    }
    std::uint64_t most_tiles() const { return std::ranges::max_element(tiles_, {}, &std::vector<Tile>::size)->size(); }
    std::uint64_t longest() const { return *std::ranges::max_element(counts_); }
    std::uint64_t cell() const {
        TUTTI_ASSERT(longest() > 0 || most_tiles() == 0);
        const std::uint64_t count = std::min(q_.tile, longest());
        return (count + form_.block - 1) / form_.block * form_.block;
    }
    /// For the tiles under way of so many peers.
    Chunk cells(std::size_t peers) { return b_.scratch(peers * places_ * cell(), form_); }
    /// Where the tile of a peer's lies, of which `nth` is its number among the others.
    Chunk place(const Chunk& cells, std::size_t nth, std::uint64_t tile, std::uint64_t count) const {
        TUTTI_ASSERT(count <= cell());
        return part(cells, (nth * places_ + tile % places_) * cell(), count);
    }
    bool has(std::size_t slice, std::uint64_t tile) const { return tile < tiles_[slice].size(); }
    Chunk input_of(const Tile& tile) const { return {input_, reduces_ ? tile.in_all : tile.in_slice, tile.count}; }
    Chunk output_of(const Tile& tile) const {
        return {Buffer::output, gathers_ ? tile.in_all : tile.in_slice, tile.count};
    }

    /// The largest magnitudes of all blocks. Common ones: owners of parts of the table collect and return them.
    void write_table() {
        TUTTI_ASSERT(has_table() && !table_);
        table_ = b_.scratch(scales_, DType::float32);
        for (std::size_t slice = 0; slice < tiles_.size(); ++slice) {
            if (!reduces_ && slice != me()) continue;
            for (const Tile& tile : tiles_[slice])
                b_.magnitudes(part(*table_, tile.scale, form_.run(tile.count).blocks()), input_of(tile), q_.block,
                              !tile.begins_block);
        }
        if (!is_common()) return;
        const Chunk mine = piece_of(ranks_.me);
        std::vector<Chunk> all{mine};
        for (const int peer : others_) {
            all.push_back(b_.scratch(mine.count, DType::float32));
            b_.receive(ranks_.rank(peer), all.back());
            b_.send(ranks_.rank(peer), piece_of(peer));
        }
        b_.largest(mine, all);
        for (const int peer : others_) {
            b_.receive(ranks_.rank(peer), piece_of(peer));
            b_.send(ranks_.rank(peer), mine);
        }
    }
    Chunk piece_of(int owner) const {
        TUTTI_ASSERT(owner >= 0 && owner < size() && table_);
        const auto n = static_cast<std::uint64_t>(size()), i = static_cast<std::uint64_t>(owner);
        const std::uint64_t begin = scales_ * i / n;
        return part(*table_, begin, scales_ * (i + 1) / n - begin);
    }

    void encode_input(const Chunk& codes, const Tile& tile) {
        Builder::Encoding encoding{.given = q_.scales == Scales::given};
        if (table_) encoding.magnitudes = part(*table_, tile.scale, form_.run(tile.count).blocks());
        b_.encode(codes, input_of(tile), encoding);
    }

    /// To the owners of the other slices.
    void send_codes(std::uint64_t t) {
        for (std::size_t nth = 0; nth < others_.size(); ++nth) {
            const auto slice = static_cast<std::size_t>(others_[nth]);
            const Rank peer = ranks_.rank(others_[nth]);
            if (has(me(), t)) b_.receive(peer, place(in_, nth, t, tiles_[me()][t].count));
            if (!has(slice, t)) continue;
            const Tile& tile = tiles_[slice][t];
            const Chunk codes = place(out_, nth, t, tile.count);
            encode_input(codes, tile);
            b_.send(peer, codes);
        }
    }

    /// A tile of this rank's slice becomes results, here and on the way to all others; and theirs are received.
    void finish_own(std::uint64_t t) {
        if (has(me(), t)) {
            const Tile& tile = tiles_[me()][t];
            const Chunk codes = place(own_, 0, t, tile.count);
            if (reduces_)
                reduce(tile, t, codes);
            else
                encode_input(codes, tile);
            if (gathers_codes()) b_.decode(output_of(tile), codes);
            for (const int peer : others_) {
                if (gathers_) b_.send(ranks_.rank(peer), gathers_codes() ? codes : output_of(tile));
            }
        }
        for (std::size_t nth = 0; nth < others_.size(); ++nth) {
            const auto slice = static_cast<std::size_t>(others_[nth]);
            if (!gathers_ || !has(slice, t)) continue;
            const Tile& tile = tiles_[slice][t];
            b_.receive(ranks_.rank(others_[nth]), gathers_codes() ? place(back_, nth, t, tile.count) : output_of(tile));
        }
    }
    void reduce(const Tile& tile, std::uint64_t t, const Chunk& codes) {
        TUTTI_ASSERT(reduces_ && tile.count > 0);
        std::vector<Chunk> sources(counts_.size());
        sources[me()] = part(own_codes_, 0, tile.count);
        for (std::size_t nth = 0; nth < others_.size(); ++nth)
            sources[static_cast<std::size_t>(others_[nth])] = place(in_, nth, t, tile.count);
        TUTTI_ASSERT(std::ranges::none_of(sources, [&](const Chunk& source) { return source.count != tile.count; }));
        encode_input(sources[me()], tile);
        const Chunk output = output_of(tile);
        const Chunk sums = adds_to_output() ? output : part(sums_, 0, tile.count);
        b_.decode_add(sums, sources, q_.scales != Scales::own, true);
        if (gathers_codes())
            b_.encode(codes, sums, {.number = tile.in_all});
        else if (!adds_to_output())
            b_.convert(output, sums);
    }

    void take_results(std::uint64_t t) {
        for (std::size_t nth = 0; gathers_codes() && nth < others_.size(); ++nth) {
            const auto slice = static_cast<std::size_t>(others_[nth]);
            if (!has(slice, t)) continue;
            const Tile& tile = tiles_[slice][t];
            b_.decode(output_of(tile), place(back_, nth, t, tile.count));
        }
    }

    Builder& b_;
    const RankList& ranks_;
    const Quantizing& q_;
    CodeForm form_;
    bool reduces_, gathers_;
    std::vector<std::uint64_t> counts_;  // of the slices
    Buffer input_;
    std::vector<int> others_;               // the one behind this rank first
    std::vector<std::vector<Tile>> tiles_;  // by slice
    std::uint64_t scales_ = 0;              // in the table
    std::optional<Chunk> table_;
    std::uint64_t places_ = 1;
    Chunk out_, in_, back_, own_, own_codes_, sums_;
};

}  // namespace

namespace messages {

void two_legs(Builder& b, const Context& c) {
    Legs(b, c).write();
}

}  // namespace messages

}  // namespace tutti::algorithm
