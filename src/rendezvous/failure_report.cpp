#include "rendezvous/failure_report.hpp"

#include "core/env.hpp"
#include "core/text.hpp"
#include "core/unix_socket.hpp"
#include "object/codec.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>

#include <atomic>

namespace tutti::rendezvous {

TUTTI_OBJECT(FailureReport, from, code, culprit, place, text);

namespace {

constexpr std::size_t text_max = 16384;
std::atomic<bool> has_reported{false};

std::optional<int> number(const char* variable) {
    const auto text = env::get(variable);
    return text ? number_in<int>(*text) : std::nullopt;
}

bool send(FailureReport report) {
    const auto launcher = env::get("TUTTI_LAUNCHER");
    const auto from = number("RANK");
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
        const bool is_job = number("RANK") == rank && number("WORLD_SIZE") == size;
        if (is_job && peer < size) report.culprit = peer;
        if (send(std::move(report))) has_reported = true;
    } catch (...) {  // NOLINT(bugprone-empty-catch): the launcher goes by how this process ends
    }
}

void report_joined() noexcept {
    try {
        if (has_reported.exchange(false)) send({});
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it goes by what it knows
    }
}

}  // namespace tutti::rendezvous
