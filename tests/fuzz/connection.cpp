// What a rank reads of connections: the proof that the other end knows the secret, messages, news, requests of pages.
#include "record/http_message.hpp"
#include "rendezvous/news_frame.hpp"
#include "security/handshake.hpp"
#include "security/secret.hpp"
#include "targets.hpp"
#include "transport/mailbox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <string>
#include <vector>

namespace tutti::fuzz {
namespace {

void answer(std::string_view bytes, security::Role role) {
    security::Handshake handshake(security::Secret::from_text("the job's secret, which these bytes do not know"), role,
                                  "peer");
    auto rest = std::as_bytes(std::span(bytes));
    while (handshake.state() == security::Handshake::State::needs_more && !rest.empty()) {
        const std::size_t taken = handshake.consume(rest);
        if (taken > rest.size()) wrong("the handshake took more than there was");
        if (taken == 0 && handshake.wanted() > 0) wrong("the handshake wants bytes and takes none");
        if (taken == 0) break;
        rest = rest.subspan(taken);
        handshake.sent(handshake.output().size());
    }
    if (handshake.state() == security::Handshake::State::done) wrong("bytes proved a secret that they do not know");
}

// Gives what it has, `piece` bytes at a time; then it is closed.
class Bytes : public transport::Stream {
 public:
    Bytes(std::span<const std::byte> bytes, std::size_t piece) : bytes_(bytes), piece_(piece) {}
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        return header.size() + payload.size();
    }
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override {
        const std::size_t first = take(into, piece_);
        return first + take(ahead, piece_ - first);
    }
    transport::StreamState state() const noexcept override {
        return bytes_.empty() ? transport::StreamState::closed : transport::StreamState::open;
    }
    std::string reason() const override { return "all has been read"; }
    void close() noexcept override { bytes_ = {}; }

 private:
    std::size_t take(std::span<std::byte> into, std::size_t most) {
        const std::size_t count = std::min({into.size(), most, bytes_.size()});
        if (count > 0) std::memcpy(into.data(), bytes_.data(), count);
        bytes_ = bytes_.subspan(count);
        return count;
    }
    std::span<const std::byte> bytes_;
    std::size_t piece_;
};

}  // namespace

void handshake(std::string_view bytes) {
    answer(bytes, security::Role::accepting);
    answer(bytes, security::Role::connecting);
}

// A peer that says anything, to a rank with a few receives and sends under way. The first byte cuts the stream.
void mailbox(std::string_view bytes) {
    if (bytes.empty()) return;
    const std::size_t piece = 1 + static_cast<unsigned char>(bytes.front());
    Bytes stream(std::as_bytes(std::span(bytes)).subspan(1), piece);
    struct OnlyStream : transport::Streams {
        explicit OnlyStream(transport::Stream& only) : stream(only) {}
        transport::Stream* to(int) override { return &stream; }
        transport::Stream* existing(int) override { return &stream; }
        transport::Stream& stream;
    } streams(stream);
    struct AnyCalls : transport::Calls {
        std::uint64_t fingerprint_of(std::uint64_t channel) const override { return channel; }
    } calls;
    transport::Mailbox box(0, 2, 7, streams, calls);

    constexpr std::size_t size = 1000;
    std::array<std::array<std::byte, size>, 4> memory{};
    std::list<transport::Transfer> transfers;
    const auto post = [&](std::uint64_t channel, std::size_t length) -> transport::Transfer& {
        auto& transfer = transfers.emplace_back();
        transfer.peer = 1;
        transfer.channel = transfer.fingerprint = channel;
        transfer.bytes = length;
        return transfer;
    };
    for (std::uint64_t channel = 0; channel < memory.size(); ++channel) {
        auto& receive = post(channel | (channel == 3 ? transport::collective_channel : 0), channel == 2 ? 0 : size);
        receive.target = memory[channel].data();
        box.post_receive(receive);
    }
    const std::vector<std::byte> large(600'000);
    auto& send = post(5, large.size());
    send.source = large.data();
    box.post_send(send);
    for (int turn = 0; turn < 1000 && box.end_of(1) == nullptr; ++turn) {
        if (!box.progress() && stream.state() != transport::StreamState::open) break;
        box.take_findings();
    }
    box.drop_all();
}

// A neighbour that says anything. The first byte cuts the stream; how it is cut makes no difference.
void lifeline(std::string_view bytes) {
    if (bytes.empty()) return;
    constexpr int ranks = 4;
    const std::size_t piece = 1 + static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    const auto read = [&](rendezvous::NewsReader& reader) {
        std::string all;
        while (auto news = reader.next()) {
            if (news->text.size() > rendezvous::NewsFrame::text_max) wrong("news are longer than any");
            if (news->frame.rank >= ranks || news->frame.from >= ranks) wrong("news name a rank that is none");
            all += std::to_string(news->frame.kind) + news->text;
        }
        if (reader.is_broken() && reader.next()) wrong("a broken lifeline gives news");
        return all;
    };
    rendezvous::NewsReader whole(ranks), cut(ranks);
    whole.feed(std::as_bytes(std::span(bytes)));
    const std::string expected = read(whole);
    std::string got;
    for (std::string_view rest = bytes; !rest.empty(); rest.remove_prefix(std::min(piece, rest.size()))) {
        cut.feed(std::as_bytes(std::span(rest.substr(0, piece))));
        got += read(cut);
    }
    if (got != expected || cut.is_broken() != whole.is_broken()) wrong("news depend on how they are cut");
}

// A client that asks anything, and a server that answers anything.
void http(std::string_view bytes) {
    if (const auto request = record::parse_request(bytes)) {
        if (request->path.find('?') != std::string_view::npos) wrong("a path has a query");
        if (record::bearer_token(request->authorization).size() > request->authorization.size())
            wrong("a token is longer than its line");
    }
    const record::HttpAnswer answer = record::parse_answer(bytes);
    if (answer.body && !answer.status.starts_with("200 ")) wrong("a refusal has a page");
    if (answer.body) {
        const auto again = record::parse_answer(record::response(answer.status, {"text/plain", *answer.body}));
        if (again.body != answer.body || again.status != answer.status) wrong("a page changes on its way");
    }
}

}  // namespace tutti::fuzz
