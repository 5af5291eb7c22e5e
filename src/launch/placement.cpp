#include "launch/placement.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/names.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/slurm.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace tutti::launch {
namespace {

// The variables of one platform, as they are asked for.
class Reader {
 public:
    explicit Reader(const Pod& pod) : pod_(pod) { TUTTI_ASSERT(pod.variable != nullptr && pod.full_name != nullptr); }

    Given read(const std::string& variable) const {
        auto value = pod_.variable(variable);
        return value && !value->empty() ? Given{*value, variable} : Given{};
    }
    void take(Given& fact, const Given& from) {
        if (fact || !from) return;
        fact = from;
        TUTTI_ASSERT(!from.source.empty());
        taken_.push_back(from.source);
    }
    void took(std::string source) { taken_.push_back(std::move(source)); }
    const std::vector<std::string>& taken() const noexcept { return taken_; }

 private:
    const Pod& pod_;
    std::vector<std::string> taken_;
};

bool one_node(const Placement& p) {
    return !p.nodes || p.nodes.value == "1" || p.nodes.value == "1:1";
}

// Of MIN:MAX.
std::string_view most_of(std::string_view nodes) {
    return nodes.substr(nodes.find(':') + 1);
}

// Whether a job of N or MIN:MAX nodes can begin with so many.
bool takes(const Given& nodes, const Given& count) {
    const int n = std::atoi(count.value.c_str());
    return std::atoi(nodes.value.c_str()) <= n && n <= std::atoi(std::string(most_of(nodes.value)).c_str());
}

bool is_flag(const Given& given) {
    return given.source.starts_with("--");
}

[[noreturn]] void refuse(const Given& there, const char* missing, const char* flag) {
    TUTTI_ASSERT(there && missing != nullptr && flag != nullptr);
    throw InvalidArgument(
        fmt::format("tutti run: {} is set, but {} is not: expected both, or {}", there.text(), missing, flag));
}

// With half a placement each node would start a job of its own, unnoticed.
void check(const Placement& p) {
    if (one_node(p)) {
        if (p.nodes) return;
        for (const Given* half : {&p.node_rank, &p.master_addr})
            if (*half && !is_flag(*half)) refuse(*half, "PET_NNODES", "--nnodes");
        return;
    }
    // Where flags alone speak, a launcher without --node-rank is node 0's, and the launcher asks for the address.
    const Given* variable = nullptr;
    for (const Given* fact : {&p.nodes, &p.node_rank, &p.master_addr})
        if (variable == nullptr && *fact && !is_flag(*fact)) variable = fact;
    if (variable == nullptr) return;
    const bool indexed = p.nodes.source == "TUTTI_NNODES";
    if (!p.node_rank && !is_range(p.nodes))
        refuse(*variable, indexed ? "JOB_COMPLETION_INDEX" : "PET_NODE_RANK", "--node-rank");
    if (!p.master_addr) refuse(*variable, "PET_MASTER_ADDR", "--master-addr");
}

// JOB-INDEX.SERVICE.NAMESPACE...; a pod without a headless service has no domain.
std::string name_of_first_pod(const std::string& own, const Given& index) {
    TUTTI_ASSERT(!index.value.empty());
    const std::size_t dot = own.find('.');
    const std::string host = own.substr(0, dot), end = "-" + index.value;
    if (!host.ends_with(end)) {
        throw InvalidArgument(
            fmt::format("tutti run: {} is set, but this pod's name, {}, does not end with {}: set --node-rank and "
                        "--master-addr, the name of node 0's pod",
                        index.text(), own, end));
    }
    if (dot == std::string::npos) {
        throw InvalidArgument(fmt::format(
            "tutti run: {} is set, but this pod's name, {}, has no domain, so pods do not find each other by name: "
            "make "
            "a headless service (clusterIP: None) and name it in the pod's spec.subdomain, or set --master-addr",
            index.text(), own));
    }
    return host.substr(0, host.size() - end.size()) + "-0" + own.substr(dot);
}

void take_torchrun(Placement& p, Reader& reader) {
    reader.take(p.nodes, reader.read("PET_NNODES"));
    reader.take(p.ranks, reader.read("PET_NPROC_PER_NODE"));
    reader.take(p.node_rank, reader.read("PET_NODE_RANK"));
    reader.take(p.master_addr, reader.read("PET_MASTER_ADDR"));
    reader.take(p.master_port, reader.read("PET_MASTER_PORT"));
    const Given endpoint = reader.read("PET_RDZV_ENDPOINT");
    if (!endpoint || p.master_addr) return;
    set_endpoint(p, endpoint);
    reader.took(endpoint.source);
}

void take_indexed_job(Placement& p, Reader& reader, const Pod& pod) {
    reader.take(p.nodes, reader.read("TUTTI_NNODES"));
    const Given index = reader.read("JOB_COMPLETION_INDEX");
    if (!index || one_node(p)) return;
    reader.take(p.node_rank, index);
    if (p.master_addr) return;
    reader.take(p.master_addr, {name_of_first_pod(pod.full_name(), index), "this pod's name"});
}

// srun with one launcher on each node, as --ntasks-per-node=1 starts them.
void take_step(Placement& p, Reader& reader) {
    namespace slurm = rendezvous::slurm;
    const Given nodes = reader.read("SLURM_STEP_NUM_NODES"), tasks = reader.read("SLURM_STEP_NUM_TASKS"),
                node = reader.read("SLURM_NODEID"), hosts = reader.read("SLURM_STEP_NODELIST"),
                step = reader.read("SLURM_STEP_ID"), job = reader.read("SLURM_JOB_ID");
    const bool one_each = nodes && nodes.value == tasks.value && nodes.value != "1";
    if (!one_each || !node || !hosts || !step || (p.nodes && !takes(p.nodes, nodes))) return;
    reader.take(p.nodes, nodes);
    reader.take(p.node_rank, node);
    reader.take(p.master_addr, {slurm::first_host(hosts.value), hosts.source});
    if (const auto port = slurm::port(job.value, step.value))
        reader.take(p.master_port, {std::to_string(*port), job.source});
}

// One node for want of a number: each pod would be a job of its own, unnoticed.
std::string of_lone_pod(const Placement& p, const Reader& reader) {
    const Given index = reader.read("JOB_COMPLETION_INDEX");
    if (!index || p.nodes) return {};
    return fmt::format(
        "tutti run: {} is set (a Kubernetes Indexed Job), but nothing says how many nodes the job has, so this pod is "
        "a "
        "job of its own; for one job of all pods set TUTTI_NNODES, or --nnodes",
        index.text());
}

}  // namespace

std::string Given::text() const {
    TUTTI_ASSERT(!source.empty());
    return fmt::format("{}{}{}", source, is_flag(*this) ? ' ' : '=', value);
}

Pod this_pod() {
    return {[](std::string_view variable) { return env::get(variable); },
            [] {
                std::array<char, 256> own{};
                if (::gethostname(own.data(), own.size() - 1) != 0) return std::string("localhost");
                const std::string full = net::ask_for(own.data()).full_name;
                return full.empty() ? std::string(own.data()) : full;
            }};
}

void set_endpoint(Placement& placement, const Given& given) {
    const std::string& text = given.value;
    const bool bracket = text.starts_with('[');
    const std::size_t end = bracket ? text.find(']') : text.find(':');
    const std::string host = bracket ? text.substr(1, end == std::string::npos ? end : end - 1) : text.substr(0, end);
    std::string rest = end == std::string::npos ? "" : text.substr(end + (bracket ? 1 : 0));
    const bool many_colons = !bracket && text.find(':') != text.rfind(':');
    const bool good_end = rest.empty() || (rest.size() > 1 && rest.front() == ':');
    if (host.empty() || many_colons || (bracket && end == std::string::npos) || !good_end) {
        throw InvalidArgument(
            fmt::format("tutti run: {}: expected HOST, HOST:PORT or [IPv6 address]:PORT", given.text()));
    }
    placement.master_addr = {host, given.source};
    if (!rest.empty() && !placement.master_port) placement.master_port = {rest.substr(1), given.source};
    TUTTI_ASSERT(placement.master_addr);
}

bool is_range(const Given& nodes) {
    const std::string& text = nodes.value;
    return text.find(':') != std::string::npos && text.substr(0, text.find(':')) != most_of(text);
}

bool is_this_host(const std::string& host) {
    std::array<char, 256> own{};
    if (::gethostname(own.data(), own.size() - 1) == 0 && host == own.data()) return true;
    return std::ranges::any_of(net::ask_for(host).addresses, [](const net::SocketAddress& address) {
        const UniqueFd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
        return fd && ::bind(fd.get(), address.get(), address.size) == 0;
    });
}

std::string complete(Placement& p, const Pod& pod) {
    Reader reader(pod);
    take_torchrun(p, reader);
    take_indexed_job(p, reader, pod);
    take_step(p, reader);
    check(p);
    if (reader.taken().empty()) return of_lone_pod(p, reader);
    const std::string sources = fmt::format("{}", fmt::join(reader.taken(), ", "));
    if (one_node(p)) return fmt::format("tutti run: one node ({})", sources);
    const std::string node = p.node_rank ? "node " + p.node_rank.value : "a node";
    return fmt::format("tutti run: {} of {}, node 0 is {}{} ({})", node, p.nodes.value, p.master_addr.value,
                       p.master_port ? ", port " + p.master_port.value : "", sources);
}

}  // namespace tutti::launch
