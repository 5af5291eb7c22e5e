#include "rendezvous/failure_report.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/text.hpp"
#include "core/unix_socket.hpp"
#include "object/codec.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace tutti::rendezvous {

TUTTI_OBJECT(FailureReport, from, code, culprit, place, text, rank, size);

namespace {

constexpr std::size_t text_max = 16384;
std::atomic<bool> has_reported{false};
std::mutex member_mutex;
std::optional<std::pair<int, int>> member;  // rank and size, as reported; guarded by member_mutex

std::optional<int> number(const char* variable) {
    const auto text = env::get(variable);
    return text ? number_in<int>(*text) : std::nullopt;
}

bool send(FailureReport report) {
    const auto launcher = env::get("TUTTI_LAUNCHER");
    const auto from = number("TUTTI_LAUNCH_NUMBER");
    if (!launcher || !from) return false;
    report.from = *from;
    return net::send_unix_datagram(report_address(*launcher), encode(std::move(report)));
}

}  // namespace

std::string encode(FailureReport report) {
    if (report.text.size() > text_max) report.text.resize(text_max);
    return object::encode_string(report);
}

std::optional<FailureReport> decode_failure_report(std::string_view bytes) {
    try {
        return object::decode_string(bytes).get<FailureReport>();
    } catch (const DistError&) {
        return std::nullopt;
    }
}

std::string report_address(std::string_view id) {
    return fmt::format("tutti-launcher/{}", id);
}

void report_failure(const std::exception_ptr& error, int rank, int size, const std::vector<Card>& cards) noexcept {
    try {
        std::rethrow_exception(error);
    } catch (const DistError& known) {
        const int peer = known.context().peer;
        FailureReport report{.code = static_cast<int>(known.code()), .text = known.what()};
        if (peer >= 0 && peer < static_cast<int>(cards.size())) {
            const Card& card = cards[static_cast<std::size_t>(peer)];
            report.place = fmt::format("{}, pid {}", card.host_name, card.process);
        }
        // A program may make worlds in which its ranks have other numbers.
        if (is_rank_of_job(rank, size) && peer < size) report.culprit = peer;
        if (send(std::move(report))) has_reported = true;
    } catch (...) {  // NOLINT(bugprone-empty-catch): the launcher goes by how this process ends
    }
}

void report_joined(int rank, int size) noexcept {
    try {
        const bool is_news = env::get_bool("TUTTI_REPLACES", false) && is_rank_of_job(rank, size);
        if (has_reported.exchange(false) || is_news)
            send(is_news ? FailureReport{.rank = rank, .size = size} : FailureReport{});
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it goes by what it knows
    }
}

void report_member(int rank, int size) noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < size);
    try {
        if (!env::get_bool("TUTTI_REPLACES", false)) return;
        {
            const std::lock_guard lock(member_mutex);
            member = {rank, size};
        }
        send({.rank = rank, .size = size});
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it goes by what it knows
    }
}

bool is_rank_of_job(int rank, int size) {
    const std::lock_guard lock(member_mutex);
    if (member) return *member == std::pair(rank, size);
    return number("RANK") == rank && number("WORLD_SIZE") == size;
}

}  // namespace tutti::rendezvous
