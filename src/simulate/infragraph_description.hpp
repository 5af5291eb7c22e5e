// What an InfraGraph file says (infragraph.hpp): links, instances and edges, checked against each other.
//
// Pure functions.
#pragma once

#include "core/assert.hpp"

#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::simulate::infragraph {

inline constexpr double bytes_of_gbit = 0.125;

struct Link {
    std::string name;
    double gbps = 0, us = 0;  // gigabytes a second; 0: the file does not say it
};
// A list whose members have names of their own.
template <class Named>
struct List {
    std::vector<Named> all;
    std::map<std::string, std::size_t, std::less<>> places;
    void add(Named one) {
        places.emplace(one.name, all.size());
        all.push_back(std::move(one));
    }
};
struct Instance {
    std::string name;
    std::size_t device = 0;
    int count = 1, first = 0;  // `first`: the number of its first vertex
};
// A vertex, and the place of the component there, in the order of the device's components.
struct End {
    int vertex = 0;
    std::uint64_t port = 0;
};
struct Edge {
    End a, b;
    std::size_t link = 0;
};

// What a file says, checked.
struct Description {
    List<Link> links;
    List<Instance> instances;
    std::vector<Edge> edges;
    std::vector<bool> is_host;  // by vertex
    std::size_t inside = 0;     // edges inside devices
    bool annotated = false;
    std::string name(int vertex) const {
        const auto of =
            std::ranges::find_if(instances.all, [&](const Instance& i) { return vertex < i.first + i.count; });
        TUTTI_ASSERT(of != instances.all.end());
        return fmt::format("{}[{}]", of->name, vertex - of->first);
    }
};

/// Throws InvalidArgument: `where` is expected to be otherwise.
[[noreturn]] void refuse(const std::string& where, const std::string& expected);

/// Throws InvalidArgument that names the place, the value and what is expected.
Description read(const nlohmann::json& file, const std::string& where);

}  // namespace tutti::simulate::infragraph
