#include "simulate/infragraph.hpp"

#include "core/assert.hpp"
#include "simulate/infragraph_description.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tutti::simulate {
namespace infragraph {
namespace {

constexpr int levels_max = 4;

// Which vertices are joined.
class Parts {
 public:
    explicit Parts(std::size_t vertices) : above_(vertices) { std::iota(above_.begin(), above_.end(), 0); }
    int of(int vertex) {
        while (above(vertex) != vertex) vertex = above(vertex) = above(above(vertex));
        return vertex;
    }
    void join(int a, int b) { above(of(a)) = of(b); }

 private:
    int& above(int vertex) { return above_[static_cast<std::size_t>(vertex)]; }
    std::vector<int> above_;
};

class Fabric {
 public:
    Fabric(Description description, const std::string& where)
        : d_(std::move(description)), where_(where), tier_(d_.is_host.size(), -1) {
        for (std::size_t v = 0; v < d_.is_host.size(); ++v) {
            if (d_.is_host[v]) hosts_.push_back(static_cast<int>(v));
        }
        if (hosts_.size() < 2)
            refuse(where_, fmt::format("at least 2 hosts (instances of devices that have a nic, an xpu or memory), "
                                       "not {}",
                                       hosts_.size()));
    }

    Network network(double own_us) {
        choose_cards();
        set_tiers();
        network_.hosts = static_cast<int>(hosts_.size());
        network_.us = own_us + 2 * card_us_;
        add_levels();
        if (d_.inside > 0) leave_out("what devices have inside");
        if (d_.annotated) leave_out("annotations");
        network_.left_out = fmt::format("{}", fmt::join(left_out_, ", "));
        return std::move(network_);
    }

 private:
    // The links between switches of two tiers, or those of one name between switches of one tier.
    struct Stage {
        int low = 0, high = 0;
        std::size_t link = 0;
        std::vector<const Edge*> edges;
        bool peers() const { return low == high; }
        bool operator<(const Stage& other) const {
            return std::tie(low, high, link) < std::tie(other.low, other.high, other.link);
        }
    };
    struct Card {
        std::uint64_t port = 0;
        int leaf = 0;
        bool operator<(const Card& other) const { return std::tie(port, leaf) < std::tie(other.port, other.leaf); }
    };

    void leave_out(const std::string& what) {
        if (std::ranges::find(left_out_, what) == left_out_.end()) left_out_.push_back(what);
    }
    bool host(int vertex) const { return d_.is_host[static_cast<std::size_t>(vertex)]; }
    int& tier(int vertex) { return tier_[static_cast<std::size_t>(vertex)]; }
    const Link& link_of(const Edge& edge) const { return d_.links.all[edge.link]; }
    static double gbit(double gbps) { return gbps / bytes_of_gbit; }

    // Hosts may have links of several kinds: those count by which all hosts reach each other, the quickest first.
    void choose_cards() {
        std::map<std::pair<double, double>, std::vector<const Edge*>> kinds;
        Parts switches(d_.is_host.size());
        for (const Edge& edge : d_.edges) {
            if (host(edge.a.vertex) && host(edge.b.vertex))
                refuse(where_, fmt::format("a switch between any two hosts; {} and {} are joined without one",
                                           d_.name(edge.a.vertex), d_.name(edge.b.vertex)));
            const Link& link = link_of(edge);
            if (host(edge.a.vertex) || host(edge.b.vertex))
                kinds[{link.gbps > 0 ? -link.gbps : -1e12, link.us}].push_back(&edge);
            else
                switches.join(edge.a.vertex, edge.b.vertex);
        }
        for (const auto& [rate, edges] : kinds) {
            Parts parts = switches;
            for (const Edge* edge : edges) parts.join(edge->a.vertex, edge->b.vertex);
            const bool all = std::ranges::all_of(hosts_, [&](int h) { return parts.of(h) == parts.of(hosts_[0]); });
            if (all && card_edges_.empty()) {
                card_edges_ = edges;
                network_.nic_gbps = link_of(*edges.front()).gbps;
                card_us_ = rate.second;
            } else {
                leave_out(fmt::format("the hosts' links {}", link_of(*edges.front()).name));
            }
        }
        if (card_edges_.empty())
            refuse(where_, "all hosts to reach each other over links of one bandwidth and latency, and switches");
        if (network_.nic_gbps == 0)
            leave_out(fmt::format("a limit of {} (no bandwidth)", link_of(*card_edges_[0]).name));

        std::map<int, std::vector<Card>> cards;
        for (const Edge* edge : card_edges_) {
            const bool a = host(edge->a.vertex);
            cards[(a ? edge->a : edge->b).vertex].push_back(
                {(a ? edge->a : edge->b).port, (a ? edge->b : edge->a).vertex});
        }
        network_.nics = static_cast<int>(cards[hosts_[0]].size());
        network_.rails = network_.nics > 1;
        std::map<int, std::size_t> rail_of;
        for (const int h : hosts_) {
            auto& own = cards[h];
            if (own.size() != cards[hosts_[0]].size())
                refuse(where_, fmt::format("{} to have as many links to switches as {}, {}, not {}", d_.name(h),
                                           d_.name(hosts_[0]), network_.nics, own.size()));
            std::ranges::sort(own, std::less{});
            for (std::size_t i = 0; i < own.size(); ++i)
                network_.rails = rail_of.try_emplace(own[i].leaf, i).first->second == i && network_.rails;
        }
    }

    // How far switches are from the hosts.
    void set_tiers() {
        std::vector<std::vector<int>> beside(tier_.size());
        for (const Edge& edge : d_.edges) {
            if (host(edge.a.vertex) || host(edge.b.vertex) || edge.a.vertex == edge.b.vertex) continue;
            beside[static_cast<std::size_t>(edge.a.vertex)].push_back(edge.b.vertex);
            beside[static_cast<std::size_t>(edge.b.vertex)].push_back(edge.a.vertex);
        }
        std::vector<int> next;
        for (const int h : hosts_) tier(h) = 0;
        for (const Edge* edge : card_edges_) {
            for (const int v : {edge->a.vertex, edge->b.vertex}) {
                if (std::exchange(tier(v), host(v) ? 0 : 1) < 0) next.push_back(v);
            }
        }
        for (std::size_t i = 0; i < next.size(); ++i) {
            for (const int v : beside[static_cast<std::size_t>(next[i])]) {
                if (tier(v) >= 0) continue;
                tier(v) = tier(next[i]) + 1;
                next.push_back(v);
            }
        }
        if (std::ranges::any_of(tier_, [](int t) { return t < 0; })) leave_out("switches out of reach");
    }

    void add_levels() {
        std::map<std::tuple<int, int, std::size_t>, Stage> by_tiers;
        for (const Edge& edge : d_.edges) {
            const int a = tier(edge.a.vertex), b = tier(edge.b.vertex);
            if (host(edge.a.vertex) || host(edge.b.vertex) || a < 0 || edge.a.vertex == edge.b.vertex) continue;
            const std::tuple<int, int, std::size_t> key{std::min(a, b), std::max(a, b), a == b ? edge.link : 0};
            Stage& stage = by_tiers[key];
            std::tie(stage.low, stage.high, stage.link) = key;
            stage.edges.push_back(&edge);
        }
        std::vector<Stage> stages;
        for (auto& [key, stage] : by_tiers) stages.push_back(std::move(stage));
        // In a dragonfly links of one name are inside a group, and those of another between groups: either way round.
        const auto peers_end = std::ranges::find_if(stages, [](const Stage& s) { return s.high > 1; });
        constexpr std::ptrdiff_t names_max = 4;
        if (peers_end - stages.begin() > names_max)
            refuse(where_, fmt::format("at most {} kinds of links between switches that have hosts", names_max));
        const std::vector<std::string> left_out = left_out_;
        std::string first_refusal;
        do {
            left_out_ = left_out;
            network_.levels.clear();
            const std::string refusal = refusal_of_levels(stages);
            if (refusal.empty()) return;
            if (first_refusal.empty()) first_refusal = refusal;
        } while (std::next_permutation(stages.begin(), peers_end));
        refuse(where_, first_refusal);
    }

    // Sets the levels. Empty, or what is expected of these.
    std::string refusal_of_levels(const std::vector<Stage>& stages) {
        Parts parts(d_.is_host.size());
        for (const Edge* edge : card_edges_) parts.join(edge->a.vertex, edge->b.vertex);
        std::vector<int> order = hosts_;
        for (const Stage& stage : stages) {
            std::map<int, int> below, first;  // hosts, by part
            for (const int h : hosts_) ++below[first.try_emplace(parts.of(h), h).first->first];
            if (below.size() == 1) break;
            const auto uneven = std::ranges::find_if(below, [&](auto& p) { return p.second != below.begin()->second; });
            const auto of_part = [&](int part) {
                const auto v = std::ranges::find_if(
                    tier_, [&, i = 0](int t) mutable { return parts.of(i++) == part && t == stage.low; });
                return d_.name(v == tier_.end() ? part : static_cast<int>(v - tier_.begin()));
            };
            if (uneven != below.end())
                return fmt::format("equally many hosts below each switch: {} has {}, and {} {}",
                                   of_part(below.begin()->first), below.begin()->second, of_part(uneven->first),
                                   uneven->second);
            Parts joined = parts;
            std::map<std::pair<int, int>, double> gbps;  // of a part, or between two
            Level level{.hosts = below.begin()->second, .pairwise = stage.peers()};
            bool unlimited = false;
            for (const Edge* edge : stage.edges) {
                const bool up = tier(edge->a.vertex) <= tier(edge->b.vertex);
                const int low = parts.of((up ? edge->a : edge->b).vertex),
                          high = parts.of((up ? edge->b : edge->a).vertex);
                joined.join(low, high);
                if (low == high) continue;
                const std::pair<int, int> both = std::minmax(low, high);
                gbps[stage.peers() ? both : std::pair(low, low)] += link_of(*edge).gbps;
                unlimited = unlimited || link_of(*edge).gbps == 0;
                level.us = std::max(level.us, (stage.peers() ? 1 : 2) * link_of(*edge).us);
            }
            const bool last = std::ranges::all_of(hosts_, [&](int h) { return joined.of(h) == joined.of(hosts_[0]); });
            const std::string name = link_of(*stage.edges.front()).name;
            if (stage.peers() && !last) {
                leave_out(fmt::format("the limits of {} within groups of switches", name));
            } else if (!gbps.empty()) {
                const std::size_t all = stage.peers() ? below.size() * (below.size() - 1) / 2 : below.size();
                if (gbps.size() != all)
                    return fmt::format("links {} {} each of {} groups of switches: {} of {} have some", name,
                                       stage.peers() ? "between" : "up from", below.size(), gbps.size(), all);
                const auto& [least, rate] = *gbps.begin();
                for (const auto& [other, its] : gbps) {
                    if (std::abs(its - rate) > 1e-9 * rate)
                        return fmt::format(
                            "links {} of one bandwidth from each switch: {} has {:g} Gbit/s, and {} {:g}", name,
                            of_part(least.first), gbit(rate), of_part(other.first), gbit(its));
                }
                level.gbps = unlimited ? 0 : rate / (network_.rails ? network_.nics : 1);
                if (unlimited) leave_out(fmt::format("a limit of {} (no bandwidth)", name));
                network_.levels.push_back(level);
                std::ranges::stable_sort(order, {}, [&](int h) { return first.at(parts.of(h)); });
            }
            parts = std::move(joined);
        }
        if (network_.levels.size() > static_cast<std::size_t>(levels_max))
            return fmt::format("at most {} levels of switches, not {}", levels_max, network_.levels.size());
        if (order != hosts_) leave_out("the order of hosts (they are numbered switch by switch)");
        return {};
    }

    const Description d_;
    const std::string& where_;
    std::vector<int> tier_, hosts_;
    std::vector<const Edge*> card_edges_;
    std::vector<std::string> left_out_;
    double card_us_ = 0;
    Network network_;
};

}  // namespace
}  // namespace infragraph

bool is_infragraph(const nlohmann::json& json) {
    return json.is_object() && (json.contains("infrastructure") || json.contains("instances"));
}

Network network_of_infragraph(const nlohmann::json& json, const std::string& where, double own_us) {
    TUTTI_ASSERT(own_us >= 0);
    return infragraph::Fabric(infragraph::read(json, where), where).network(own_us);
}

}  // namespace tutti::simulate
