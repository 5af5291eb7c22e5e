#include "engine/quantized.hpp"

#include "reduce/reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tutti::engine {

using quantize::Blocks;
using quantize::Into;

namespace {

// Tiles of one peer that are under way, or have come and wait: fewer where there are many peers.
std::size_t tiles_under_way(std::size_t ranks) {
    return std::clamp<std::size_t>(32 / std::max<std::size_t>(ranks - 1, 1), 2, 8);
}

std::size_t scale_bytes(const Blocks& run) {
    return run.blocks() * sizeof(float);
}
float* scales_in(std::byte* message) {
    return reinterpret_cast<float*>(message);
}
const float* scales_in(const std::byte* message) {
    return reinterpret_cast<const float*>(message);
}

// Magnitudes are positive, or NaN: their bits order as they do, and NaN comes last.
float larger(float a, float b) {
    return std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

}  // namespace

std::vector<std::uint64_t> even_slices(std::uint64_t count, int ranks, std::uint64_t block, std::uint64_t tile) {
    const std::uint64_t unit = block <= tile ? block : 64;
    const std::uint64_t units = (count + unit - 1) / unit;
    const auto n = static_cast<std::uint64_t>(ranks);
    const auto end_of = [&](std::uint64_t slice) {
        const std::uint64_t first = units / n * slice + std::min(units % n, slice);
        return std::min(count, first * unit);
    };
    std::vector<std::uint64_t> counts;
    for (std::uint64_t r = 0; r < n; ++r) counts.push_back(end_of(r + 1) - end_of(r));
    return counts;
}

std::uint64_t tile_elements(std::uint64_t block, bool one_host) {
    const std::uint64_t most = one_host ? 1 << 15 : 1 << 17;
    return block <= most ? most / block * block : most;
}

std::uint64_t leg_bytes(quantize::Format format, std::uint64_t block, std::uint64_t count) {
    const Blocks run{count, block, block};
    return scale_bytes(run) + run.code_bytes(format);
}

bool Quantized::Message::arrived() const {
    return std::ranges::all_of(transfers, [](const auto& t) { return t->done; });
}

Quantized::Quantized(QuantizedCall call, const Operands& operands, RankContext& context)
    : call_(std::move(call)),
      operands_(operands),
      context_(context),
      me_(static_cast<std::size_t>(context.rank)),
      out_(ranks()),
      in_(ranks()),
      back_(ranks()),
      arrived_(ranks()) {
    for (std::size_t step = 1; step < ranks(); ++step) others_.push_back(static_cast<int>((me_ + step) % ranks()));
    lay_out();
    for (std::size_t p = 0; p < ranks(); ++p) {
        if (p == me_) continue;
        if (call_.reduces) out_[p].end = tiles_of(p), in_[p].end = tiles_of(me_);
        if (call_.gathers) back_[p].end = tiles_of(p);
    }
    results_.end = tiles_of(me_);
    sums_.resize(std::min<std::uint64_t>(call_.tile, call_.counts[me_]));
    if (sums_codes()) whole_sums_.resize(sums_.size());
    if (has_table()) table_ = Table::magnitudes;
}

// ---- Places

void Quantized::lay_out() {
    offsets_.resize(ranks());
    std::exclusive_scan(call_.counts.begin(), call_.counts.end(), offsets_.begin(), std::uint64_t{0});
    const std::uint64_t whole = offsets_.back() + call_.counts.back();
    first_scales_.resize(ranks());
    std::size_t blocks = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
        first_scales_[r] = blocks;
        if (!is_long()) blocks += Blocks{call_.counts[r], call_.block, call_.block}.blocks();
    }
    if (is_long()) blocks = Blocks{call_.reduces ? whole : call_.counts[me_], call_.block, call_.block}.blocks();
    if (has_table()) scales_.assign(blocks, 0);
    // A tile that begins inside of a block reaches into one more.
    const std::uint64_t longest = std::min(call_.tile, *std::ranges::max_element(call_.counts));
    const Blocks run{longest, call_.block, is_long() ? std::max<std::uint64_t>(longest / 2, 1) : call_.block};
    message_bytes_max_ = message_bytes(run) + sizeof(float);
}

// Whether scales are not found block by block on the way: common ones, and those of blocks that are longer than a tile.
bool Quantized::has_table() const noexcept {
    if (!encodes_input() || call_.scales == QuantizedCall::Scales::given) return false;
    return call_.scales == QuantizedCall::Scales::common || is_long();
}

bool Quantized::sums_codes() const noexcept {
    return call_.reduces && call_.scales != QuantizedCall::Scales::own && quantize::is_whole(call_.format);
}

std::uint64_t Quantized::tiles_of(std::size_t slice) const noexcept {
    return (call_.counts[slice] + call_.tile - 1) / call_.tile;
}

Quantized::Tile Quantized::tile_of(std::size_t slice, std::uint64_t index) const {
    Tile tile;
    tile.offset = index * call_.tile;
    tile.at = offsets_[slice] + tile.offset;
    tile.run.count = std::min(call_.tile, call_.counts[slice] - tile.offset);
    tile.run.block = call_.block;
    // Short blocks begin with their slice. Long ones begin with the encoded range, and slices may cut them.
    const std::uint64_t place = !is_long() || !call_.reduces ? tile.offset : tile.at;
    tile.run.lead = call_.block - place % call_.block;
    tile.scale = (is_long() ? 0 : first_scales_[slice]) + place / call_.block;
    return tile;
}

std::size_t Quantized::message_bytes(const Blocks& run) const {
    return scale_bytes(run) + run.code_bytes(call_.format);
}
std::size_t Quantized::result_bytes(const Blocks& run) const {
    return call_.gathers_codes ? message_bytes(run) : run.count * size_of(call_.output_type);
}
std::byte* Quantized::output_at(const Tile& tile) const {
    return call_.output + (call_.gathers ? tile.at : tile.offset) * size_of(call_.output_type);
}

// ---- Messages

std::unique_ptr<std::byte[]> Quantized::take_memory() {
    if (spare_.empty()) return std::make_unique_for_overwrite<std::byte[]>(message_bytes_max_);
    auto memory = std::move(spare_.back());
    spare_.pop_back();
    return memory;
}
void Quantized::give_memory(Message& message) {
    if (message.memory) spare_.push_back(std::move(message.memory));
}

Quantized::Message Quantized::make_message(std::size_t bytes, Part part, std::span<const int> peers, bool receives,
                                           std::byte* memory) {
    Message message;
    for (const int peer : peers) {
        auto transfer = std::make_unique<transport::Transfer>();
        transfer->peer = context_.world_of.empty() ? peer : context_.world_of[static_cast<std::size_t>(peer)];
        transfer->channel = operands_.channel | static_cast<std::uint64_t>(part) << part_of_channel_shift;
        transfer->fingerprint = operands_.fingerprint;
        transfer->bytes = bytes;
        transfer->source = receives ? nullptr : memory;
        transfer->target = receives ? memory : nullptr;
        transport::Transfer& posted = *transfer;
        message.transfers.push_back(std::move(transfer));
        if (receives)
            context_.mailbox->post_receive(posted);
        else
            context_.mailbox->post_send(posted);
    }
    return message;
}

// ---- The table of scales

// The values to encode, with the rounding errors of earlier calls added. They stay until the next call of this
// function.
const void* Quantized::source_of(const Tile& tile, DType& dtype) {
    const std::uint64_t first = call_.reduces ? tile.at : tile.offset;
    const std::byte* source = call_.input + first * size_of(call_.input_type);
    dtype = call_.input_type;
    if (call_.residual == nullptr) return source;
    dtype = DType::float32;
    sources_.resize(std::max<std::size_t>(sources_.size(), tile.run.count));
    kernels::premultiply(call_.input_type, sources_.data(), source, 1.0, tile.run.count);
    for (std::size_t i = 0; i < tile.run.count; ++i) sources_[i] += call_.residual[first + i];
    return sources_.data();
}

// Of the next tile; false: of all tiles.
bool Quantized::find_magnitudes() {
    const std::size_t end = call_.reduces ? ranks() : me_ + 1;
    if (!call_.reduces) looked_slice_ = std::max(looked_slice_, me_);
    while (looked_slice_ < end && looked_tile_ == tiles_of(looked_slice_)) ++looked_slice_, looked_tile_ = 0;
    if (looked_slice_ == end) return false;
    const Tile tile = tile_of(looked_slice_, looked_tile_++);
    DType dtype{};
    const void* source = source_of(tile, dtype);
    found_.resize(tile.run.blocks());
    quantize::find_magnitudes(dtype, source, tile.run, found_.data());
    for (std::size_t i = 0; i < found_.size(); ++i) {
        float& known = scales_[tile.scale + i];
        known = larger(known, found_[i]);
    }
    return true;
}

std::pair<std::size_t, std::size_t> Quantized::table_part(std::size_t owner) const {
    const std::size_t first = scales_.size() * owner / ranks();
    return {first, scales_.size() * (owner + 1) / ranks() - first};
}

// One step further; false: nothing has come.
bool Quantized::exchange_magnitudes() {
    const bool arrived = std::ranges::all_of(exchanged_, &Message::arrived);
    if (!arrived) return false;
    exchanged_.clear();
    const auto [own_first, own_count] = table_part(me_);
    const auto exchange = [&](Part part, const auto& what_for, const auto& where_from) {
        for (const int peer : others_) {
            const auto [send, send_count] = what_for(static_cast<std::size_t>(peer));
            const auto [receive, receive_count] = where_from(static_cast<std::size_t>(peer));
            const auto bytes_at = [](float* at) { return reinterpret_cast<std::byte*>(at); };
            if (receive_count > 0)
                exchanged_.push_back(
                    make_message(receive_count * sizeof(float), part, {&peer, 1}, true, bytes_at(receive)));
            if (send_count > 0)
                exchanged_.push_back(make_message(send_count * sizeof(float), part, {&peer, 1}, false, bytes_at(send)));
        }
    };
    const auto part_of = [&](std::size_t owner) {
        const auto [first, count] = table_part(owner);
        return std::pair(scales_.data() + first, count);
    };
    if (table_ == Table::magnitudes) {
        collected_.assign(ranks(), std::vector<float>(own_count));
        exchange(Part::magnitudes, part_of,
                 [&](std::size_t peer) { return std::pair(collected_[peer].data(), own_count); });
        table_ = Table::collecting;
    } else if (table_ == Table::collecting) {
        for (std::size_t p = 0; p < ranks(); ++p) {
            if (p == me_) continue;
            for (std::size_t i = 0; i < own_count; ++i)
                scales_[own_first + i] = larger(scales_[own_first + i], collected_[p][i]);
        }
        exchange(
            Part::common_magnitudes, [&](std::size_t) { return part_of(me_); }, part_of);
        table_ = Table::returning;
    } else {
        collected_.clear();
        set_scales();
    }
    return true;
}

void Quantized::set_scales() {
    for (float& scale : scales_) scale = quantize::scale_of(call_.format, scale);
    table_ = Table::ready;
}

// ---- Codes

quantize::Noise Quantized::noise_of(const Tile& tile, std::uint64_t leg) const {
    return {*call_.seed, 2 * me_ + leg, call_.reduces ? tile.at : tile.offset};
}

void Quantized::encode_input(const Tile& tile, std::byte* message) {
    DType dtype{};
    const void* source = source_of(tile, dtype);
    float* scales = scales_in(message);
    auto kind = quantize::Scales::found;
    if (call_.scales == QuantizedCall::Scales::given) {
        kind = quantize::Scales::given;
        scales[0] = call_.given_scale;
    } else if (has_table()) {
        kind = quantize::Scales::before;
        std::copy_n(scales_.data() + tile.scale, tile.run.blocks(), scales);
    }
    const auto noise = call_.seed ? std::optional(noise_of(tile, 0)) : std::nullopt;
    quantize::encode(call_.format, dtype, source, tile.run, kind, scales, message + scale_bytes(tile.run),
                     noise ? &*noise : nullptr);
    if (call_.residual != nullptr)
        keep_lost(tile.run, sources_.data(), message, call_.residual + (call_.reduces ? tile.at : tile.offset));
}

// Keeps the part of the values that the codes lose. Of a block that is not finite, nothing: it would never be finite
// again.
void Quantized::keep_lost(const Blocks& run, const float* values, const std::byte* message, float* residual) const {
    const float* scales = scales_in(message);
    std::copy_n(values, run.count, residual);
    quantize::add(call_.format, message + scale_bytes(run), scales, run, Into::difference, residual);
    run.for_each_block(call_.format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t /*code*/) {
        if (std::isnan(scales[i])) std::fill_n(residual + at, count, 0.0F);
    });
}

void Quantized::add_up(const Tile& tile, std::span<const std::byte* const> messages) {
    const Blocks& run = tile.run;
    const auto codes_of = [&](const std::byte* message) { return message + scale_bytes(run); };
    Into into = Into::fresh;
    for (const std::byte* message : messages) {
        if (sums_codes())
            quantize::add_codes(call_.format, codes_of(message), run, into, whole_sums_.data());
        else
            quantize::add(call_.format, codes_of(message), scales_in(message), run, into, sums_.data());
        into = Into::sum;
    }
    if (sums_codes()) {
        run.for_each_block(call_.format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t /*code*/) {
            float scale = scales_in(messages[0])[i];  // all ranks have it, or NaN
            for (const std::byte* message : messages) scale = larger(scale, scales_in(message)[i]);
            for (std::size_t k = at; k < at + count; ++k) sums_[k] = static_cast<float>(whole_sums_[k]) * scale;
        });
    }
    if (call_.averages) {
        const auto divisor = static_cast<float>(ranks());
        for (std::size_t i = 0; i < run.count; ++i) sums_[i] /= divisor;
    }
}

// The sums of a tile of this rank's slice become results, here and on the way to all others.
void Quantized::finish(const Tile& tile) {
    const Blocks& run = tile.run;
    if (!call_.gathers || !call_.gathers_codes) {
        kernels::round_to(call_.output_type, output_at(tile), DType::float32, sums_.data(), run.count);
        return send_to_all(tile, nullptr);
    }
    if (call_.result_residual != nullptr) {
        for (std::size_t i = 0; i < run.count; ++i) sums_[i] += call_.result_residual[tile.offset + i];
    }
    auto memory = take_memory();
    const auto noise = call_.seed ? std::optional(noise_of(tile, 1)) : std::nullopt;
    quantize::encode(call_.format, DType::float32, sums_.data(), run, quantize::Scales::found, scales_in(memory.get()),
                     memory.get() + scale_bytes(run), noise ? &*noise : nullptr);
    if (call_.result_residual != nullptr)
        keep_lost(run, sums_.data(), memory.get(), call_.result_residual + tile.offset);
    decode(tile, memory.get());
    send_to_all(tile, std::move(memory));
}

void Quantized::decode(const Tile& tile, const std::byte* message) const {
    quantize::decode(call_.format, message + scale_bytes(tile.run), scales_in(message), tile.run, call_.output_type,
                     output_at(tile));
}

// ---- Tiles

bool Quantized::post_receives(Lane& lane, std::size_t slice, Part part, int peer) {
    bool moved = false;
    while (lane.next < lane.end && lane.messages.size() < tiles_under_way(ranks())) {
        const Tile tile = tile_of(slice, lane.next++);
        const bool codes = part == Part::codes || call_.gathers_codes;
        auto memory = codes ? take_memory() : nullptr;
        Message message = make_message(codes ? message_bytes(tile.run) : result_bytes(tile.run), part, {&peer, 1}, true,
                                       codes ? memory.get() : output_at(tile));
        message.memory = std::move(memory);
        lane.messages.push_back(std::move(message));
        moved = true;
    }
    return moved;
}

bool Quantized::drop_sent(Lane& lane) {
    bool moved = false;
    while (!lane.messages.empty() && lane.messages.front().arrived()) {
        drop_first(lane);
        moved = true;
    }
    return moved;
}
void Quantized::drop_first(Lane& lane) {
    give_memory(lane.messages.front());
    lane.messages.pop_front();
    ++lane.first;
}

bool Quantized::send_next(int peer) {
    const auto slice = static_cast<std::size_t>(peer);
    Lane& lane = out_[slice];
    if (lane.next == lane.end || lane.messages.size() >= tiles_under_way(ranks())) return false;
    const Tile tile = tile_of(slice, lane.next++);
    auto memory = take_memory();
    encode_input(tile, memory.get());
    Message message = make_message(message_bytes(tile.run), Part::codes, {&peer, 1}, false, memory.get());
    message.memory = std::move(memory);
    lane.messages.push_back(std::move(message));
    return true;
}

// Of this rank's slice, when every rank's part of it is here.
bool Quantized::reduce_next() {
    if (results_.next == results_.end || results_.messages.size() >= tiles_under_way(ranks())) return false;
    for (const int peer : others_) {
        const auto p = static_cast<std::size_t>(peer);
        if (in_[p].messages.empty() || !in_[p].messages.front().arrived()) return false;
        arrived_[p] = in_[p].messages.front().memory.get();
    }
    const Tile tile = tile_of(me_, results_.next++);
    auto own = take_memory();
    encode_input(tile, own.get());
    arrived_[me_] = own.get();
    add_up(tile, arrived_);
    spare_.push_back(std::move(own));
    for (const int peer : others_) drop_first(in_[static_cast<std::size_t>(peer)]);
    finish(tile);
    return true;
}

// For calls without a first leg.
bool Quantized::share_next() {
    if (results_.next == results_.end || results_.messages.size() >= tiles_under_way(ranks())) return false;
    const Tile tile = tile_of(me_, results_.next++);
    auto memory = take_memory();
    encode_input(tile, memory.get());
    decode(tile, memory.get());
    send_to_all(tile, std::move(memory));
    return true;
}

void Quantized::send_to_all(const Tile& tile, std::unique_ptr<std::byte[]> memory) {
    if (!call_.gathers) return;
    Message message =
        make_message(result_bytes(tile.run), Part::results, others_, false, memory ? memory.get() : output_at(tile));
    message.memory = std::move(memory);
    results_.messages.push_back(std::move(message));
}

bool Quantized::take_next(std::size_t owner) {
    Lane& lane = back_[owner];
    if (lane.messages.empty() || !lane.messages.front().arrived()) return false;
    if (call_.gathers_codes) decode(tile_of(owner, lane.first), lane.messages.front().memory.get());
    drop_first(lane);
    return true;
}

// ---- On the whole

bool Quantized::progress() {
    if (table_ == Table::magnitudes) {
        if (find_magnitudes()) return true;
        if (call_.scales == QuantizedCall::Scales::own || ranks() == 1) return set_scales(), true;
    }
    if (table_ != Table::ready) return exchange_magnitudes();
    bool moved = drop_sent(results_);
    for (const int peer : others_) {
        const auto p = static_cast<std::size_t>(peer);
        moved |= drop_sent(out_[p]);
        moved |= post_receives(in_[p], me_, Part::codes, peer);
        moved |= post_receives(back_[p], p, Part::results, peer);
        moved |= take_next(p);
    }
    moved |= call_.reduces ? reduce_next() : share_next();
    for (const int peer : others_) moved |= send_next(peer);
    return moved;
}

bool Quantized::done() const noexcept {
    return table_ == Table::ready && results_.is_over() && std::ranges::all_of(out_, &Lane::is_over) &&
           std::ranges::all_of(in_, &Lane::is_over) && std::ranges::all_of(back_, &Lane::is_over);
}

std::string Quantized::where() const {
    if (table_ != Table::ready) return "quantised, the scales";
    return fmt::format("quantised, tile {} of {}", std::min(results_.next + 1, results_.end), results_.end);
}

void Quantized::add_waits(std::vector<int>& ranks) const {
    std::vector<bool> waited(this->ranks());
    const auto add = [&](const Message& message) {
        for (const auto& transfer : message.transfers) {
            if (transfer->done) continue;
            const auto& of = context_.world_of;
            const int rank = transfer->peer;
            waited[static_cast<std::size_t>(of.empty() ? rank : std::ranges::find(of, rank) - of.begin())] = true;
        }
    };
    for (const Message& message : exchanged_) add(message);
    for (const Message& message : results_.messages) add(message);
    for (const auto* lanes : {&out_, &in_, &back_}) {
        for (const Lane& lane : *lanes) {
            for (const Message& message : lane.messages) add(message);
        }
    }
    for (std::size_t p = 0; p < waited.size(); ++p) {
        if (waited[p]) ranks.push_back(static_cast<int>(p));
    }
}

}  // namespace tutti::engine
