#include "faults.hpp"

#include "failure.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace tutti::nccl_library {
namespace {

constexpr std::string_view variable = "TUTTI_NCCL_FAULTS";

constexpr std::array<std::pair<std::string_view, ncclResult_t>, 6> codes{{
    {"unhandled_cuda_error", ncclUnhandledCudaError},
    {"system_error", ncclSystemError},
    {"internal_error", ncclInternalError},
    {"invalid_argument", ncclInvalidArgument},
    {"invalid_usage", ncclInvalidUsage},
    {"remote_error", ncclRemoteError},
}};

[[noreturn]] void refuse(std::string_view word, std::string_view value, std::string_view expected) {
    fail(ncclInvalidArgument, variable, ": ", word, "=", value, ": expected ", expected);
}

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t end = text.find(at);
        std::string_view part = text.substr(0, end);
        while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
        while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
        if (!part.empty()) parts.push_back(part);
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t largest) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > largest) return std::nullopt;
    return value;
}

std::uint64_t number_of(std::string_view word, std::string_view value, std::uint64_t largest) {
    const auto found = number(value, largest);
    if (!found) refuse(word, value, text("a number up to ", largest));
    return *found;
}

ncclResult_t code_of(std::string_view value) {
    for (const auto& [name, code] : codes) {
        if (value == name || value == text(static_cast<int>(code))) return code;
    }
    refuse("error", value, "a number from 1 to 6, or a name such as remote_error");
}

int version_of(std::string_view value) {
    const std::vector<std::string_view> parts = split(value, '.');
    if (parts.size() == 1) return static_cast<int>(number_of("version", value, 999999));
    if (parts.size() != 3) refuse("version", value, "X.Y.Z, such as 2.17.1, or a number such as 21701");
    int code = 0;
    for (const std::string_view part : parts) code = 100 * code + static_cast<int>(number_of("version", part, 99));
    return code;
}

// One fault: its first word says what it is, the others when.
void add(Faults& faults, std::string_view text_of_fault) {
    std::vector<std::pair<std::string_view, std::string_view>> words;
    for (const std::string_view part : split(text_of_fault, ' ')) {
        const std::size_t sign = part.find('=');
        if (sign == std::string_view::npos || sign + 1 == part.size()) {
            fail(ncclInvalidArgument, variable, ": \"", part, "\": expected WORD=VALUE");
        }
        words.emplace_back(part.substr(0, sign), part.substr(sign + 1));
    }
    const auto [kind, value] = words.front();
    Fault fault;
    if (kind == "version") {
        faults.version = version_of(value);
    } else if (kind == "missing") {
        faults.missing.emplace_back(value);
    } else if (kind == "error") {
        fault.code = code_of(value);
    } else if (kind == "hang") {
        if (value != "operation" && value != "init") refuse(kind, value, "operation or init");
        fault.kind = value == "init" ? Fault::Kind::hang_init : Fault::Kind::hang_operation;
    } else {
        fail(ncclInvalidArgument, variable, ": ", kind, "=", value,
             ": expected error=, hang=, version= or missing= as a fault's first word");
    }
    const bool of_communicator = kind == "error" || kind == "hang";
    for (std::size_t i = 1; i < words.size(); ++i) {
        const auto [word, given] = words[i];
        if (word == "rank" && of_communicator) {
            fault.rank = static_cast<int>(number_of(word, given, INT_MAX));
        } else if (word == "after" && of_communicator && fault.kind != Fault::Kind::hang_init) {
            fault.after = number_of(word, given, UINT64_MAX);
        } else {
            fail(ncclInvalidArgument, variable, ": ", word, "=", given, ": ", kind, "=", value, " has no such word");
        }
    }
    if (of_communicator) faults.of_communicators.push_back(fault);
}

}  // namespace

const Fault* Faults::of_operation(std::uint64_t begun, int rank) const {
    const auto concerns = [&](const Fault& one) {
        return one.kind != Fault::Kind::hang_init && begun >= one.after && (one.rank < 0 || one.rank == rank);
    };
    const auto found = std::ranges::find_if(of_communicators, concerns);
    return found == of_communicators.end() ? nullptr : &*found;
}

bool Faults::hangs_init(int rank) const {
    return std::ranges::any_of(of_communicators, [&](const Fault& one) {
        return one.kind == Fault::Kind::hang_init && (one.rank < 0 || one.rank == rank);
    });
}

Faults parse_faults(std::string_view all) {
    Faults faults;
    for (const std::string_view one : split(all, ';')) add(faults, one);
    return faults;
}

const Faults& faults() {
    struct Read {
        Faults faults;
        std::optional<Failure> failure;
        Read() {
            const char* given = std::getenv(std::string(variable).c_str());
            if (given == nullptr) return;
            try {
                faults = parse_faults(given);
            } catch (const Failure& wrong) {
                failure = wrong;
            }
        }
    };
    static const Read& read = *new Read;  // communicators may outlive static objects
    if (read.failure) throw *read.failure;
    return read.faults;
}

}  // namespace tutti::nccl_library
