#include "algorithm/parts.hpp"

#include "algorithm/plan.hpp"
#include "core/assert.hpp"

#include "schedule/text.hpp"

#include <numeric>

namespace tutti::algorithm {
namespace {

// Ranks that share nothing.
Layout layout_of(const schedule::Part& part) {
    TUTTI_ASSERT(part.ranks >= 1);
    Layout layout{.segment_bytes = schedule::elements_max, .machines = part.ranks};
    layout.host_of.resize(static_cast<std::size_t>(part.ranks));
    std::iota(layout.host_of.begin(), layout.host_of.end(), 0);
    return layout;
}

Request request_of(const schedule::Part& part) {
    TUTTI_ASSERT(part.me >= 0 && part.me < part.ranks && part.root >= 0 && part.root < part.ranks);
    Request request{
        .collective = part.collective, .rank = part.me, .root = part.root, .count = part.count, .counts = part.counts};
    if (traits_of(part.collective).exchanges()) set_even_blocks(request, part.ranks, part.count);
    return request;
}

class Parts final : public schedule::PartMaker {
 public:
    std::vector<std::string> algorithms(const schedule::Part& part) const override {
        return applicable(layout_of(part), request_of(part));
    }
    schedule::Schedule schedule(const schedule::Part& part, std::string_view algorithm) const override {
        Request request = request_of(part);
        request.algorithm = std::string(algorithm);
        return plan(layout_of(part), request);
    }
};

}  // namespace

const schedule::PartMaker& parts() {
    static const Parts& all = *new Parts;  // groups outlive static objects
    return all;
}

}  // namespace tutti::algorithm
