#include "simulation/network.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace tutti::simulation {
namespace {

using std::chrono::microseconds;
using transport::StreamState;

constexpr std::size_t capacity = 40'000;  // bytes under way on a line

}  // namespace

// One rank's end of the connection to another.
class Network::End final : public transport::Stream {
 public:
    End(Network& network, int own, int peer) : network_(network), own_(own), peer_(peer) {}

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        Line& to = network_.line(own_, peer_);
        auto& chance = network_.chance_;
        if (closed_ || to.comes_last != Line::Last::nothing) return 0;
        const std::size_t all = header.size() + payload.size();
        std::size_t count = std::min(all, capacity - to.under_way);
        if (below(chance, 4) == 0) count = std::min<std::size_t>(count, below(chance, 100));
        if (count == 0) return 0;
        Line::Parcel parcel{network_.now_ + microseconds(1 + below(chance, 300)), {}};
        if (below(chance, 50) == 0) parcel.arrives += microseconds(below(chance, 100'000));
        parcel.arrives = to.last = std::max(parcel.arrives, to.last);
        const std::size_t of_header = std::min(count, header.size());
        parcel.bytes.assign(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(of_header));
        parcel.bytes.insert(parcel.bytes.end(), payload.begin(),
                            payload.begin() + static_cast<std::ptrdiff_t>(count - of_header));
        if (network_.loses_ && below(chance, 20) == 0) {
            parcel.bytes.erase(parcel.bytes.begin());
            ++network_.lost_;
            if (parcel.bytes.empty()) return count;
        }
        to.under_way += parcel.bytes.size();
        to.parcels.push_back(std::move(parcel));
        return count;
    }

    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override {
        Line& from = network_.line(peer_, own_);
        std::size_t done = 0;
        for (const std::span<std::byte> part : std::array{into, ahead}) {
            for (std::size_t filled = 0; filled < part.size();) {
                if (from.parcels.empty() || from.parcels.front().arrives > network_.now_) return done;
                auto& bytes = from.parcels.front().bytes;
                const std::size_t count = std::min(part.size() - filled, bytes.size());
                std::copy_n(bytes.begin(), count, part.begin() + static_cast<std::ptrdiff_t>(filled));
                bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
                if (bytes.empty()) from.parcels.pop_front();
                from.under_way -= count;
                filled += count;
                done += count;
                if (below(network_.chance_, 8) == 0) return done;
            }
        }
        return done;
    }

    StreamState state() const noexcept override {
        if (closed_) return StreamState::closed;
        const Line& from = network_.line(peer_, own_);
        if (!from.parcels.empty() || from.last > network_.now_) return StreamState::open;
        switch (from.comes_last) {
            case Line::Last::nothing: return StreamState::open;
            case Line::Last::end: return StreamState::ended;
            case Line::Last::broken: return StreamState::closed;
            case Line::Last::damaged: return StreamState::damaged;
        }
        return StreamState::open;
    }
    bool end() override {
        Line& to = network_.line(own_, peer_);
        if (to.comes_last == Line::Last::nothing) {
            to.comes_last = Line::Last::end;
            to.last = std::max(to.last, network_.now_ + microseconds(1));
        }
        return true;
    }
    void close() noexcept override { closed_ = true; }
    bool delivered() const noexcept override { return network_.line(own_, peer_).parcels.empty(); }
    std::string reason() const override {
        return network_.line(peer_, own_).comes_last == Line::Last::damaged ? "a checksum is wrong"
                                                                            : "connection reset";
    }

 private:
    Network& network_;
    int own_, peer_;
    bool closed_ = false;
};

struct Network::Rank final : transport::Streams {
    transport::Stream* to(int peer) override { return ends[static_cast<std::size_t>(peer)].get(); }
    transport::Stream* existing(int peer) override { return to(peer); }
    std::vector<std::unique_ptr<End>> ends;
};

Network::Network(int size, std::mt19937_64& chance, const Instant& now)
    : size_(size), chance_(chance), now_(now), lines_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
        auto& made = *ranks_.emplace_back(std::make_unique<Rank>());
        for (int peer = 0; peer < size; ++peer)
            made.ends.push_back(peer == rank ? nullptr : std::make_unique<End>(*this, rank, peer));
    }
}

Network::~Network() = default;

transport::Streams& Network::streams_of(int rank) {
    return *ranks_[static_cast<std::size_t>(rank)];
}

void Network::break_off(Line& line, Line::Last how) {
    if (line.comes_last != Line::Last::nothing && line.comes_last != Line::Last::end) return;
    if (!line.parcels.empty()) line.parcels.resize(below(chance_, line.parcels.size() + 1));
    if (!line.parcels.empty() && below(chance_, 2) == 0) {
        auto& bytes = line.parcels.back().bytes;
        bytes.resize(1 + below(chance_, bytes.size()));
    }
    line.under_way = 0;
    for (const auto& parcel : line.parcels) line.under_way += parcel.bytes.size();
    line.comes_last = how;
    line.last = std::max(line.parcels.empty() ? now_ : line.parcels.back().arrives, now_) + microseconds(1);
}

void Network::cut(int a, int b) {
    break_off(line(a, b), Line::Last::broken);
    break_off(line(b, a), Line::Last::broken);
}

void Network::kill(int rank) {
    for (int peer = 0; peer < size_; ++peer) {
        if (peer != rank) cut(rank, peer);
    }
}

void Network::damage(int from, int to) {
    break_off(line(from, to), Line::Last::damaged);
}

Instant Network::next_arrival() const {
    Instant next = Instant::max();
    for (const Line& line : lines_) {
        if (!line.parcels.empty() && line.parcels.front().arrives > now_)
            next = std::min(next, line.parcels.front().arrives);
        if (line.comes_last != Line::Last::nothing && line.last > now_) next = std::min(next, line.last);
    }
    return next;
}

}  // namespace tutti::simulation
