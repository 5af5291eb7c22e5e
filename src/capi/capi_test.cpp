// The C ABI where something is wrong: arguments, handles, options, and worlds that fail. tests/capi/ranks.c has the
// collectives that go well.
#include <tutti/tutti.h>
#include <tutti/dtype.hpp>
#include <tutti/error.hpp>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" std::int64_t elements_of_vector_in_c(void);
extern "C" std::size_t sizes_of_initialisers_in_c(void);

namespace {

using std::chrono::steady_clock;

// The call fails with `status`, and its sentence has all these words.
void expect_error(int status, int expected, std::initializer_list<const char*> words) {
    EXPECT_EQ(tutti_status_name(status), std::string(tutti_status_name(expected))) << tutti_last_error();
    for (const char* word : words) {
        EXPECT_NE(std::string(tutti_last_error()).find(word), std::string::npos)
            << "no \"" << word << "\" in: " << tutti_last_error();
    }
}
void expect_ok(int status) {
    EXPECT_EQ(status, TUTTI_OK) << tutti_last_error();
}

tutti_store* hash_store() {
    tutti_store* store = nullptr;
    expect_ok(tutti_store_hash(0, &store));
    return store;
}

struct Vector {
    explicit Vector(std::vector<float> values) : floats(std::move(values)), count(std::ssize(floats)) {}
    tutti_tensor tensor() { return {floats.data(), TUTTI_FLOAT32, 1, &count, nullptr}; }
    std::vector<float> floats;
    std::int64_t count;
};

// Ranks as threads; every one gets a group of its own, which the body may destroy.
void run_world(int size, const std::function<void(int rank, tutti_group* group)>& body) {
    tutti_store* store = hash_store();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            tutti_group_options options = TUTTI_GROUP_OPTIONS_INIT;
            options.store = store;
            options.rank = rank;
            options.world_size = size;
            options.timeout_ms = 20'000;
            options.name = "c";
            tutti_group* group = nullptr;
            expect_ok(tutti_group_create(&options, &group));
            if (group != nullptr) body(rank, group);
        });
    }
    for (std::thread& thread : threads) thread.join();
    expect_ok(tutti_store_free(store));
}

TEST(CHeader, says_the_same_in_c_as_in_cpp) {
    EXPECT_EQ(elements_of_vector_in_c(), 3);
    EXPECT_EQ(sizes_of_initialisers_in_c(), sizeof(tutti_tcp_store_options) + sizeof(tutti_init_options) +
                                                sizeof(tutti_group_options) + sizeof(tutti_options) +
                                                sizeof(tutti_quantized_options) + sizeof(tutti_window_options));
    for (int dtype = 0; dtype < tutti::dtype_count; ++dtype) {
        EXPECT_EQ(tutti_dtype_size(dtype), tutti::size_of(static_cast<tutti::DType>(dtype)));
        EXPECT_EQ(tutti_dtype_name(dtype), tutti::to_string(static_cast<tutti::DType>(dtype)));
    }
    EXPECT_EQ(tutti_dtype_name(TUTTI_FLOAT8_E5M2), std::string("float8_e5m2"));
    EXPECT_EQ(tutti_dtype_size(17), 0U);
    EXPECT_EQ(tutti_dtype_name(-1), nullptr);
    EXPECT_EQ(static_cast<int>(tutti::ReduceOp::Kind::premul_sum), TUTTI_PREMUL_SUM);
    EXPECT_EQ(static_cast<int>(tutti::Determinism::layout_invariant), TUTTI_LAYOUT_INVARIANT);
    EXPECT_EQ(static_cast<int>(tutti::TransportKind::tcp), TUTTI_TRANSPORT_TCP);
}

TEST(CHeader, names_every_status) {
    EXPECT_STREQ(tutti_status_name(TUTTI_OK), "ok");
    EXPECT_STREQ(tutti_status_name(TUTTI_COLLECTIVE_MISMATCH), "collective_mismatch");
    EXPECT_STREQ(tutti_status_name(TUTTI_NO_MEMORY), "no_memory");
    EXPECT_STREQ(tutti_status_name(-5), "unknown");
}

TEST(CErrors, null_is_refused_with_the_names_of_function_and_argument) {
    tutti_store* store = hash_store();
    void* value = nullptr;
    const auto invalid = TUTTI_INVALID_ARGUMENT;
    expect_error(tutti_store_hash(0, nullptr), invalid, {"tutti_store_hash: store: NULL: expected"});
    expect_error(tutti_store_file(nullptr, 0, 0, &store), invalid, {"tutti_store_file: path: NULL"});
    expect_error(tutti_store_set(nullptr, "a", "b", 1), invalid, {"tutti_store_set: store: NULL: expected a store"});
    expect_error(tutti_store_set(store, nullptr, "b", 1), invalid, {"tutti_store_set: key: NULL"});
    expect_error(tutti_store_set(store, "a", nullptr, 1), invalid, {"tutti_store_set: value: NULL"});
    expect_error(tutti_store_get(store, "a", 0, nullptr, nullptr), invalid, {"tutti_store_get: value: NULL"});
    expect_error(tutti_store_check(store, nullptr, 1, nullptr), invalid, {"tutti_store_check: exist: NULL"});
    const char* keys[] = {"a", nullptr};
    expect_error(tutti_store_wait(store, keys, 2, 0), invalid, {"tutti_store_wait: keys[1]: NULL"});
    expect_error(tutti_store_multi_get(store, keys, 1, nullptr, nullptr), invalid, {"values: NULL"});
    expect_error(tutti_group_create(nullptr, nullptr), invalid, {"tutti_group_create: group: NULL"});
    tutti_group* group = nullptr;
    expect_error(tutti_group_create(nullptr, &group), invalid, {"tutti_group_create: options: NULL"});
    tutti_group_options no_store = TUTTI_GROUP_OPTIONS_INIT;
    expect_error(tutti_group_create(&no_store, &group), invalid, {"options.store: NULL: expected a store"});
    expect_error(tutti_all_reduce(nullptr, TUTTI_SUM, nullptr), invalid, {"tutti_all_reduce: tensor: NULL"});
    expect_error(tutti_all_gather(nullptr, 2, nullptr, nullptr), invalid, {"tutti_all_gather: "});
    expect_error(tutti_barrier_async(nullptr, nullptr), invalid, {"tutti_barrier_async: work: NULL"});
    expect_error(tutti_work_wait(nullptr, 0), invalid, {"tutti_work_wait: work: NULL: expected a work"});
    EXPECT_EQ(value, nullptr);
    EXPECT_EQ(group, nullptr);
    expect_ok(tutti_store_free(nullptr));
    expect_ok(tutti_group_free(nullptr));
    expect_ok(tutti_work_free(nullptr));
    tutti_free(nullptr);
    expect_ok(tutti_store_free(store));
}

TEST(CErrors, handles_that_are_old_foreign_or_of_another_kind_are_refused) {
    tutti_store* store = hash_store();
    int local = 0;
    for (void* wrong : {static_cast<void*>(store), static_cast<void*>(&local)}) {
        expect_error(tutti_group_rank(static_cast<tutti_group*>(wrong), &local), TUTTI_INVALID_ARGUMENT,
                     {"tutti_group_rank: group: ", "expected a group"});
        expect_error(tutti_work_test(static_cast<tutti_work*>(wrong), &local), TUTTI_INVALID_ARGUMENT, {"a work"});
    }
    expect_ok(tutti_store_free(store));
    expect_error(tutti_store_free(store), TUTTI_INVALID_ARGUMENT, {"tutti_store_free: store: ", "given back"});
    expect_error(tutti_store_set(store, "a", "b", 1), TUTTI_INVALID_ARGUMENT, {"given back"});
}

TEST(CErrors, without_a_default_group_everything_says_so) {
    EXPECT_EQ(tutti_is_initialized(), 0);
    Vector x({1});
    const tutti_tensor tensor = x.tensor();
    int rank = -7;
    expect_error(tutti_all_reduce(&tensor, TUTTI_SUM, nullptr), TUTTI_NOT_INITIALIZED, {"init_process_group"});
    expect_error(tutti_group_rank(nullptr, &rank), TUTTI_NOT_INITIALIZED, {"init_process_group"});
    expect_error(tutti_destroy_process_group(nullptr), TUTTI_NOT_INITIALIZED, {});
    EXPECT_EQ(rank, -7) << "unchanged where a call fails";
}

TEST(CErrors, the_last_sentence_belongs_to_its_thread_and_outlives_calls_that_succeed) {
    expect_error(tutti_work_wait(nullptr, 0), TUTTI_INVALID_ARGUMENT, {"tutti_work_wait"});
    std::thread([] { EXPECT_STREQ(tutti_last_error(), ""); }).join();
    expect_ok(tutti_store_free(hash_store()));
    EXPECT_NE(std::string(tutti_last_error()).find("tutti_work_wait"), std::string::npos);
    EXPECT_EQ(tutti_last_error_peer(), -1);
}

TEST(COptions, begin_with_their_size_and_may_grow) {
    run_world(1, [](int, tutti_group* group) {
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        expect_ok(tutti_barrier(&options));

        options.size = 0;
        expect_error(tutti_barrier(&options), TUTTI_INVALID_ARGUMENT, {"tutti_barrier: options.size: 0: expected"});
        options.size = offsetof(tutti_options, group_ranks);  // an older program: the members behind are not looked at
        options.group_ranks = 77;
        expect_ok(tutti_barrier(&options));

        struct Newer {
            tutti_options known = TUTTI_OPTIONS_INIT;
            std::int64_t added = 0;
        } newer;
        newer.known.size = sizeof newer;
        newer.known.group = group;
        expect_ok(tutti_barrier(&newer.known));
        newer.added = 1;
        expect_error(tutti_barrier(&newer.known), TUTTI_INVALID_ARGUMENT, {"tutti_options", "a newer library"});
        expect_ok(tutti_destroy_process_group(group));
    });
}

TEST(COptions, wrong_members_are_named_with_what_is_expected) {
    run_world(1, [](int, tutti_group* group) {
        Vector x({1, 2});
        const tutti_tensor tensor = x.tensor();
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        options.timeout_ms = -1;
        expect_error(tutti_barrier(&options), TUTTI_INVALID_ARGUMENT,
                     {"options.timeout_ms: -1 ms: expected 0 or more"});
        options.timeout_ms = INT64_MAX;  // for ever
        expect_ok(tutti_barrier(&options));
        options.group_ranks = 2;
        expect_error(tutti_barrier(&options), TUTTI_INVALID_ARGUMENT, {"options.group_ranks: 2: expected 0 to 1"});
        options.group_ranks = 1;
        expect_error(tutti_broadcast(&tensor, 1, &options), TUTTI_INVALID_ARGUMENT, {"1", "expected"});
        options.timeout_ms = 50;
        tutti_work* work = nullptr;
        expect_error(tutti_isend(&tensor, 0, &options, &work), TUTTI_INVALID_ARGUMENT, {"options.timeout_ms: 50 ms"});
        options.timeout_ms = 0;
        options.tag = -3;
        expect_error(tutti_isend(&tensor, 0, &options, &work), TUTTI_INVALID_ARGUMENT, {"tag -3"});
        EXPECT_EQ(work, nullptr);
        expect_error(tutti_all_reduce(&tensor, 9, nullptr), TUTTI_INVALID_ARGUMENT, {"op: 9: expected 0 to 8"});
        tutti_group_options made = TUTTI_GROUP_OPTIONS_INIT;
        made.store = hash_store();
        made.transport = 5;
        expect_error(tutti_group_create(&made, &group), TUTTI_INVALID_ARGUMENT,
                     {"options.transport: 5: expected 0 to 2"});
        made.transport = 0;
        made.world_size = 2;
        made.rank = 2;
        expect_error(tutti_group_create(&made, &group), TUTTI_INVALID_ARGUMENT, {"rank 2: expected 0 to 1"});
        expect_ok(tutti_store_free(made.store));
        expect_ok(tutti_destroy_process_group(group));
    });
}

TEST(CTensors, that_cannot_be_are_refused) {
    const auto refused = [](tutti_tensor tensor, std::initializer_list<const char*> words) {
        expect_error(tutti_all_reduce(&tensor, TUTTI_SUM, nullptr), TUTTI_INVALID_ARGUMENT, words);
    };
    float x[6] = {};
    const std::int64_t shape[] = {2, 3}, negative[] = {-1, 3}, huge[] = {INT64_MAX, 3};
    refused({x, 17, 2, shape, nullptr}, {"tutti_all_reduce: tensor.dtype: 17: expected 0 to 16"});
    refused({x, TUTTI_FLOAT32, -1, shape, nullptr}, {"tensor.ndim: -1: expected 0 to 64"});
    refused({x, TUTTI_FLOAT32, 65, shape, nullptr}, {"tensor.ndim: 65"});
    refused({x, TUTTI_FLOAT32, 2, nullptr, nullptr}, {"tensor.shape: NULL"});
    refused({x, TUTTI_FLOAT32, 2, negative, nullptr}, {"tutti_all_reduce: tensor: ", "negative"});
    refused({x, TUTTI_FLOAT32, 2, huge, nullptr}, {"tensor: ", "too many elements"});
    refused({nullptr, TUTTI_FLOAT32, 2, shape, nullptr}, {"tensor: ", "null"});
    const tutti_tensor list[] = {{x, TUTTI_FLOAT32, 2, shape, nullptr}, {x, 99, 2, shape, nullptr}};
    expect_error(tutti_reduce_scatter(&list[0], list, 2, TUTTI_SUM, nullptr), TUTTI_INVALID_ARGUMENT,
                 {"inputs[1].dtype: 99"});
}

TEST(CTensors, may_be_scalars_strided_or_empty) {
    run_world(2, [](int rank, tutti_group* group) {
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        double scalar = rank + 1;
        const tutti_tensor one{&scalar, TUTTI_FLOAT64, 0, nullptr, nullptr};
        expect_ok(tutti_all_reduce(&one, TUTTI_SUM, &options));
        EXPECT_EQ(scalar, 3);
        std::array<std::int32_t, 6> matrix{1, 9, 2, 9, 3, 9};  // every second element
        const std::int64_t shape[] = {3}, strides[] = {2};
        const tutti_tensor column{matrix.data(), TUTTI_INT32, 1, shape, strides};
        expect_ok(tutti_all_reduce(&column, TUTTI_SUM, &options));
        EXPECT_EQ(matrix, (std::array<std::int32_t, 6>{2, 9, 4, 9, 6, 9}));
        const std::int64_t none[] = {0};
        const tutti_tensor empty{nullptr, TUTTI_FLOAT32, 1, none, nullptr};
        expect_ok(tutti_all_reduce(&empty, TUTTI_SUM, &options));
        expect_ok(tutti_destroy_process_group(group));
    });
}

TEST(CStores, keep_bytes_count_and_wait) {
    tutti_store *store = hash_store(), *inner = nullptr;
    expect_ok(tutti_store_prefix("job", store, &inner));
    expect_ok(tutti_store_set(inner, "bytes", "a\0b", 3));
    void* value = nullptr;
    std::size_t bytes = 0;
    expect_ok(tutti_store_get(store, "job/bytes", 0, &value, &bytes));
    ASSERT_EQ(bytes, 3U);
    EXPECT_EQ(std::memcmp(value, "a\0b", 4), 0) << "a zero byte behind the value";
    tutti_free(value);

    std::int64_t sum = 0;
    expect_ok(tutti_store_add(store, "counter", 5, nullptr));
    expect_ok(tutti_store_add(store, "counter", -2, &sum));
    EXPECT_EQ(sum, 3);
    expect_error(tutti_store_add(store, "job/bytes", 1, &sum), TUTTI_STORE, {"job/bytes"});
    expect_ok(tutti_store_compare_set(store, "lock", nullptr, 0, "me", 2, &value, &bytes));
    EXPECT_STREQ(static_cast<char*>(value), "me");
    tutti_free(value);
    expect_ok(tutti_store_append(store, "lock", "!", 1));

    const char* keys[] = {"x", "y", "lock"};
    const void* values[] = {"1", nullptr};
    const std::size_t sizes[] = {1, 0};
    expect_ok(tutti_store_multi_set(store, keys, values, sizes, 2));
    void* got[3] = {};
    std::size_t got_bytes[3] = {};
    expect_ok(tutti_store_multi_get(store, keys, 3, got, got_bytes));
    EXPECT_STREQ(static_cast<char*>(got[2]), "me!");
    EXPECT_EQ(got_bytes[1], 0U);
    for (void* memory : got) tutti_free(memory);
    int answer = -1;
    expect_ok(tutti_store_check(store, keys, 3, &answer));
    EXPECT_EQ(answer, 1);
    expect_ok(tutti_store_delete_key(store, "x", &answer));
    EXPECT_EQ(answer, 1);
    expect_ok(tutti_store_check(store, keys, 3, &answer));
    EXPECT_EQ(answer, 0);
    std::int64_t count = 0;
    expect_ok(tutti_store_num_keys(store, &count));
    EXPECT_EQ(count, 4);

    expect_error(tutti_store_wait(store, keys, 1, 30), TUTTI_TIMEOUT, {"x"});
    expect_error(tutti_store_get(store, "x", 30, &value, nullptr), TUTTI_TIMEOUT, {"x"});
    expect_ok(tutti_store_set_timeout(store, 40));
    expect_ok(tutti_store_timeout(store, &count));
    EXPECT_EQ(count, 40);
    int port = 0;
    expect_error(tutti_store_port(store, &port), TUTTI_INVALID_ARGUMENT, {"HashStore", "expected a TCP store"});
    expect_ok(tutti_store_abort(store, "enough"));
    expect_error(tutti_store_wait(store, keys, 1, 5000), TUTTI_ABORTED, {"enough"});
    expect_ok(tutti_store_free(store));
    expect_ok(tutti_store_free(inner));
}

TEST(CStores, go_on_with_a_standby_when_the_master_is_freed) {
    tutti_tcp_store_options options = TUTTI_TCP_STORE_OPTIONS_INIT;
    options.is_master = options.with_standby = 1;
    options.secret = "the secret of ours";
    tutti_store *server = nullptr, *standby = nullptr, *client = nullptr;
    expect_ok(tutti_store_tcp(&options, &server));
    expect_ok(tutti_store_port(server, &options.port));
    options.is_master = options.with_standby = 0;
    expect_ok(tutti_store_tcp(&options, &client));
    options.is_standby = 1;
    expect_ok(tutti_store_tcp(&options, &standby));
    expect_ok(tutti_store_set(client, "k", "v", 1));
    expect_ok(tutti_store_free(server));
    void* value = nullptr;
    expect_ok(tutti_store_get(client, "k", 5000, &value, nullptr));
    EXPECT_STREQ(static_cast<char*>(value), "v");
    tutti_free(value);
    options.is_standby = 2;
    tutti_store* none = nullptr;
    expect_error(tutti_store_tcp(&options, &none), TUTTI_INVALID_ARGUMENT, {"options.is_standby: 2"});
    for (tutti_store* store : {client, standby}) expect_ok(tutti_store_free(store));
}

TEST(CStores, over_tcp_and_in_files) {
    tutti_tcp_store_options options = TUTTI_TCP_STORE_OPTIONS_INIT;
    options.is_master = 1;
    options.secret = "the secret of ours";
    tutti_store *server = nullptr, *client = nullptr;
    expect_ok(tutti_store_tcp(&options, &server));
    expect_ok(tutti_store_port(server, &options.port));
    options.is_master = 0;
    expect_ok(tutti_store_tcp(&options, &client));
    expect_ok(tutti_store_set(server, "k", "v", 1));
    void* value = nullptr;
    expect_ok(tutti_store_get(client, "k", 1000, &value, nullptr));
    EXPECT_STREQ(static_cast<char*>(value), "v");
    tutti_free(value);
    options.secret = "the secret of theirs";
    tutti_store* stranger = nullptr;
    expect_error(tutti_store_tcp(&options, &stranger), TUTTI_SECURITY, {"secret"});
    options.port = 70'000;
    expect_error(tutti_store_tcp(&options, &stranger), TUTTI_INVALID_ARGUMENT,
                 {"options.port: 70000: expected 0 to 65535"});
    EXPECT_EQ(stranger, nullptr);
    expect_ok(tutti_store_free(client));
    expect_ok(tutti_store_free(server));

    tutti_store* file = nullptr;
    const std::string path = ::testing::TempDir() + "tutti-capi-" + std::to_string(::getpid());
    expect_ok(tutti_store_file(path.c_str(), 1, 0, &file));
    expect_ok(tutti_store_set(file, "k", "v", 1));
    expect_ok(tutti_store_free(file));
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << "its last user removes it";
    expect_error(tutti_store_file("/no/such/folder/x", 1, 0, &file), TUTTI_STORE, {"/no/such/folder/x"});
}

TEST(CWorlds, what_differs_is_told_to_every_rank) {
    run_world(2, [](int rank, tutti_group* group) {
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        Vector x(std::vector<float>(static_cast<std::size_t>(1000 + rank)));
        const tutti_tensor tensor = x.tensor();
        expect_error(tutti_all_reduce(&tensor, TUTTI_SUM, &options), TUTTI_COLLECTIVE_MISMATCH, {"1000", "1001"});
        expect_ok(tutti_group_free(group));
    });
}

TEST(CWorlds, windows_refuse_what_does_not_fit_and_name_it) {
    run_world(2, [](int rank, tutti_group* group) {
        tutti_window_options options = TUTTI_WINDOW_OPTIONS_INIT;
        options.group = group;
        tutti_window* window = nullptr;
        const std::int64_t shape = rank;
        expect_error(tutti_window_create(99, &shape, 1, &options, &window), TUTTI_INVALID_ARGUMENT, {"dtype", "99"});
        expect_error(tutti_window_create(TUTTI_INT32, nullptr, 1, &options, &window), TUTTI_INVALID_ARGUMENT,
                     {"tutti_window_create", "shape"});
        expect_ok(tutti_window_create(TUTTI_INT32, &shape, 1, &options, &window));
        std::int32_t one = 1, before = -1;
        expect_error(tutti_window_fetch_op(window, &one, &before, 0, TUTTI_SUM, 0, 0), TUTTI_INVALID_ARGUMENT,
                     {"offset 0 and 1 elements", "0 elements on rank 0"});
        expect_error(tutti_window_fetch_op(window, nullptr, &before, 1, TUTTI_SUM, 0, 0), TUTTI_INVALID_ARGUMENT,
                     {"tutti_window_fetch_op: value"});
        expect_error(tutti_window_fetch_op(window, &one, &before, 1, 55, 0, 0), TUTTI_INVALID_ARGUMENT, {"op", "55"});
        expect_error(tutti_window_wait_signal(window, 0, 1, 20), TUTTI_TIMEOUT, {"signal 0 is 0"});
        EXPECT_EQ(before, -1);
        expect_ok(tutti_window_close(window, 0));
        expect_error(tutti_window_flush(window, 1, 0), TUTTI_INVALID_ARGUMENT, {"is closed"});
        expect_ok(tutti_window_free(window));
        expect_error(tutti_window_fence(window, 0), TUTTI_INVALID_ARGUMENT, {"expected a window"});
        expect_ok(tutti_group_free(group));
    });
}

TEST(CWorlds, a_rank_that_leaves_is_named) {
    run_world(2, [](int rank, tutti_group* group) {
        if (rank == 1) return expect_ok(tutti_destroy_process_group(group));
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        tutti_work* work = nullptr;
        expect_ok(tutti_barrier_async(&options, &work));
        expect_error(tutti_work_wait(work, 0), TUTTI_PEER_LOST, {"rank 1"});
        EXPECT_EQ(tutti_last_error_peer(), 1);
        tutti_status error = TUTTI_OK;
        expect_ok(tutti_work_error(work, &error));
        expect_error(error, TUTTI_PEER_LOST, {"rank 1"});
        expect_ok(tutti_work_free(work));
        expect_ok(tutti_group_free(group));
    });
}

TEST(CWorlds, waits_end_when_their_time_is_over_or_the_group_is_aborted) {
    run_world(2, [](int rank, tutti_group* group) {
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        if (rank == 0) {
            Vector x({1});
            const tutti_tensor tensor = x.tensor();
            tutti_work* work = nullptr;
            int done = -1;
            tutti_status error = TUTTI_INTERNAL;
            expect_ok(tutti_irecv(&tensor, TUTTI_ANY_RANK, &options, &work));
            expect_error(tutti_work_wait(work, 30), TUTTI_TIMEOUT, {});
            expect_ok(tutti_work_test(work, &done));
            EXPECT_EQ(done, 0) << "it goes on";
            expect_ok(tutti_work_error(work, &error));
            EXPECT_EQ(error, TUTTI_OK);
            expect_error(tutti_work_source_rank(work, &done), TUTTI_INVALID_ARGUMENT, {});
            expect_ok(tutti_group_abort(group, "no more"));
            expect_error(tutti_work_wait(work, 0), TUTTI_ABORTED, {"no more"});
            expect_ok(tutti_work_free(work));
        } else {
            expect_error(tutti_barrier(&options), TUTTI_ABORTED, {"no more"});
        }
        expect_ok(tutti_group_free(group));
    });
}

TEST(CWorlds, who_missed_the_barrier_is_named_on_rank_0) {
    run_world(2, [](int rank, tutti_group* group) {
        tutti_options options = TUTTI_OPTIONS_INIT;
        options.group = group;
        options.timeout_ms = 100;
        if (rank == 0) {
            expect_error(tutti_monitored_barrier(1, &options), TUTTI_TIMEOUT,
                         {"Ranks 1 failed to pass monitoredBarrier"});
            expect_error(tutti_monitored_barrier(2, &options), TUTTI_INVALID_ARGUMENT, {"wait_all_ranks: 2"});
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        expect_ok(tutti_group_free(group));
    });
}

void expect_size(tutti_group* group, int expected) {
    int size = 0;
    expect_ok(tutti_group_size(group, &size));
    EXPECT_EQ(size, expected);
}

TEST(CWorlds, take_newcomers_in_and_go_on_without_those_that_left) {
    tutti_store* place = hash_store();
    std::thread newcomer([&] {
        tutti_group* group = nullptr;
        expect_ok(tutti_join(place, nullptr, "the third", 20'000, &group));
        expect_size(group, 3);
        Vector x({0});
        const tutti_tensor tensor = x.tensor();
        expect_ok(tutti_group_adopt(group, &tensor, 1));
        EXPECT_EQ(x.floats[0], 7);
        expect_ok(tutti_destroy_process_group(group));
    });
    run_world(2, [&](int rank, tutti_group* group) {
        tutti_group *grown = nullptr, *smaller = nullptr;
        expect_error(tutti_group_grow(group, nullptr, nullptr, 0, 0, -1, &grown), TUTTI_INVALID_ARGUMENT,
                     {"tutti_group_grow", "store"});
        expect_error(tutti_group_grow(group, place, nullptr, -2, 0, -1, &grown), TUTTI_INVALID_ARGUMENT, {"count: -2"});
        expect_error(tutti_group_grow(group, place, nullptr, 1, 0, -7, &grown), TUTTI_INVALID_ARGUMENT,
                     {"patience_ms: -7"});
        expect_ok(tutti_group_grow(group, place, nullptr, 1, 0, -1, &grown));
        expect_ok(tutti_group_free(group));
        Vector x({static_cast<float>(7 + rank)});
        const tutti_tensor tensor = x.tensor();
        expect_ok(tutti_group_adopt(grown, &tensor, 1));
        EXPECT_EQ(x.floats[0], 7);
        tutti_options barrier = TUTTI_OPTIONS_INIT;
        barrier.group = grown;
        expect_error(tutti_barrier(&barrier), TUTTI_PEER_LOST, {"rank 2"});
        expect_error(tutti_group_shrink(grown, 0, -2, &smaller), TUTTI_INVALID_ARGUMENT, {"patience_ms: -2"});
        expect_ok(tutti_group_shrink(grown, 10'000, -1, &smaller));
        expect_size(smaller, 2);
        int waiting = -1;
        expect_ok(tutti_newcomers_waiting(place, nullptr, &waiting));
        EXPECT_EQ(waiting, 0);
        expect_error(tutti_group_grow(smaller, place, "elsewhere", 1, 50, -1, &group), TUTTI_TIMEOUT,
                     {"0 of 1 newcomers came to"});
        expect_ok(tutti_group_free(grown));
        expect_ok(tutti_destroy_process_group(smaller));
    });
    newcomer.join();
    tutti_group* group = nullptr;
    expect_error(tutti_join(nullptr, nullptr, nullptr, 0, &group), TUTTI_INVALID_ARGUMENT, {"tutti_join", "store"});
    expect_error(tutti_join(place, nullptr, nullptr, 20, &group), TUTTI_TIMEOUT, {"no group took this process in"});
    expect_error(tutti_newcomers_waiting(place, nullptr, nullptr), TUTTI_INVALID_ARGUMENT, {"count"});
    expect_ok(tutti_store_free(place));
}

}  // namespace
