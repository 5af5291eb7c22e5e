// MPI as the oracle: the same call, on the same random sizes, types and places, once by tutti's own backend and once by
// MPI, on ranks of one mpirun. Both must leave the same bytes. A fixed seed and a fresh one, which is printed;
// ORACLE_SEED=N repeats one.
#include "mpi_job.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Ints = std::vector<int>;
using Int64s = std::vector<std::int64_t>;
using Random = std::mt19937_64;

/// MPI, from the first test to the end of the process.
struct MpiRuns {
    MpiRuns() {
        int runs = 0;
        MPI_Initialized(&runs);
        if (runs == 0) MPI_Init(nullptr, nullptr);
    }
    ~MpiRuns() { MPI_Finalize(); }
};

template <class T>
MPI_Datatype mpi_type() {
    if constexpr (std::is_same_v<T, std::uint8_t>)
        return MPI_UINT8_T;
    else if constexpr (std::is_same_v<T, std::int16_t>)
        return MPI_INT16_T;
    else if constexpr (std::is_same_v<T, std::int32_t>)
        return MPI_INT32_T;
    else if constexpr (std::is_same_v<T, std::uint64_t>)
        return MPI_UINT64_T;
    else if constexpr (std::is_same_v<T, std::int64_t>)
        return MPI_INT64_T;
    else if constexpr (std::is_same_v<T, float>)
        return MPI_FLOAT;
    else
        return MPI_DOUBLE;
}

/// f(T{}) for one of the types that both know.
template <class F>
void for_any_type(Random& random, F f) {
    switch (random() % 7) {
        case 0: return f(std::uint8_t{});
        case 1: return f(std::int16_t{});
        case 2: return f(std::int32_t{});
        case 3: return f(std::uint64_t{});
        case 4: return f(std::int64_t{});
        case 5: return f(float{});
        default: return f(double{});
    }
}

/// Whole numbers from 1 to 3, of which no sum or product of a few is inexact; other on each rank.
template <class T>
std::vector<T> some(std::size_t count, int rank, std::uint64_t salt) {
    std::vector<T> values(count + 1);  // MPI wants a pointer also where nothing is sent
    values.resize(count);
    for (std::size_t k = 0; k < count; ++k)
        values[k] = static_cast<T>(1 + (k * 7 + static_cast<std::size_t>(rank) * 5 + salt + k / 11) % 3);
    return values;
}

/// Mostly a few elements, now and then many, sometimes none.
std::size_t any_count(Random& random) {
    switch (random() % 6) {
        case 0: return 0;
        case 1: return random() % 100'000;
        case 2: return random() % 3'000;
        default: return random() % 20;
    }
}

class MpiOracle : public ::testing::TestWithParam<TransportKind> {
 protected:
    /// `rounds` calls of `body` by each of two seeds, with a group of tutti's. All ranks draw the same numbers.
    void compare(int rounds, const std::function<void(const ProcessGroup&, Random&)>& body) {
        static MpiRuns mpi;
        const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
        ProcessGroup g = job().world(name, "native", GetParam());
        std::uint64_t fresh = std::random_device{}();
        if (const char* given = std::getenv("ORACLE_SEED")) fresh = std::stoull(given);
        tutti::broadcast(fresh, {.group = g, .group_src = 0});
        if (g.rank() == 0) std::printf("%s: ORACLE_SEED=%llu\n", name.c_str(), static_cast<unsigned long long>(fresh));
        for (const std::uint64_t seed : {std::uint64_t{1}, fresh}) {
            Random random(seed);
            for (int round = 0; round < rounds && !HasFailure(); ++round) {
                SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round);
                body(g, random);
            }
        }
        g.destroy();
        job().meet(name);
    }
};
INSTANTIATE_TEST_SUITE_P(Over, MpiOracle, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& i) { return i.param == TransportKind::shm ? "shm" : "tcp"; });

/// Random blocks, one for each rank, in any order, with gaps where `gaps` says so.
struct Layout {
    Layout(Random& random, int ranks, bool gaps) {
        std::vector<std::size_t> order(static_cast<std::size_t>(ranks));
        std::iota(order.begin(), order.end(), std::size_t{0});
        if (gaps) std::ranges::shuffle(order, random);
        counts.resize(order.size());
        places.resize(order.size());
        for (const std::size_t r : order) {
            counts[r] = static_cast<int>(any_count(random));
            if (gaps) elements += random() % 5;
            places[r] = static_cast<int>(elements);
            elements += static_cast<std::size_t>(counts[r]);
        }
    }
    Int64s wide_counts() const { return {counts.begin(), counts.end()}; }
    Int64s wide_places() const { return {places.begin(), places.end()}; }
    std::size_t own(int rank) const { return static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]); }

    Ints counts, places;
    std::size_t elements = 0;
};

TEST_P(MpiOracle, gathers_and_scatters_uneven_blocks) {
    covers("S24-001", "S24-002", "S24-003", "S24-004");
    compare(40, [](const ProcessGroup& g, Random& random) {
        const int root = static_cast<int>(random() % static_cast<unsigned>(g.size()));
        const bool is_root = root == g.rank();
        const Layout blocks(random, g.size(), true), rows(random, g.size(), false);
        for_any_type(random, [&](auto example) {
            using T = decltype(example);
            const MPI_Datatype type = mpi_type<T>();
            const auto mine = some<T>(blocks.own(g.rank()), g.rank(), 0);
            const int count = static_cast<int>(mine.size());
            std::vector<T> ours(is_root ? blocks.elements : 0, T{9}), theirs = ours;
            gather_v(mine, ours,
                     is_root ? GatherVOptions{.receive_counts = blocks.wide_counts(),
                                              .receive_offsets = blocks.wide_places(),
                                              .group = g,
                                              .group_dst = root}
                             : GatherVOptions{.group = g, .group_dst = root});
            MPI_Gatherv(mine.data(), count, type, theirs.data(), blocks.counts.data(), blocks.places.data(), type, root,
                        MPI_COMM_WORLD);
            EXPECT_EQ(ours, theirs);

            std::vector<T> own(mine.size(), T{7}), own_of_mpi = own;
            scatter_v(own, ours,
                      is_root ? ScatterVOptions{.send_counts = blocks.wide_counts(),
                                                .send_offsets = blocks.wide_places(),
                                                .group = g,
                                                .group_src = root}
                              : ScatterVOptions{.group = g, .group_src = root});
            MPI_Scatterv(theirs.data(), blocks.counts.data(), blocks.places.data(), type, own_of_mpi.data(), count,
                         type, root, MPI_COMM_WORLD);
            EXPECT_EQ(own, own_of_mpi);

            std::vector<T> all(blocks.elements, T{9}), all_of_mpi = all;
            all_gather_v(
                all, mine,
                {.output_split_sizes = blocks.wide_counts(), .output_offsets = blocks.wide_places(), .group = g});
            MPI_Allgatherv(mine.data(), count, type, all_of_mpi.data(), blocks.counts.data(), blocks.places.data(),
                           type, MPI_COMM_WORLD);
            EXPECT_EQ(all, all_of_mpi);

            const auto values = some<T>(rows.elements, g.rank(), 3);
            std::vector<T> reduced(rows.own(g.rank()), T{7}), reduced_by_mpi = reduced;
            reduce_scatter_v(reduced, values, {.input_split_sizes = rows.wide_counts(), .group = g});
            MPI_Reduce_scatter(values.data(), reduced_by_mpi.data(), rows.counts.data(), type, MPI_SUM, MPI_COMM_WORLD);
            EXPECT_EQ(reduced, reduced_by_mpi);
        });
    });
}

TEST_P(MpiOracle, sends_blocks_from_all_to_all) {
    compare(40, [](const ProcessGroup& g, Random& random) {
        // Row s of the matrix: what rank s sends to each.
        const auto n = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        std::vector<Ints> counts(n, Ints(n));
        for (Ints& row : counts) {
            for (int& count : row) count = static_cast<int>(any_count(random) / 4);
        }
        Ints sent = counts[me], received(n), send_places(n), receive_places(n);
        for (std::size_t s = 0; s < n; ++s) received[s] = counts[s][me];
        std::exclusive_scan(sent.begin(), sent.end(), send_places.begin(), 0);
        std::exclusive_scan(received.begin(), received.end(), receive_places.begin(), 2);
        const auto input = some<double>(static_cast<std::size_t>(std::reduce(sent.begin(), sent.end())), g.rank(), 1);
        std::vector<double> ours(static_cast<std::size_t>(std::reduce(received.begin(), received.end())) + 2, 9.0),
            theirs = ours;
        all_to_all_v(ours, input,
                     {.send_counts = {sent.begin(), sent.end()},
                      .receive_counts = {received.begin(), received.end()},
                      .receive_offsets = {receive_places.begin(), receive_places.end()},
                      .group = g});
        MPI_Alltoallv(input.data(), sent.data(), send_places.data(), MPI_DOUBLE, theirs.data(), received.data(),
                      receive_places.data(), MPI_DOUBLE, MPI_COMM_WORLD);
        EXPECT_EQ(ours, theirs);
    });
}

TEST_P(MpiOracle, reduces_prefixes) {
    covers("S24-005", "S24-006");
    compare(60, [](const ProcessGroup& g, Random& random) {
        const std::size_t count = any_count(random);
        const auto kind = random() % 7;
        const auto both = [&]<class T>(T, ReduceOp op, MPI_Op of_mpi) {
            const auto mine = some<T>(count, g.rank(), kind);
            auto ours = mine, theirs = mine;
            scan(ours, {.op = op, .group = g});
            MPI_Scan(mine.data(), theirs.data(), static_cast<int>(count), mpi_type<T>(), of_mpi, MPI_COMM_WORLD);
            EXPECT_EQ(ours, theirs);
            ours = theirs = mine;
            exscan(ours, {.op = op, .group = g});
            MPI_Exscan(mine.data(), theirs.data(), static_cast<int>(count), mpi_type<T>(), of_mpi, MPI_COMM_WORLD);
            EXPECT_EQ(ours, theirs);
        };
        for_any_type(random, [&](auto t) {
            switch (kind) {
                case 0: return both(t, ReduceOp::sum, MPI_SUM);
                case 1: return both(t, ReduceOp::product, MPI_PROD);
                case 2: return both(t, ReduceOp::min, MPI_MIN);
                case 3: return both(t, ReduceOp::max, MPI_MAX);
                case 4: return both(std::int64_t{}, ReduceOp::band, MPI_BAND);
                case 5: return both(std::uint64_t{}, ReduceOp::bor, MPI_BOR);
                default: return both(std::int32_t{}, ReduceOp::bxor, MPI_BXOR);
            }
        });
    });
}

/// A product of these depends on the order: matrices of 2 x 2, modulo 2^32.
struct Turn {
    std::uint32_t a, b, c, d;
    bool operator==(const Turn&) const = default;
};
Turn times(const Turn& x, const Turn& y) {
    return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
}

TEST_P(MpiOracle, combines_by_the_callers_operators) {
    MPI_Datatype turn_type = MPI_DATATYPE_NULL;
    MPI_Op product_of_mpi = MPI_OP_NULL;
    compare(30, [&](const ProcessGroup& g, Random& random) {
        if (turn_type == MPI_DATATYPE_NULL) {
            MPI_Type_contiguous(4, MPI_UINT32_T, &turn_type);
            MPI_Type_commit(&turn_type);
            MPI_Op_create(
                [](void* in, void* inout, int* count, MPI_Datatype*) {
                    auto* x = static_cast<Turn*>(in);
                    auto* y = static_cast<Turn*>(inout);
                    for (int k = 0; k < *count; ++k) y[k] = times(x[k], y[k]);
                },
                0, &product_of_mpi);
        }
        const ReduceOp product = ReduceOp::of([](Turn x, Turn y) { return times(x, y); }, {.commutative = false});
        const std::size_t count = any_count(random) / 8;
        const int root = static_cast<int>(random() % static_cast<unsigned>(g.size()));
        std::vector<Turn> mine(count);
        Random own(random() + static_cast<std::uint64_t>(g.rank()));
        for (Turn& t : mine)
            t = {std::uint32_t(own()), std::uint32_t(own()), std::uint32_t(own()), std::uint32_t(own())};
        const int n = static_cast<int>(count);

        auto ours = mine, theirs = mine;
        all_reduce(items(ours), {.op = product, .group = g});
        MPI_Allreduce(mine.data(), theirs.data(), n, turn_type, product_of_mpi, MPI_COMM_WORLD);
        EXPECT_TRUE(ours == theirs) << "all_reduce of " << n;
        ours = theirs = mine;
        scan(items(ours), {.op = product, .group = g});
        MPI_Scan(mine.data(), theirs.data(), n, turn_type, product_of_mpi, MPI_COMM_WORLD);
        EXPECT_TRUE(ours == theirs) << "scan of " << n;
        ours = theirs = mine;
        reduce(items(ours), {.op = product, .group = g, .group_dst = root});
        MPI_Reduce(mine.data(), theirs.data(), n, turn_type, product_of_mpi, root, MPI_COMM_WORLD);
        EXPECT_TRUE(ours == theirs) << "reduce of " << n;

        struct Place {
            double value;
            int index;
        };
        std::vector<ValueIndex<double, std::int32_t>> least(count);
        std::vector<Place> places(count), least_of_mpi(count), greatest_of_mpi(count);
        for (std::size_t k = 0; k < count; ++k) {
            places[k] = {static_cast<double>(own() % 4), g.rank()};
            least[k] = {places[k].value, g.rank()};
        }
        auto greatest = least;
        all_reduce(items(least), {.op = ReduceOp::min_loc<double, std::int32_t>(), .group = g});
        all_reduce(items(greatest), {.op = ReduceOp::max_loc<double, std::int32_t>(), .group = g});
        MPI_Allreduce(places.data(), least_of_mpi.data(), n, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
        MPI_Allreduce(places.data(), greatest_of_mpi.data(), n, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
        for (std::size_t k = 0; k < count && !HasFailure(); ++k) {
            EXPECT_EQ(least[k].value, least_of_mpi[k].value);
            EXPECT_EQ(least[k].index, least_of_mpi[k].index);
            EXPECT_EQ(greatest[k].value, greatest_of_mpi[k].value);
            EXPECT_EQ(greatest[k].index, greatest_of_mpi[k].index);
        }
    });
}

TEST_P(MpiOracle, exchanges_in_pairs) {
    covers("P2P-001", "P2P-002");
    compare(60, [](const ProcessGroup& g, Random& random) {
        // A random permutation: each sends to one, and receives from one, itself or nobody.
        const auto n = static_cast<std::size_t>(g.size());
        Ints to(n), from(n);
        std::iota(to.begin(), to.end(), 0);
        std::ranges::shuffle(to, random);
        for (std::size_t r = 0; r < n; ++r) from[static_cast<std::size_t>(to[r])] = static_cast<int>(r);
        const int nobody = random() % 3 == 0 ? static_cast<int>(random() % n) : -1;  // nobody receives from this rank
        const auto peer = [&](int rank, int of_nobody) { return rank < 0 ? of_nobody : rank; };
        const auto me = static_cast<std::size_t>(g.rank());
        const int dst = g.rank() == nobody ? -1 : to[me], src = from[me] == nobody ? -1 : from[me];
        const int tag = static_cast<int>(random() % 9);
        const std::size_t even = any_count(random);
        std::vector<std::size_t> counts(n);
        for (std::size_t& count : counts) count = any_count(random);
        const std::size_t incoming = counts[static_cast<std::size_t>(from[me])];

        const auto mine = some<float>(counts[me], g.rank(), 2);
        std::vector<float> ours(incoming, 9), theirs = ours;
        const int sender = sendrecv(mine, peer(dst, no_rank), ours, peer(src, no_rank),
                                    {.send_tag = tag, .recv_tag = tag, .group = g});
        MPI_Status status;
        MPI_Sendrecv(mine.data(), static_cast<int>(mine.size()), MPI_FLOAT, peer(dst, MPI_PROC_NULL), tag,
                     theirs.data(), static_cast<int>(incoming), MPI_FLOAT, peer(src, MPI_PROC_NULL), tag,
                     MPI_COMM_WORLD, &status);
        EXPECT_EQ(ours, theirs);
        EXPECT_EQ(sender, src < 0 ? no_rank : status.MPI_SOURCE);

        ours = theirs = some<float>(even, g.rank(), 5);
        sendrecv_replace(ours, peer(dst, no_rank), peer(src, no_rank), {.group = g});
        MPI_Sendrecv_replace(theirs.data(), static_cast<int>(even), MPI_FLOAT, peer(dst, MPI_PROC_NULL), 0,
                             peer(src, MPI_PROC_NULL), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT_EQ(ours, theirs);
    });
}

TEST_P(MpiOracle, probes_what_has_been_sent) {
    covers("P2P-003", "P2P-005");
    compare(30, [](const ProcessGroup& g, Random& random) {
        // Each sends some messages to its right neighbour, which finds them by tag or in the order in which they came.
        const auto n = static_cast<unsigned>(g.size());
        const int right = static_cast<int>((static_cast<unsigned>(g.rank()) + 1) % n);
        const int left = static_cast<int>((static_cast<unsigned>(g.rank()) + n - 1) % n);
        struct Message {
            int tag;
            std::size_t count;
        };
        std::vector<Message> messages(1 + random() % 6);
        for (Message& m : messages) m = {static_cast<int>(random() % 3), any_count(random) / 10};
        std::vector<std::vector<double>> data;
        std::vector<Work> works;
        std::vector<MPI_Request> requests(messages.size());
        for (const Message& m : messages) data.push_back(some<double>(m.count, g.rank(), data.size()));
        for (std::size_t k = 0; k < messages.size(); ++k) {
            works.push_back(isend(data[k], right, {.tag = messages[k].tag, .group = g}));
            MPI_Isend(data[k].data(), static_cast<int>(messages[k].count), MPI_DOUBLE, right, messages[k].tag,
                      MPI_COMM_WORLD, &requests[k]);
        }
        std::vector<Message> open = messages;
        while (!open.empty()) {
            const bool any = random() % 2 == 0;
            const int tag = open[random() % open.size()].tag;
            MPI_Message message;
            MPI_Status status;
            MPI_Mprobe(left, any ? MPI_ANY_TAG : tag, MPI_COMM_WORLD, &message, &status);
            int count = 0;
            MPI_Get_count(&status, MPI_DOUBLE, &count);
            const ProbeOptions wanted{.src = left, .tag = any ? std::nullopt : std::optional(tag), .group = g};
            const MessageInfo seen = probe(wanted);
            MatchedMessage matched = matched_probe(wanted);
            EXPECT_EQ(seen, matched.info());
            EXPECT_EQ(seen.source, status.MPI_SOURCE);
            EXPECT_EQ(seen.tag, status.MPI_TAG);
            EXPECT_EQ(seen.dtype, DType::float64);
            EXPECT_EQ(seen.element_count, count);
            std::vector<double> ours(static_cast<std::size_t>(count), 9), theirs = ours;
            const auto gone = std::ranges::find(open, status.MPI_TAG, &Message::tag);
            ASSERT_NE(gone, open.end());
            open.erase(gone);
            MPI_Mrecv(theirs.data(), count, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
            ASSERT_EQ(seen.element_count, count);
            matched.recv(ours);
            EXPECT_EQ(ours, theirs);
        }
        for (Work& work : works) work.wait();
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    });
}

TEST_P(MpiOracle, exchanges_between_neighbours) {
    compare(12, [](const ProcessGroup& g, Random& random) {
        // A random graph, in which a pair may have several edges, or a rank one to itself.
        const auto n = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        Ints sources, destinations;
        std::vector<std::size_t> in, out, gathered;
        std::vector<std::size_t> own_counts(n);
        for (std::size_t& count : own_counts) count = any_count(random) / 4;
        for (std::size_t s = 0; s < n; ++s) {
            for (std::size_t d = 0; d < n; ++d) {
                for (auto edges = random() % 3; edges > 0; --edges) {
                    const std::size_t count = any_count(random) / 4;
                    if (s == me) {
                        destinations.push_back(static_cast<int>(d));
                        out.push_back(count);
                    }
                    if (d == me) {
                        sources.push_back(static_cast<int>(s));
                        in.push_back(count);
                        gathered.push_back(own_counts[s]);
                    }
                }
            }
        }
        const NeighborGraph graph(sources, destinations, {.group = g});
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(sources.size()), sources.data(), MPI_UNWEIGHTED,
                                       static_cast<int>(destinations.size()), destinations.data(), MPI_UNWEIGHTED,
                                       MPI_INFO_NULL, 0, &comm);
        const auto places = [](const std::vector<std::size_t>& counts) {
            Ints at(counts.size());
            at.reserve(1);
            std::exclusive_scan(counts.begin(), counts.end(), at.begin(), 0,
                                [](int sum, auto next) { return sum + static_cast<int>(next); });
            return at;
        };
        const auto narrow = [](const std::vector<std::size_t>& counts) { return Ints(counts.begin(), counts.end()); };
        const auto sum = [](const std::vector<std::size_t>& counts) {
            return std::reduce(counts.begin(), counts.end());
        };
        const auto views = [](auto& whole, const std::vector<std::size_t>& counts, const Ints& at) {
            std::vector<TensorView> parts;
            for (std::size_t k = 0; k < counts.size(); ++k)
                parts.emplace_back(whole.data() + at[k], Extents{static_cast<std::int64_t>(counts[k])}, DType::int64);
            return parts;
        };
        auto input = some<std::int64_t>(sum(out), g.rank(), 4);
        Int64s ours(sum(in), 9), theirs = ours;
        theirs.reserve(1);  // Open MPI refuses null pointers
        const Ints in_places = places(in), out_places = places(out);
        const auto to = views(input, out, out_places);
        neighbor_all_to_all(views(ours, in, in_places), ConstTensorList(to.begin(), to.end()), graph);
        MPI_Neighbor_alltoallv(input.data(), narrow(out).data(), out_places.data(), MPI_INT64_T, theirs.data(),
                               narrow(in).data(), in_places.data(), MPI_INT64_T, comm);
        EXPECT_EQ(ours, theirs);

        const auto mine = some<std::int64_t>(own_counts[me], g.rank(), 6);
        const Ints gathered_places = places(gathered);
        ours.assign(sum(gathered), 9);
        theirs.assign(ours.begin(), ours.end());
        neighbor_all_gather(views(ours, gathered, gathered_places), mine, graph);
        MPI_Neighbor_allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_INT64_T, theirs.data(),
                                narrow(gathered).data(), gathered_places.data(), MPI_INT64_T, comm);
        EXPECT_EQ(ours, theirs);
        MPI_Comm_free(&comm);
    });
}

TEST_P(MpiOracle, finds_neighbours_and_shapes_of_meshes) {
    compare(40, [](const ProcessGroup& g, Random& random) {
        const int ranks = 1 + static_cast<int>(random() % 200);
        std::array<int, 3> of_mpi{};
        const int dims = 1 + static_cast<int>(random() % 3);
        MPI_Dims_create(ranks, dims, of_mpi.data());
        // Open MPI's is not always the nearest to a cube: it divides 72 ranks into 12 x 6.
        const std::vector<int> ours = balanced_mesh_shape(ranks, std::vector<int>(static_cast<std::size_t>(dims), 0));
        EXPECT_EQ(std::reduce(ours.begin(), ours.end(), 1, std::multiplies<>()), ranks);
        EXPECT_TRUE(std::ranges::is_sorted(ours, std::greater<>()));
        EXPECT_LE(ours.front() - ours.back(), of_mpi.front() - of_mpi[static_cast<std::size_t>(dims) - 1])
            << ranks << " ranks";
        const bool periodic = random() % 2 == 0;
        const int distance = 1 + static_cast<int>(random() % 3);
        set_default_group(g);
        const DeviceMesh mesh = init_device_mesh("cpu", {g.size()});
        const int size = g.size(), wraps = periodic ? 1 : 0;
        MPI_Comm line = MPI_COMM_NULL;
        MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &wraps, 0, &line);
        int low = 0, high = 0;
        MPI_Cart_shift(line, 0, distance, &low, &high);
        const auto as_ours = [](int rank) { return rank == MPI_PROC_NULL ? no_rank : rank; };
        EXPECT_EQ(mesh_neighbors(mesh, {}, {.periodic = periodic, .distance = distance}),
                  (MeshNeighbors{as_ours(low), as_ours(high)}));
        MPI_Comm_free(&line);
    });
}

TEST_P(MpiOracle, updates_windows) {
    compare(12, [](const ProcessGroup& g, Random& random) {
        // All ranks update all ranks' elements at once: by one operator in each of some epochs, so that the order does
        // not matter. Then each looks what the others' memory holds.
        const auto n = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        std::vector<std::int64_t> sizes(n);
        for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(any_count(random) / 4);
        Window window(DType::int64, {sizes[me]}, {.group = g});
        Int64s memory(static_cast<std::size_t>(sizes[me]) + 1, 0);
        MPI_Win of_mpi = MPI_WIN_NULL;
        MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size() * sizeof(std::int64_t)), sizeof(std::int64_t),
                       MPI_INFO_NULL, MPI_COMM_WORLD, &of_mpi);
        MPI_Win_fence(0, of_mpi);
        const std::array<std::pair<AccumulateOp, MPI_Op>, 6> operators{{{ReduceOp::sum, MPI_SUM},
                                                                        {ReduceOp::max, MPI_MAX},
                                                                        {ReduceOp::bxor, MPI_BXOR},
                                                                        {ReduceOp::bor, MPI_BOR},
                                                                        {ReduceOp::min, MPI_MIN},
                                                                        {ReduceOp::band, MPI_BAND}}};
        for (int epoch = 0; epoch < 4; ++epoch) {
            const auto& [op, op_of_mpi] = operators[random() % operators.size()];
            struct Update {
                int target;
                std::int64_t offset;
                Int64s values;
            };
            std::vector<Update> updates(10);
            Random own(random() + me);
            for (Update& u : updates) {
                u.target = static_cast<int>(own() % n);
                const auto size = static_cast<std::uint64_t>(sizes[static_cast<std::size_t>(u.target)]);
                u.offset = size == 0 ? 0 : static_cast<std::int64_t>(own() % size);
                const auto most = std::min<std::uint64_t>(size - static_cast<std::uint64_t>(u.offset), 300);
                u.values = some<std::int64_t>(own() % (most + 1), g.rank(), own());
                Int64s before(u.values.size());
                if (own() % 3 == 0)
                    window.get_accumulate(u.values, before, u.target, op, {.offset = u.offset});
                else
                    window.accumulate(u.values, u.target, op, {.offset = u.offset});
            }
            window.fence();
            // MPI's targets make progress only in calls of MPI, so these come when nobody waits in a call of tutti.
            for (const Update& u : updates)
                MPI_Accumulate(u.values.data(), static_cast<int>(u.values.size()), MPI_INT64_T, u.target, u.offset,
                               static_cast<int>(u.values.size()), MPI_INT64_T, op_of_mpi, of_mpi);
            MPI_Win_fence(0, of_mpi);
            // Of each rank's memory one piece is written by one other rank, and read by a third.
            const auto writer = static_cast<std::size_t>(random() % n), reader = static_cast<std::size_t>(random() % n);
            for (std::size_t target = 0; target < n; ++target) {
                const auto count = static_cast<std::size_t>(sizes[target]);
                const auto values = some<std::int64_t>(count / 2, g.rank(), random());
                if (me == writer) {
                    window.put(values, static_cast<int>(target), {.offset = static_cast<std::int64_t>(count / 3)});
                    MPI_Put(values.data(), static_cast<int>(count / 2), MPI_INT64_T, static_cast<int>(target),
                            static_cast<MPI_Aint>(count / 3), static_cast<int>(count / 2), MPI_INT64_T, of_mpi);
                }
                MPI_Win_fence(0, of_mpi);
                window.fence();
                Int64s ours(count, 9), theirs = ours;
                if (me == reader) {
                    window.get(ours, static_cast<int>(target));
                    MPI_Get(theirs.data(), static_cast<int>(count), MPI_INT64_T, static_cast<int>(target), 0,
                            static_cast<int>(count), MPI_INT64_T, of_mpi);
                }
                MPI_Win_fence(0, of_mpi);
                EXPECT_EQ(ours, theirs) << "the memory of rank " << target << " in epoch " << epoch;
            }
        }
        window.fence();
        MPI_Win_free(&of_mpi);
        window.close();
    });
}

}  // namespace
}  // namespace tutti::test
