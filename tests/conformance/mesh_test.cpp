// Device meshes: layouts, the groups along their dimensions and when they are made, slices, and what goes wrong.
#include "api/mesh_layout.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Ints = std::vector<std::int32_t>;
using Ranks = std::vector<int>;
using Names = std::vector<std::string>;

class Mesh : public ::testing::TestWithParam<How> {};

void expect_has(const std::string& text, const std::string& part) {
    EXPECT_TRUE(has(text, part)) << text << "\ndoes not say: " << part;
}

// Groups that this rank has been given so far: the next one's number tells.
int groups_made(const ProcessGroup& w) {
    const std::string name = new_group({.world = w}).name();
    return std::stoi(name.substr(name.rfind('_') + 1));
}

int sum_over(const ProcessGroup& group, int value) {
    Ints x{value};
    all_reduce(x, {.group = group});
    return x[0];
}

TEST_P(Mesh, of_two_hosts_with_four_devices_reduces_along_its_dimensions) {
    covers("E-202", "S5-005", "S5-006", "S5-009", "S5-012", "S5-013", "S5-014", "S5-015", "S5-016");
    run_ranks(8, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const DeviceMesh mesh("cpu", {{0, 1, 2, 3}, {4, 5, 6, 7}}, {.world = w});
        EXPECT_EQ(mesh.get_local_rank(0), me / 4);
        EXPECT_EQ(mesh.get_local_rank(1), me % 4);
        EXPECT_EQ(mesh.get_coordinate(), (Ranks{me / 4, me % 4}));
        EXPECT_EQ(mesh.get_rank(), me);
        const std::vector<ProcessGroup> groups = mesh.get_all_groups();
        ASSERT_EQ(groups.size(), 2U);
        EXPECT_EQ(groups[0].ranks(), (Ranks{me % 4, me % 4 + 4}));
        EXPECT_EQ(groups[1].ranks(), (me < 4 ? Ranks{0, 1, 2, 3} : Ranks{4, 5, 6, 7}));
        EXPECT_EQ(groups[0], mesh.get_group(0));
        EXPECT_EQ(groups[1], mesh.get_group(1));
        EXPECT_EQ(sum_over(groups[0], me), 2 * (me % 4) + 4);
        EXPECT_EQ(sum_over(groups[1], me), me < 4 ? 6 : 22);
        std::vector<float> much(50'000, static_cast<float>(me));
        all_reduce(much, {.group = mesh.get_group(0)});
        EXPECT_EQ(much, std::vector<float>(much.size(), static_cast<float>(2 * (me % 4) + 4)));
    });
}

TEST_P(Mesh, is_numbered_row_by_row_and_has_names) {
    covers("S5-001", "S5-003", "S5-004", "S5-007", "S5-014", "S5-015", "A-28");
    run_ranks(8, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const DeviceMesh flat = init_device_mesh("cpu", {8}, {.world = w});
        EXPECT_EQ(flat.ndim(), 1);
        EXPECT_EQ(flat.get_local_rank(), me);
        EXPECT_EQ(sum_over(flat, 1), 8);
        EXPECT_EQ(flat.get_group().ranks(), w.ranks());
        EXPECT_TRUE(flat.dim_names().empty());

        const DeviceMesh mesh = init_device_mesh("cpu", {2, 4}, {.dim_names = {"dp", "tp"}, .world = w});
        EXPECT_EQ(mesh.mesh(), RankArray({{0, 1, 2, 3}, {4, 5, 6, 7}}));
        EXPECT_EQ(mesh.shape(), (Ranks{2, 4}));
        EXPECT_EQ(mesh.ndim(), 2);
        EXPECT_EQ(mesh.size(), 8);
        EXPECT_EQ(mesh.size("tp"), 4);
        EXPECT_EQ(mesh.size(0), 2);
        EXPECT_EQ(mesh.dim_names(), (Names{"dp", "tp"}));
        EXPECT_EQ(mesh.device_type(), "cpu");
        EXPECT_EQ(mesh.to_string(), "DeviceMesh(\"cpu\", [[0, 1, 2, 3], [4, 5, 6, 7]], dim_names = (dp, tp))");
        EXPECT_EQ(flat.to_string(), "DeviceMesh(\"cpu\", [0, 1, 2, 3, 4, 5, 6, 7])");
        EXPECT_EQ(mesh.get_local_rank("dp"), me / 4);
        EXPECT_EQ(mesh.get_local_rank(std::string("tp")), me % 4);

        Ints gradient{me};
        all_reduce(gradient, {.group = mesh.get_group("dp")});
        EXPECT_EQ(gradient[0], 2 * (me % 4) + 4);
        Ints full(4);
        all_gather_into_tensor(full, Ints{me}, {.group = mesh["tp"]});
        EXPECT_EQ(full, (me < 4 ? Ints{0, 1, 2, 3} : Ints{4, 5, 6, 7}));
        EXPECT_EQ(mesh.get_group("tp"), ProcessGroup(mesh["tp"]));
        EXPECT_EQ(mesh.get_group("tp").description(), "tp");
        EXPECT_EQ(mesh, init_device_mesh("cpu", {2, 4}, {.dim_names = {"dp", "tp"}, .world = w}));
        EXPECT_NE(mesh, init_device_mesh("cpu", {4, 2}, {.dim_names = {"dp", "tp"}, .world = w}));
        EXPECT_NE(mesh, init_device_mesh("cpu", {2, 4}, {.world = w}));
    });
}

TEST_P(Mesh, has_one_dimension_or_two_of_the_sizes_asked_for) {
    covers("E-201");
    run_ranks(8, GetParam(),
              [](const ProcessGroup& w) { EXPECT_EQ(init_device_mesh("cpu", {8}, {.world = w}).shape(), Ranks{8}); });
    run_ranks(16, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const DeviceMesh mesh = init_device_mesh("cpu", {2, 8}, {.dim_names = {"dp", "tp"}, .world = w});
        EXPECT_EQ(mesh.get_coordinate(), (Ranks{me / 8, me % 8}));
        EXPECT_EQ(sum_over(mesh["tp"], me), me < 8 ? 28 : 92);
        EXPECT_EQ(sum_over(mesh["dp"], me), 2 * (me % 8) + 8);
    });
}

TEST_P(Mesh, makes_no_group_before_its_use) {
    covers("S5-012", "S5-014");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const int before = groups_made(w);
        const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {.dim_names = {"dp", "tp"}, .world = w});
        const DeviceMesh again("cpu", {{3, 1}, {2, 0}}, {.world = w});
        const std::uint64_t issued = group_counters(w).issued;
        const DeviceMesh line = mesh["tp"], part = mesh[{"tp", "dp"}], all = mesh.flatten();
        EXPECT_EQ(part.mesh(), RankArray({{0, 2}, {1, 3}}));
        EXPECT_EQ(all.size(), 4);
        EXPECT_EQ(group_counters(w).issued, issued) << "nothing is exchanged";
        EXPECT_EQ(groups_made(w), before + 1) << "the one that asks";
        (void)mesh.get_group("tp");  // both groups along tp
        EXPECT_EQ(groups_made(w), before + 4);
        EXPECT_EQ(ProcessGroup(line), mesh.get_group(1));
        EXPECT_EQ(part.get_group(0), mesh.get_group(1)) << "slices use the mesh's groups";
        EXPECT_EQ(groups_made(w), before + 5);
        EXPECT_EQ(part.get_all_groups().size(), 2U);
        EXPECT_EQ(groups_made(w), before + 8);
    });
}

TEST_P(Mesh, of_three_dimensions_has_slices_and_flattens) {
    covers("S5-005", "S5-013");
    run_ranks(8, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank(), pp = me / 4, dp = me / 2 % 2, tp = me % 2;
        const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {.dim_names = {"pp", "dp", "tp"}, .world = w});
        EXPECT_EQ(mesh.get_coordinate(), (Ranks{pp, dp, tp}));
        EXPECT_EQ(sum_over(mesh["pp"], me), 2 * me - 8 * pp + 4);
        EXPECT_EQ(sum_over(mesh["dp"], me), 2 * me - 4 * dp + 2);
        EXPECT_EQ(sum_over(mesh["tp"], me), 2 * me - 2 * tp + 1);

        const DeviceMesh stage = mesh[{"dp", "tp"}];
        EXPECT_EQ(stage.shape(), (Ranks{2, 2}));
        EXPECT_EQ(stage.mesh().ranks(), (Ranks{4 * pp, 4 * pp + 1, 4 * pp + 2, 4 * pp + 3}));
        EXPECT_EQ(stage.get_coordinate(), (Ranks{dp, tp}));
        EXPECT_EQ(stage.get_group("dp"), mesh.get_group("dp"));
        EXPECT_EQ(stage["tp"], mesh["tp"]);
        EXPECT_EQ(stage, mesh[Names({"dp", "tp"})]);
        expect_has(message_of<InvalidArgument>([&] { (void)stage["pp"]; }),
                   "\"pp\": expected one of a 2-D mesh (dp, tp)");
        expect_has(message_of<InvalidArgument>([&] { (void)mesh[{"dp", "dp"}]; }), "expected each dimension once");
        expect_has(message_of<InvalidArgument>([&] { sum_over(stage, 1); }),
                   "no dimension is given: expected one of a 2-D mesh (dp, tp)");

        const DeviceMesh flat = stage.flatten();
        EXPECT_EQ(flat.dim_names(), Names{"dp_tp"});
        EXPECT_EQ(flat.size(), 4);
        EXPECT_EQ(flat.get_local_rank(), me % 4);
        EXPECT_EQ(sum_over(flat, me), 16 * pp + 6);
        EXPECT_EQ(mesh["dp_tp"], flat);
        EXPECT_EQ(ProcessGroup(stage.flatten("dp_tp")), ProcessGroup(flat));
        const DeviceMesh two = mesh[{"pp", "dp_tp"}];
        EXPECT_EQ(two.mesh(), RankArray({{0, 1, 2, 3}, {4, 5, 6, 7}}));
        // Columns first: the order of the group's ranks.
        const DeviceMesh turned = mesh[{"tp", "pp"}].flatten("tp_first");
        EXPECT_EQ(turned.get_group().ranks(), (Ranks{2 * dp, 2 * dp + 4, 2 * dp + 1, 2 * dp + 5}));
        EXPECT_EQ(turned.get_group().rank(), turned.get_local_rank());
        expect_has(message_of<InvalidArgument>([&] { (void)stage.flatten("tp_first"); }), "is the name of dimensions");
        expect_has(message_of<InvalidArgument>([&] { (void)stage.flatten("pp"); }), "expected another name");
        expect_has(message_of<InvalidArgument>([&] { (void)two[{"dp", "dp_tp"}]; }), "expected each dimension once");
        expect_has(message_of<InvalidArgument>([&] { (void)stage["dp_pp"]; }), "\"dp_pp\": expected one of");
    });
}

TEST_P(Mesh, keeps_the_order_of_its_ranks) {
    covers("S5-006", "S5-013", "S5-015");
    run_ranks(6, GetParam(), [](const ProcessGroup& w) {
        const std::vector<std::int64_t> columns{5, 2, 0, 4, 1, 3};  // 5 0 1 / 2 4 3, column by column
        const ConstTensorView turned(columns.data(), {2, 3}, DType::int64, {1, 2});
        const DeviceMesh mesh("cpu", turned, {.world = w});
        EXPECT_EQ(mesh.mesh(), RankArray({{5, 0, 1}, {2, 4, 3}}));
        const auto at = mesh.get_coordinate();
        const std::vector<Ranks> rows{{5, 0, 1}, {2, 4, 3}};
        const auto row = static_cast<std::size_t>((*at)[0]), column = static_cast<std::size_t>((*at)[1]);
        EXPECT_EQ(rows[row][column], w.rank());
        const ProcessGroup in_row = mesh.get_group(1), in_column = mesh.get_group(0);
        EXPECT_EQ(in_row.ranks(), rows[row]);
        EXPECT_EQ(in_row.rank(), mesh.get_local_rank(1));
        EXPECT_EQ(in_column.ranks(), (Ranks{rows[0][column], rows[1][column]}));
        EXPECT_EQ(in_column.rank(), mesh.get_local_rank(0));
        Ints gathered(3);
        all_gather_into_tensor(gathered, Ints{w.rank()}, {.group = in_row});
        EXPECT_EQ(gathered, rows[row]);
        EXPECT_EQ(in_row.description(), "mesh_dim_1");
    });
}

TEST_P(Mesh, may_leave_out_ranks) {
    covers("S5-013");
    run_ranks(7, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        if (me != 2) {  // may call, need not
            const DeviceMesh mesh("cpu", {{6, 0}, {5, 4}}, {.dim_names = {"dp", "tp"}, .world = w});
            if (me == 1 || me == 3) {
                EXPECT_FALSE(mesh.get_coordinate());
                EXPECT_EQ(mesh.get_local_rank("tp"), -1);
                EXPECT_EQ(mesh.get_rank(), me);
                EXPECT_TRUE(mesh.get_group("tp").is_non_member());
                EXPECT_EQ(mesh.get_all_groups()[0], GroupMember::non_group_member());
                EXPECT_EQ(sum_over(mesh["dp"], me), me) << "does nothing";
                EXPECT_EQ(mesh["tp"].mesh(), (RankArray{6, 0}));
                EXPECT_TRUE(mesh.flatten().get_group().is_non_member());
            } else {
                EXPECT_EQ(sum_over(mesh["tp"], me), me == 6 || me == 0 ? 6 : 9);
                EXPECT_EQ(sum_over(mesh["dp"], me), me == 6 || me == 5 ? 11 : 4);
                EXPECT_EQ(mesh.flatten().get_group().ranks(), (Ranks{6, 0, 5, 4}));
                EXPECT_EQ(mesh.get_group("dp").rank(), *mesh.get_coordinate()->begin());
            }
        }
        barrier({.group = w});
        const DeviceMesh alone("cpu", {me}, {.world = w});  // one of its own for each
        EXPECT_EQ(sum_over(alone, me), me);
        barrier({.group = w});
    });
}

TEST_P(Mesh, is_made_of_groups_that_are_there) {
    covers("S5-010", "S5-011");
    run_ranks(5, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const DeviceMesh whole = DeviceMesh::from_group(w, "cpu");
        EXPECT_EQ(whole.mesh().ranks(), w.ranks());
        EXPECT_EQ(whole.get_group(), w);
        const ProcessGroup even = new_group({0, 2, 4}, {.world = w});
        if (me % 2 == 0) {
            const DeviceMesh mesh = DeviceMesh::from_group(even, "cpu", {.dim_names = {"even"}});
            EXPECT_EQ(mesh, DeviceMesh::from_group(even, "cpu", {.mesh = RankArray{0, 2, 4}, .dim_names = {"even"}}));
            EXPECT_EQ(mesh["even"].get_group(), even);
            EXPECT_EQ(mesh.get_local_rank(), me / 2);
            EXPECT_EQ(mesh.flatten("new").get_group().ranks(), even.ranks()) << "made among its members";
            expect_has(message_of<InvalidArgument>([&] {
                           (void)DeviceMesh::from_group(even, "cpu", {.mesh = RankArray{0, 4, 2}});
                       }),
                       "has ranks [0, 2, 4]: expected [0, 4, 2]");
        } else {
            expect_has(message_of<InvalidArgument>([&] { (void)DeviceMesh::from_group(even, "cpu"); }),
                       "not in the group: expected a member");
            const auto mesh = DeviceMesh::from_group(even, "cpu", {.mesh = RankArray{0, 2, 4}, .world = w});
            EXPECT_FALSE(mesh.get_coordinate());
            EXPECT_TRUE(mesh.get_group().is_non_member());
        }
        barrier({.group = w});
        const ProcessGroup rows = w.split({.color = me == 4 ? -1 : me / 2});
        const ProcessGroup columns = w.split({.color = me == 4 ? -1 : me % 2});
        if (me == 4) return;
        const RankArray ranks({{0, 1}, {2, 3}});
        const DeviceMesh mesh =
            DeviceMesh::from_group({columns, rows}, "cpu", {.mesh = ranks, .dim_names = {"dp", "tp"}});
        EXPECT_EQ(mesh.get_group("dp"), columns);
        EXPECT_EQ(mesh.get_group("tp"), rows);
        EXPECT_EQ(sum_over(mesh.flatten(), me), 6);
        const auto error_of = [&](const std::vector<ProcessGroup>& groups, const FromGroupOptions& options) {
            return message_of<InvalidArgument>([&] { (void)DeviceMesh::from_group(groups, "cpu", options); });
        };
        expect_has(error_of({columns, rows}, {.dim_names = {"dp", "tp"}}), "mesh is missing: several groups need");
        expect_has(error_of({columns, rows}, {.mesh = ranks}), "dim_names is missing: several groups need");
        expect_has(error_of({columns, rows}, {.mesh = RankArray{0, 1, 2, 3}, .dim_names = {"dp", "tp"}}),
                   "mesh has 1 dimensions: expected 2, one for each group");
        expect_has(error_of({rows, columns}, {.mesh = ranks, .dim_names = {"dp", "tp"}}), "line along dimension 0");
        expect_has(error_of({}, {}), "groups is empty");
    });
}

TEST_P(Mesh, refuses_what_is_none) {
    covers("S5-002", "S5-003", "S5-004", "A-28", "A-29");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const auto error_of = [&](std::string_view device, const Ranks& shape, const Names& names) {
            return message_of<InvalidArgument>(
                [&] { (void)init_device_mesh(device, shape, {.dim_names = names, .world = w}); });
        };
        expect_has(error_of("cuda:0", {4}, {}),
                   "device_type \"cuda:0\": expected \"cuda\": a mesh has no device index");
        expect_has(error_of("cpu:0", {4}, {}), "init_device_mesh: device_type \"cpu:0\": expected \"cpu\"");
        expect_has(error_of("cuda", {4}, {}),
                   "device_type \"cuda\": no backend of group \"world\" serves it: expected one of cpu:native");
        expect_has(error_of("toaster", {4}, {}), "device_type \"toaster\": expected \"cpu\"");
        expect_has(error_of("cpu", {2, 3}, {}), "mesh_shape [2, 3]: has 6 ranks: expected 4, the number of ranks");
        expect_has(error_of("cpu", {1 << 30, 1 << 30, 16}, {}), "expected 4, the number of ranks");
        expect_has(error_of("cpu", {-2, -2}, {}), "mesh_shape [-2, -2]: expected sizes of at least 1");
        expect_has(error_of("cpu", {}, {}), "mesh_shape is empty");
        expect_has(error_of("cpu", {2, 2}, {"dp"}), "dim_names has 1 names: expected 2, one for each dimension");
        expect_has(error_of("cpu", {2, 2}, {"dp", "dp"}), "dim_names has \"dp\" twice");
        expect_has(error_of("cpu", {2, 2}, {"dp", ""}), "dim_names has an empty name");

        const auto error_with = [&](const RankArray& ranks) {
            return message_of<InvalidArgument>([&] { (void)DeviceMesh("cpu", ranks, {.world = w}); });
        };
        expect_has(error_with({0, 4}), "mesh has 4: expected global ranks, 0 to 3");
        expect_has(error_with({{0, 1}, {1, 2}}), "mesh has rank 1 twice");
        expect_has(error_with(RankArray(2)), "at least one dimension");
        expect_has(message_of<InvalidArgument>([] { (void)RankArray({{0, 1}, {2}}); }), "rows of shapes [2] and [1]");
        expect_has(message_of<InvalidArgument>([] { (void)RankArray(std::vector<float>{1}); }), "expected integers");
        expect_has(
            message_of<InvalidArgument>([] { (void)RankArray(std::vector<std::int64_t>{std::int64_t{1} << 40}); }),
            "expected a rank");

        const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {.dim_names = {"dp", "tp"}, .world = w});
        expect_has(
            message_of<InvalidArgument>([&] { (void)mesh.get_group(); }),
            "DeviceMesh.get_group: no dimension is given: expected one of a 2-D mesh (dp, tp), by name or index");
        expect_has(message_of<InvalidArgument>([&] { (void)mesh.get_local_rank(); }), "no dimension is given");
        expect_has(message_of<InvalidArgument>([&] { (void)mesh.get_group("pp"); }),
                   "dimension \"pp\": expected one of a 2-D mesh (dp, tp)");
        expect_has(message_of<InvalidArgument>([&] { (void)mesh.get_local_rank(2); }), "dimension 2: expected 0 to 1");
        expect_has(message_of<InvalidArgument>([&] { (void)mesh["pp"]; }), "dimension \"pp\"");
        EXPECT_EQ(sum_over(mesh["dp"], 1), 2) << "the world lives";
    });
}

TEST_P(Mesh, that_ranks_do_not_agree_about_is_an_error_on_all) {
    covers("S5-003", "S5-006", "S5-007");
    run_ranks(
        4, GetParam(),
        [](const ProcessGroup& w) {
            const bool odd = w.rank() == 2;
            std::string text = message_of<CollectiveMismatch>([&] {
                (void)init_device_mesh("cpu", odd ? Ranks{4, 1} : Ranks{2, 2}, {.world = w});
            });
            expect_has(text, "init_device_mesh: rank 0 makes a mesh of shape [2, 2] on \"cpu\"");
            expect_has(text, "but rank 2 makes a mesh of shape [4, 1]");
            text = message_of<CollectiveMismatch>([&] {  // that one rank's shape is wrong by itself makes no difference
                (void)init_device_mesh("cpu", odd ? Ranks{3} : Ranks{4}, {.world = w});
            });
            expect_has(text, "rank 2 makes a mesh of shape [3]");
            const Names names = odd ? Names{"tp", "dp"} : Names{"dp", "tp"};
            EXPECT_THROW((void)init_device_mesh("cpu", {2, 2}, {.dim_names = names, .world = w}), CollectiveMismatch);

            // A list of ranks is compared when it is used, and so is the dimension.
            const DeviceMesh other("cpu", odd ? RankArray({{0, 1}, {2, 3}}) : RankArray({{0, 2}, {1, 3}}),
                                   {.world = w});
            text = message_of<CollectiveMismatch>([&] { (void)other.get_group(1); });
            expect_has(text, "rank 2 makes groups along dimension 1 of a mesh of shape [2, 2], [[0, 1], [2, 3]]");
            const DeviceMesh mesh = init_device_mesh("cpu", {4, 1}, {.dim_names = {"dp", "tp"}, .world = w});
            text = message_of<CollectiveMismatch>([&] { (void)mesh.get_group(odd ? 0 : 1); });
            expect_has(text, "rank 0 makes groups along dimension 1 \"tp\"");
            EXPECT_EQ(sum_over(mesh["dp"], 1), 4) << "the world lives";
            // The same among some ranks.
            if (w.rank() > 0) {
                const DeviceMesh part("cpu", odd ? RankArray{1, 2, 3} : RankArray{3, 2, 1}, {.world = w});
                EXPECT_THROW((void)part.get_group(), CollectiveMismatch);
                EXPECT_EQ(DeviceMesh("cpu", {3, 1, 2}, {.world = w}).get_group().ranks(), (Ranks{3, 1, 2}));
            }
            barrier({.group = w});
        },
        {.timeout = 10s});
}

TEST_P(Mesh, can_be_the_current_one_of_a_thread) {
    covers("S5-008");
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        expect_has(message_of<InvalidArgument>([] { (void)current_device_mesh(); }), "expected a DeviceMeshScope");
        const DeviceMesh outer = init_device_mesh("cpu", {2}, {.world = w});
        const DeviceMesh inner = init_device_mesh("cpu", {1, 2}, {.world = w});
        {
            const DeviceMeshScope scope(outer);
            EXPECT_EQ(current_device_mesh(), outer);
            {
                const DeviceMeshScope within(inner);
                EXPECT_EQ(current_device_mesh(), inner);
                EXPECT_EQ(sum_over(current_device_mesh()[1], 1), 2);
            }
            EXPECT_EQ(current_device_mesh(), outer);
        }
        EXPECT_THROW((void)current_device_mesh(), InvalidArgument);
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mesh, ::testing::ValuesIn(whole_worlds()),
                         [](const auto& tested) { return to_string(tested.param); });

#ifndef TUTTI_THREADS_ONLY
TEST(MeshWithoutAGroup, makes_the_default_group_and_waits_for_all) {
    covers("S5-001", "S5-005");
    const std::string file = ::testing::TempDir() + "mesh." + std::to_string(::getpid());
    run_ranks(4, How::shm_processes, [&](const ProcessGroup& w) {
        const int me = w.rank();
        InitOptions init{.init_method = "file://" + file, .world_size = 4, .rank = me};
        // What is wrong with the arguments comes before what is wrong with the place to meet.
        expect_has(message_of<InvalidArgument>([] { (void)init_device_mesh("cuda:0", {4}); }), "no device index");
        expect_has(message_of<InvalidArgument>([] { (void)init_device_mesh("cpu", {0}); }), "sizes of at least 1");
        EXPECT_FALSE(is_initialized());
        if (me == 3) std::this_thread::sleep_for(200ms);
        const auto begin = std::chrono::steady_clock::now();
        const auto mesh = init_device_mesh("cpu", {2, 2}, {.dim_names = {"dp", "tp"}, .init = init});
        EXPECT_GE(std::chrono::steady_clock::now() - begin, me == 3 ? 0ms : 50ms) << "waits for all";
        EXPECT_TRUE(is_initialized());
        EXPECT_EQ(mesh.get_rank(), get_rank());
        EXPECT_EQ(sum_over(mesh["tp"], me), me < 2 ? 1 : 5);
        EXPECT_EQ(sum_over(DeviceMesh("cpu", {{0, 1}, {2, 3}}).get_group(0), me), 2 * (me % 2) + 2);
        EXPECT_EQ(sum_over(DeviceMesh::from_group(default_group(), "cpu"), me), 6);
        destroy_process_group();
        EXPECT_THROW((void)sum_over(mesh["tp"], me), Aborted);
        init.init_method += ".again";
        EXPECT_EQ(sum_over(DeviceMesh("cpu", {3, 2, 1, 0}, {.init = init}).get_group(), me), 6);
        destroy_process_group();
    });
    ::unlink(file.c_str());
    ::unlink((file + ".again").c_str());
}
#endif

TEST(MeshOf1024Ranks, costs_little_before_its_use) {
    const auto us_each = [](int rounds, auto&& call) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < rounds; ++i) call(i);
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / rounds;
    };
    std::int64_t sum = 0;
    const double layout = us_each(200, [&](int i) {
        const detail::MeshLayout mesh(RankArray::row_major({8, 32, 4}), i);
        sum += mesh.index_along({1});
    });
    const double lines = us_each(200, [&](int i) {
        const detail::MeshLayout mesh(RankArray::row_major({8, 32, 4}), i);
        const auto all = mesh.lines_along({1});
        sum += all.ranks[all.own][0];
    });
    const detail::MeshLayout mesh(RankArray::row_major({8, 32, 4}), 700);  // 5, 15, 0
    EXPECT_EQ(mesh.index_along({0, 2}), 20);
    const auto columns = mesh.lines_along({0});
    EXPECT_EQ(columns.ranks.size(), 128U);
    EXPECT_EQ(columns.ranks[columns.own], (Ranks{60, 188, 316, 444, 572, 700, 828, 956}));
    EXPECT_GT(sum, 0);
    std::printf("1,024 ranks: %.1f us the layout, %.1f us with all groups along a dimension\n", layout, lines);
    std::fflush(stdout);  // before the next test forks
}

}  // namespace
}  // namespace tutti::test
