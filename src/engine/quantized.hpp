// Quantized: an all_reduce, or one of its halves, whose messages hold codes of few bits.
//
// By slices: each rank owns one. In the first leg every rank sends to each owner its part of the owner's slice, as
// codes; the owner adds up their values, in the order of ranks. In the second leg it sends the sums to all, as codes
// again, or as they are. So a value is rounded twice, however many ranks there are, and all ranks, the owner too, take
// the values of the codes: they have the same bits.
//
//     rank 0        rank 1                         one tile of a slice, in a message:
//     slice 0 <──── codes of its part of slice 0     | scales (float32) | codes |
//     codes   ────> slice 1
//     sums 0 ─────> codes of the sums of slice 0
//
// Slices are cut into tiles. Each turn of progress() does one thing for one tile: encode it for a peer, add up those
// that have come, decode a result. Meanwhile the mailbox moves the tiles before and behind it.
//
// Where all ranks use common scales, they find the largest magnitudes of all blocks first: owners of parts of that
// table collect and return them. Codes are whole numbers then, and are added up exactly.
//
// Memory: a bounded number of tiles for each peer. Threads: one at a time (the group's lock).
#pragma once

#include "engine/execution.hpp"
#include "engine/running.hpp"
#include "quantize/quantize.hpp"

#include <deque>

namespace tutti::engine {

/// One call of a quantised collective. Its memory, seed and residuals are the rank's own; all else is equal on all
/// ranks.
struct QuantizedCall {
    enum class Scales : std::uint8_t {
        own = 0,     ///< each rank's, of its own values
        common = 1,  ///< of the largest value of all ranks
        given = 2,   ///< `given_scale`, for all blocks
    };
    quantize::Format format = quantize::Format::int8;
    Scales scales = Scales::own;
    float given_scale = 1;
    std::uint64_t block = 256;           ///< elements with one scale; the last one of a slice may have fewer
    bool reduces = true;                 ///< there is a first leg
    bool gathers = true;                 ///< there is a second leg
    bool gathers_codes = true;           ///< and it is quantised
    bool averages = false;               ///< sums are divided by the number of ranks
    std::optional<std::uint64_t> seed;   ///< codes are rounded by chance
    DType input_type = DType::float32;   ///< float32, float16, bfloat16; int8: codes, with the given scale
    DType output_type = DType::float32;  ///< float32, float16, bfloat16
    /// Of the whole tensor if there is a first leg; of this rank's slice otherwise.
    const std::byte* input = nullptr;
    /// Of the whole tensor if there is a second leg; of this rank's slice otherwise. May be the input.
    std::byte* output = nullptr;
    /// The rounding errors of earlier calls, which this one adds to the values that it rounds; then its own errors.
    /// Null, or as many as input elements, and as elements of this rank's slice.
    float* residual = nullptr;
    float* result_residual = nullptr;
    std::vector<std::uint64_t> counts;  ///< elements of each rank's slice
    std::uint64_t tile = 1 << 15;       ///< elements of a message, at most
};

/// Equal slices of whole blocks, as far as possible.
std::vector<std::uint64_t> even_slices(std::uint64_t count, int ranks, std::uint64_t block, std::uint64_t tile);
/// Elements of a tile: whole blocks, where a block is not longer.
std::uint64_t tile_elements(std::uint64_t block, bool one_host);
/// Bytes that encode `count` elements in a leg.
std::uint64_t leg_bytes(quantize::Format format, std::uint64_t block, std::uint64_t count);

class Quantized final : public Running {
 public:
    Quantized(QuantizedCall call, const Operands& operands, RankContext& context);

    bool progress() override;
    bool done() const noexcept override;
    std::string where() const override;
    void add_waits(std::vector<int>& ranks) const override;
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept override { return mismatch_; }

 private:
    /// Channels: messages of one peer on one channel meet receives in order.
    enum class Part : std::uint64_t { codes, results, magnitudes, common_magnitudes };
    struct Message {
        std::unique_ptr<std::byte[]> memory;  // null: the caller's
        std::vector<std::unique_ptr<transport::Transfer>> transfers;
        bool arrived() const;
    };
    /// Tiles to or from one peer.
    struct Lane {
        std::uint64_t next = 0, end = 0;  // to be posted, and behind the last one
        std::uint64_t first = 0;          // of those that are under way
        std::deque<Message> messages;     // under way, or arrived and not looked at, from `first` on
        bool is_over() const noexcept { return next == end && messages.empty(); }
    };
    /// A tile of a slice, and where it lies.
    struct Tile {
        std::uint64_t offset;  // in its slice
        std::uint64_t at;      // in the whole tensor
        std::size_t scale;     // of the first block, in `scales_`
        quantize::Blocks run;
    };

    std::size_t ranks() const noexcept { return call_.counts.size(); }
    bool is_long() const noexcept { return call_.block > call_.tile; }
    bool has_table() const noexcept;
    bool sums_codes() const noexcept;
    bool encodes_input() const noexcept { return call_.reduces || call_.gathers_codes; }
    std::uint64_t tiles_of(std::size_t slice) const noexcept;
    Tile tile_of(std::size_t slice, std::uint64_t index) const;
    void lay_out();
    std::size_t message_bytes(const quantize::Blocks& run) const;
    std::size_t result_bytes(const quantize::Blocks& run) const;

    Message make_message(std::size_t bytes, Part part, std::span<const int> peers, bool receives, std::byte* memory);
    std::unique_ptr<std::byte[]> take_memory();
    void give_memory(Message& message);

    // The table of scales.
    bool find_magnitudes();
    bool exchange_magnitudes();
    void set_scales();
    std::pair<std::size_t, std::size_t> table_part(std::size_t owner) const;

    // Tiles.
    bool post_receives(Lane& lane, std::size_t slice, Part part, int peer);
    bool drop_sent(Lane& lane);
    void drop_first(Lane& lane);
    bool send_next(int peer);
    bool reduce_next();
    bool share_next();
    bool take_next(std::size_t owner);
    const void* source_of(const Tile& tile, DType& dtype);
    void encode_input(const Tile& tile, std::byte* message);
    void keep_lost(const quantize::Blocks& run, const float* values, const std::byte* message, float* residual) const;
    void add_up(const Tile& tile, std::span<const std::byte* const> messages);
    void finish(const Tile& tile);
    void decode(const Tile& tile, const std::byte* message) const;
    void send_to_all(const Tile& tile, std::unique_ptr<std::byte[]> memory);
    std::byte* output_at(const Tile& tile) const;
    quantize::Noise noise_of(const Tile& tile, std::uint64_t leg) const;

    QuantizedCall call_;
    Operands operands_;
    RankContext& context_;
    std::size_t me_;
    std::vector<int> others_;                // the one behind this rank first
    std::vector<std::uint64_t> offsets_;     // of slices, in the whole tensor
    std::vector<std::size_t> first_scales_;  // of slices, in the table
    std::size_t message_bytes_max_ = 0;

    std::vector<float> scales_;  // magnitudes first
    std::size_t looked_slice_ = 0;
    std::uint64_t looked_tile_ = 0;
    enum class Table { magnitudes, collecting, returning, ready } table_ = Table::ready;
    std::vector<std::vector<float>> collected_;
    std::vector<Message> exchanged_;

    std::vector<Lane> out_, in_, back_;  // by peer: codes to it, codes from it, results from it
    Lane results_;                       // of this rank's slice, to all others
    std::vector<std::unique_ptr<std::byte[]>> spare_;
    std::vector<float> sums_, sources_;
    std::vector<const std::byte*> arrived_;  // by rank: codes of the tile that is added up
    std::vector<std::int32_t> whole_sums_;
    std::vector<float> found_;  // scales of a tile
    std::optional<std::pair<int, std::uint64_t>> mismatch_;
};

}  // namespace tutti::engine
