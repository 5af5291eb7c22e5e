#include "operation/agreement.hpp"

#include "core/assert.hpp"

namespace tutti::detail {

using Record = transport::RankControl::Record;
constexpr std::uint64_t record_count = transport::RankControl::record_count;

Agreement::Agreement(const transport::Arena* arena, int local, const std::vector<int>& ranks_here)
    : arena_(arena), local_(local), ranks_here_(ranks_here) {
    TUTTI_ASSERT(arena_ == nullptr || (local_ >= 0 && local_ < static_cast<int>(ranks_here_.size())));
    if (arena_ == nullptr) history_ = std::make_unique<std::array<Entry, history_size>>();
    TUTTI_ASSERT((arena_ != nullptr) == (history_ == nullptr));
}

void Agreement::remember(std::uint64_t sequence, std::uint64_t fingerprint) {
    TUTTI_ASSERT(sequence > 0);
    if (arena_ == nullptr) {
        (*history_)[sequence % history_size] = {sequence, fingerprint};
        return;
    }
    digest_ = (digest_ ^ fingerprint) * 0x9e3779b97f4a7c15ULL;
    digest_ ^= digest_ >> 32;
    arena_->control(local_).records[sequence % record_count].put(sequence, fingerprint, digest_);
}

std::uint64_t Agreement::fingerprint_at(std::uint64_t sequence) const {
    if (arena_ == nullptr) {
        const Entry& entry = (*history_)[sequence % history_size];
        return entry.sequence == sequence ? entry.fingerprint : 0;
    }
    return arena_->control(local_).records[sequence % record_count].read(sequence, &Record::fingerprint).value_or(0);
}

std::optional<Agreement::Disagreement> Agreement::disagreement_at(std::uint64_t sequence) const {
    if (arena_ == nullptr || sequence == 0) return {};
    const auto digest_of = [&](int local) {
        return arena_->control(local).records[sequence % record_count].read(sequence, &Record::agreement);
    };
    const auto mine = digest_of(local_);
    if (!mine) return {};
    for (int local = 0; local < arena_->layout().ranks; ++local) {
        const auto theirs = digest_of(local);
        if (theirs && theirs != mine) return disagreement_with(local, sequence);
    }
    return {};
}

// The disagreement: the latest collective, or an earlier one in which neither had to wait for the other.
Agreement::Disagreement Agreement::disagreement_with(int local, std::uint64_t sequence) const {
    TUTTI_ASSERT(arena_ != nullptr && sequence > 0);
    TUTTI_ASSERT(local >= 0 && local < static_cast<int>(ranks_here_.size()));
    const auto& records = arena_->control(local).records;
    Disagreement first{.peer = ranks_here_[static_cast<std::size_t>(local)], .sequence = sequence};
    for (std::uint64_t s = sequence; s > 0 && sequence - s < record_count; --s) {
        const auto fingerprint = records[s % record_count].read(s, &Record::fingerprint);
        if (!fingerprint || fingerprint == fingerprint_at(s)) continue;
        first.sequence = s, first.theirs = *fingerprint, first.mine = fingerprint_at(s);
        TUTTI_ASSERT(first.sequence <= sequence && first.theirs != first.mine);
    }
    return first;
}

}  // namespace tutti::detail
