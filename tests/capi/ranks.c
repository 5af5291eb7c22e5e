/* Every operation of tutti/tutti.h on real ranks, blocking and asynchronous, against what it should give. C11. Started
 * by `tutti run -n N`; its exit status says whether all was right. */
#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, COUNT = 3 }; /* elements of a rank's block */

static int rank, size;

static void check(int good, const char* what, int line) {
    if (good) return;
    fprintf(stderr, "ranks.c:%d: rank %d: %s: %s\n", line, rank, what, tutti_last_error());
    exit(1);
}
#define OK(call) check((call) == TUTTI_OK, #call, __LINE__)
#define EXPECT(condition) check((condition), #condition, __LINE__)

/* Waits for a work that was just started, and gives it back. */
static void finish(tutti_status started, tutti_work* work, int line) {
    int done = 0;
    tutti_status error = TUTTI_INTERNAL;
    check(started == TUTTI_OK, "start", line);
    check(tutti_work_wait(work, 0) == TUTTI_OK, "wait", line);
    check(tutti_work_test(work, &done) == TUTTI_OK && done == 1, "test", line);
    check(tutti_work_error(work, &error) == TUTTI_OK && error == TUTTI_OK, "error", line);
    check(tutti_work_free(work) == TUTTI_OK, "free", line);
}
/* Evaluates `start` before `work` is read. */
#define FINISH(start)                         \
    do {                                      \
        tutti_work* work = NULL;              \
        const tutti_status started = (start); \
        finish(started, work, __LINE__);      \
    } while (0)

/* Element i of what rank r contributes. */
static int32_t value(int r, int i) {
    return 100 * (r + 1) + i;
}
static int32_t sum_before(int end, int i) {
    int32_t sum = 0;
    for (int r = 0; r < end; ++r) sum += value(r, i);
    return sum;
}
static int32_t sum_of(int i) {
    return sum_before(size, i);
}
static void fill(int32_t* x, int count) {
    for (int i = 0; i < count; ++i) x[i] = value(rank, i);
}

/* A counter, a vector and a lock, of the last rank alone. */
static void one_sided(int asynchronous) {
    enum { COUNTER, LOCK, VECTOR, ELEMENTS = VECTOR + COUNT };
    const int home = size - 1;
    const int64_t shape = rank == home ? ELEMENTS : 0, one = 1, zero = 0;
    int64_t elements = 0, x[COUNT], before[COUNT], old = -1, mine = rank + 1;
    uint64_t signals = 0;
    tutti_window* window = NULL;
    const tutti_tensor values = TUTTI_VECTOR(x, TUTTI_INT64, COUNT), seen = TUTTI_VECTOR(before, TUTTI_INT64, COUNT);
    for (int i = 0; i < COUNT; ++i) x[i] = rank + i;
    OK(tutti_window_create(TUTTI_INT64, &shape, 1, NULL, &window));
    OK(tutti_window_element_count(window, home, &elements));
    EXPECT(elements == ELEMENTS);
    OK(tutti_window_fetch_op(window, &one, &old, home, TUTTI_SUM, COUNTER, 0));
    EXPECT(old >= 0 && old < size);
    do OK(tutti_window_compare_and_swap(window, &zero, &mine, &old, home, LOCK, 0));
    while (old != 0);
    OK(tutti_window_fetch_op(window, &zero, &old, home, TUTTI_REPLACE, LOCK, 0));
    EXPECT(old == mine);
    if (asynchronous) {
        FINISH(tutti_window_accumulate_async(window, &values, home, TUTTI_SUM, VECTOR, 0, &work));
    } else {
        OK(tutti_window_accumulate(window, &values, home, TUTTI_SUM, VECTOR, 0));
    }
    OK(tutti_window_signal(window, home, 2, 3));
    OK(tutti_window_flush(window, home, 0));
    OK(tutti_window_fence(window, 0));
    OK(tutti_window_read_signal(window, 2, &signals));
    EXPECT(signals == (rank == home ? 3 * (uint64_t)size : 0));
    if (asynchronous) {
        FINISH(tutti_window_get_accumulate_async(window, NULL, &seen, home, TUTTI_NO_OP, VECTOR, 0, &work));
    } else {
        OK(tutti_window_get_accumulate(window, NULL, &seen, home, TUTTI_NO_OP, VECTOR, 0));
    }
    for (int i = 0; i < COUNT; ++i) EXPECT(before[i] == size * (size - 1) / 2 + size * i);
    OK(tutti_window_fence(window, 0));
    if (rank == 0) {
        for (int i = 0; i < COUNT; ++i) x[i] = i;
        if (asynchronous) {
            FINISH(tutti_window_put_async(window, &values, home, VECTOR, 0, &work));
        } else {
            OK(tutti_window_put(window, &values, home, VECTOR, 0));
        }
        OK(tutti_window_put_signal(window, &values, home, VECTOR, 5, 7, 0));
    }
    if (rank == home) {
        void* memory = NULL;
        OK(tutti_window_wait_signal(window, 5, 7, 0));
        OK(tutti_window_memory(window, home, &memory));
        EXPECT(((int64_t*)memory)[VECTOR + 1] == 1 && ((int64_t*)memory)[COUNTER] == size);
    }
    OK(tutti_window_fence(window, 0));
    if (asynchronous) {
        FINISH(tutti_window_get_async(window, &seen, home, VECTOR, 0, &work));
    } else {
        OK(tutti_window_get(window, &seen, home, VECTOR, 0));
    }
    for (int i = 0; i < COUNT; ++i) EXPECT(before[i] == i);
    OK(tutti_window_close(window, 0));
    OK(tutti_window_free(window));
}

/* Codes of int8 and one scale: exact. Then float32, of which every rank gets the same. */
static void quantized(int asynchronous) {
    int8_t codes[COUNT];
    float sums[COUNT], all[MOST_RANKS * COUNT], own[COUNT], whole[MOST_RANKS * COUNT];
    tutti_quantized_options half = TUTTI_QUANTIZED_OPTIONS_INIT, plain = TUTTI_QUANTIZED_OPTIONS_INIT;
    const tutti_tensor from = TUTTI_VECTOR(codes, TUTTI_INT8, COUNT), to = TUTTI_VECTOR(sums, TUTTI_FLOAT32, COUNT);
    const tutti_tensor mine = TUTTI_VECTOR(own, TUTTI_FLOAT32, COUNT);
    const tutti_tensor every = TUTTI_VECTOR(all, TUTTI_FLOAT32, (int64_t)size * COUNT);
    const tutti_tensor parts = TUTTI_VECTOR(whole, TUTTI_FLOAT32, (int64_t)size * COUNT);
    half.scale = 0.5F;
    half.quantize_results = 0;
    for (int i = 0; i < COUNT; ++i) codes[i] = (int8_t)(100 + i);
    for (int i = 0; i < COUNT; ++i) own[i] = (float)(127 - i);
    for (int i = 0; i < size * COUNT; ++i) whole[i] = (float)(rank + 1) * 127;
    if (asynchronous) {
        FINISH(tutti_quantized_all_reduce_async(&to, &from, TUTTI_SUM, &half, NULL, &work));
        FINISH(tutti_quantized_all_gather_async(&every, &mine, NULL, NULL, &work));
        FINISH(tutti_quantized_reduce_scatter_async(&mine, &parts, TUTTI_SUM, &plain, NULL, &work));
    } else {
        OK(tutti_quantized_all_reduce(&to, &from, TUTTI_SUM, &half, NULL));
        OK(tutti_quantized_all_gather(&every, &mine, NULL, NULL));
        OK(tutti_quantized_reduce_scatter(&mine, &parts, TUTTI_SUM, &plain, NULL));
    }
    for (int i = 0; i < COUNT; ++i) EXPECT(sums[i] == (float)(size * (100 + i)) / 2);
    for (int i = 0; i < size * COUNT; ++i) EXPECT(all[i] == (float)(127 - i % COUNT));
    for (int i = 0; i < COUNT; ++i) EXPECT(own[i] == 127.0F * (float)(size * (size + 1)) / 2);
    plain.block = 33;
    EXPECT(tutti_quantized_all_reduce(&to, &to, TUTTI_SUM, &plain, NULL) == TUTTI_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "block 33") != NULL);
}

static void reductions(int asynchronous) {
    int32_t x[COUNT];
    const int last = size - 1;
    const tutti_tensor tensor = TUTTI_VECTOR(x, TUTTI_INT32, COUNT);
    fill(x, COUNT);
    if (asynchronous)
        FINISH(tutti_all_reduce_async(&tensor, TUTTI_SUM, NULL, &work));
    else
        OK(tutti_all_reduce(&tensor, TUTTI_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == sum_of(i));

    fill(x, COUNT);
    if (asynchronous)
        FINISH(tutti_reduce_async(&tensor, last, TUTTI_MAX, NULL, &work));
    else
        OK(tutti_reduce(&tensor, last, TUTTI_MAX, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == value(rank == last ? last : rank, i));

    fill(x, COUNT);
    if (asynchronous)
        FINISH(tutti_scan_async(&tensor, TUTTI_SUM, NULL, &work));
    else
        OK(tutti_scan(&tensor, TUTTI_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == sum_before(rank + 1, i));

    fill(x, COUNT);
    if (asynchronous)
        FINISH(tutti_exscan_async(&tensor, TUTTI_SUM, NULL, &work));
    else
        OK(tutti_exscan(&tensor, TUTTI_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == (rank == 0 ? value(0, i) : sum_before(rank, i)));
    EXPECT(tutti_scan(&tensor, TUTTI_AVG, NULL) == TUTTI_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "op avg") != NULL);

    double factors[1] = {1};
    const tutti_tensor scaled = TUTTI_VECTOR(factors, TUTTI_FLOAT64, 1);
    tutti_options options = TUTTI_OPTIONS_INIT;
    options.factor = rank + 0.5;
    OK(tutti_all_reduce(&scaled, TUTTI_PREMUL_SUM, &options));
    EXPECT(factors[0] == size * (size - 1) / 2.0 + size * 0.5);

    int32_t all[MOST_RANKS * COUNT], mine[COUNT] = {0};
    const tutti_tensor input = TUTTI_VECTOR(all, TUTTI_INT32, size * COUNT);
    const tutti_tensor output = TUTTI_VECTOR(mine, TUTTI_INT32, COUNT);
    fill(all, size * COUNT);
    if (asynchronous)
        FINISH(tutti_reduce_scatter_tensor_async(&output, &input, TUTTI_SUM, NULL, &work));
    else
        OK(tutti_reduce_scatter_tensor(&output, &input, TUTTI_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(mine[i] == sum_of(rank * COUNT + i));

    tutti_tensor inputs[MOST_RANKS];
    const int64_t shape[1] = {COUNT};
    for (int r = 0; r < size; ++r) inputs[r] = (tutti_tensor){all + r * COUNT, TUTTI_INT32, 1, shape, NULL};
    memset(mine, 0, sizeof mine);
    if (asynchronous)
        FINISH(tutti_reduce_scatter_async(&output, inputs, (size_t)size, TUTTI_SUM, NULL, &work));
    else
        OK(tutti_reduce_scatter(&output, inputs, (size_t)size, TUTTI_SUM, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(mine[i] == sum_of(rank * COUNT + i));
}

/* Of a structure, where the order of ranks counts: keeps the first text and the number of all. */
typedef struct {
    int32_t first, count, sum;
} Piece;
static void join(const void* in, void* inout, size_t count, void* context) {
    const Piece* left = (const Piece*)in;
    Piece* right = (Piece*)inout;
    for (size_t i = 0; i < count; ++i) {
        right[i].first = left[i].first;
        right[i].sum = left[i].sum * (1 << right[i].count) + right[i].sum;
        right[i].count += left[i].count;
    }
    ++*(int*)context;
}
static void operators(int asynchronous) {
    Piece pieces[COUNT];
    int op = 0, calls = 0, sum = 0;
    const tutti_tensor tensor = TUTTI_VECTOR(pieces, TUTTI_UINT8, sizeof pieces);
    OK(tutti_op_create(join, &calls, sizeof(Piece), TUTTI_UINT8, 0, "join", &op));
    for (int i = 0; i < COUNT; ++i) pieces[i] = (Piece){rank + i, 1, rank % 2};
    if (asynchronous)
        FINISH(tutti_all_reduce_async(&tensor, op, NULL, &work));
    else
        OK(tutti_all_reduce(&tensor, op, NULL));
    for (int r = 0; r < size; ++r) sum = sum * 2 + r % 2;
    for (int i = 0; i < COUNT; ++i) EXPECT(pieces[i].first == i && pieces[i].count == size && pieces[i].sum == sum);
    OK(tutti_op_free(op));
    EXPECT(tutti_all_reduce(&tensor, op, NULL) == TUTTI_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "has not been released") != NULL);
    EXPECT(tutti_op_free(op) == TUTTI_INVALID_ARGUMENT);
    EXPECT(tutti_op_create(NULL, NULL, 8, TUTTI_UINT8, 1, NULL, &op) == TUTTI_INVALID_ARGUMENT);
    EXPECT(tutti_op_create(join, NULL, 8, TUTTI_INT32, 1, NULL, &op) == TUTTI_INVALID_ARGUMENT);
    EXPECT(tutti_op_create(join, NULL, 8, TUTTI_UINT8, 2, NULL, &op) == TUTTI_INVALID_ARGUMENT);
    EXPECT(size == 1 || calls > 0);
}

static void gathers(int asynchronous) {
    int32_t mine[COUNT], all[MOST_RANKS * COUNT];
    const int64_t shape[1] = {COUNT};
    const tutti_tensor input = TUTTI_VECTOR(mine, TUTTI_INT32, COUNT);
    const tutti_tensor whole = TUTTI_VECTOR(all, TUTTI_INT32, size * COUNT);
    tutti_tensor outputs[MOST_RANKS];
    for (int r = 0; r < size; ++r) outputs[r] = (tutti_tensor){all + r * COUNT, TUTTI_INT32, 1, shape, NULL};
    fill(mine, COUNT);
    for (int form = 0; form < 3; ++form) {
        const int here = form < 2 || rank == 0;
        memset(all, 0, sizeof all);
        if (form == 0 && asynchronous)
            FINISH(tutti_all_gather_async(outputs, (size_t)size, &input, NULL, &work));
        else if (form == 0)
            OK(tutti_all_gather(outputs, (size_t)size, &input, NULL));
        else if (form == 1 && asynchronous)
            FINISH(tutti_all_gather_into_tensor_async(&whole, &input, NULL, &work));
        else if (form == 1)
            OK(tutti_all_gather_into_tensor(&whole, &input, NULL));
        else if (asynchronous)
            FINISH(tutti_gather_async(&input, here ? outputs : NULL, here ? (size_t)size : 0, 0, NULL, &work));
        else
            OK(tutti_gather(&input, here ? outputs : NULL, here ? (size_t)size : 0, 0, NULL));
        for (int i = 0; i < size * COUNT; ++i) EXPECT(all[i] == (here ? value(i / COUNT, i % COUNT) : 0));
    }
}

static void from_a_root(int asynchronous) {
    const int root = size - 1, here = rank == root;
    int32_t x[COUNT], all[MOST_RANKS * COUNT];
    const int64_t shape[1] = {COUNT};
    const tutti_tensor tensor = TUTTI_VECTOR(x, TUTTI_INT32, COUNT);
    tutti_tensor inputs[MOST_RANKS];
    tutti_options options = TUTTI_OPTIONS_INIT;
    options.group_ranks = 1;
    fill(x, COUNT);
    if (asynchronous)
        FINISH(tutti_broadcast_async(&tensor, root, &options, &work));
    else
        OK(tutti_broadcast(&tensor, root, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == value(root, i));

    fill(all, size * COUNT);
    for (int r = 0; r < size; ++r) inputs[r] = (tutti_tensor){all + r * COUNT, TUTTI_INT32, 1, shape, NULL};
    if (asynchronous)
        FINISH(tutti_scatter_async(&tensor, here ? inputs : NULL, here ? (size_t)size : 0, root, NULL, &work));
    else
        OK(tutti_scatter(&tensor, here ? inputs : NULL, here ? (size_t)size : 0, root, &options));
    for (int i = 0; i < COUNT; ++i) EXPECT(x[i] == value(root, rank * COUNT + i));
}

static void exchanges(int asynchronous) {
    int32_t in[MOST_RANKS * MOST_RANKS], out[MOST_RANKS * MOST_RANKS];
    const tutti_tensor input = TUTTI_VECTOR(in, TUTTI_INT32, size);
    const tutti_tensor output = TUTTI_VECTOR(out, TUTTI_INT32, size);
    fill(in, size);
    if (asynchronous)
        FINISH(tutti_all_to_all_single_async(&output, &input, NULL, NULL, NULL, &work));
    else
        OK(tutti_all_to_all_single(&output, &input, NULL, NULL, NULL));
    for (int r = 0; r < size; ++r) EXPECT(out[r] == value(r, rank));

    /* Rank r gets r + 1 elements from everyone. */
    int64_t output_splits[MOST_RANKS], input_splits[MOST_RANKS], one[1] = {1};
    const int mine = rank + 1, sent = size * (size + 1) / 2;
    for (int r = 0; r < size; ++r) input_splits[r] = r + 1, output_splits[r] = mine;
    const tutti_tensor uneven_input = TUTTI_VECTOR(in, TUTTI_INT32, sent);
    const tutti_tensor uneven_output = TUTTI_VECTOR(out, TUTTI_INT32, size * mine);
    fill(in, sent);
    if (asynchronous)
        FINISH(tutti_all_to_all_single_async(&uneven_output, &uneven_input, output_splits, input_splits, NULL, &work));
    else
        OK(tutti_all_to_all_single(&uneven_output, &uneven_input, output_splits, input_splits, NULL));
    for (int i = 0; i < size * mine; ++i) EXPECT(out[i] == value(i / mine, rank * (rank + 1) / 2 + i % mine));

    /* The same blocks, received in falling order of ranks with an untouched element before each. */
    int64_t send_offsets[MOST_RANKS], receive_offsets[MOST_RANKS];
    for (int r = 0; r < size; ++r) {
        send_offsets[r] = r * (r + 1) / 2;
        receive_offsets[r] = (int64_t)(size - 1 - r) * (mine + 1) + 1;
    }
    int32_t gapped[MOST_RANKS * (MOST_RANKS + 1)];
    for (int i = 0; i < size * (mine + 1); ++i) gapped[i] = -9;
    const tutti_tensor gapped_output = TUTTI_VECTOR(gapped, TUTTI_INT32, size * (mine + 1));
    if (asynchronous)
        FINISH(tutti_all_to_all_v_async(&gapped_output, &uneven_input, input_splits, send_offsets, output_splits,
                                        receive_offsets, NULL, &work));
    else
        OK(tutti_all_to_all_v(&gapped_output, &uneven_input, input_splits, send_offsets, output_splits, receive_offsets,
                              NULL));
    for (int r = 0; r < size; ++r) {
        EXPECT(gapped[receive_offsets[r] - 1] == -9);
        for (int i = 0; i < mine; ++i) EXPECT(gapped[receive_offsets[r] + i] == value(r, rank * (rank + 1) / 2 + i));
    }

    /* r + 1 elements of rank r: gathered, and their sums scattered again; the sizes are given, or asked for. */
    const tutti_tensor own = TUTTI_VECTOR(gapped, TUTTI_INT32, mine);
    const tutti_tensor gathered = TUTTI_VECTOR(out, TUTTI_INT32, sent);
    fill(gapped, mine);
    if (asynchronous)
        FINISH(tutti_all_gather_into_tensor_uneven_async(&gathered, &own, input_splits, NULL, &work));
    else
        OK(tutti_all_gather_into_tensor_uneven(&gathered, &own, NULL, NULL));
    for (int r = 0; r < size; ++r) {
        for (int i = 0; i < r + 1; ++i) EXPECT(out[r * (r + 1) / 2 + i] == value(r, i));
    }
    for (int i = 0; i < sent; ++i) out[i] = i + 1;
    if (asynchronous)
        FINISH(tutti_reduce_scatter_tensor_uneven_async(&own, &gathered, TUTTI_SUM, input_splits, NULL, &work));
    else
        OK(tutti_reduce_scatter_tensor_uneven(&own, &gathered, TUTTI_SUM, NULL, NULL));
    for (int i = 0; i < mine; ++i) EXPECT(gapped[i] == size * (rank * (rank + 1) / 2 + i + 1));

    if (asynchronous)
        FINISH(tutti_reduce_scatter_v_async(&own, &gathered, TUTTI_SUM, input_splits, NULL, &work));
    else
        OK(tutti_reduce_scatter_v(&own, &gathered, TUTTI_SUM, NULL, NULL));
    for (int i = 0; i < mine; ++i) EXPECT(gapped[i] == size * (rank * (rank + 1) / 2 + i + 1));

    /* The same elements in falling order of ranks, with an untouched one before each: on all ranks, then on one, from
     * which they come back. Only that rank gives a tensor for all, counts and offsets. */
    int64_t places[MOST_RANKS], next = 0;
    for (int r = size - 1; r >= 0; --r) {
        places[r] = next + 1;
        next += r + 2;
    }
    const int root = size - 1, here = rank == root;
    const tutti_tensor apart = TUTTI_VECTOR(in, TUTTI_INT32, next);
    for (int on_one = 0; on_one < 2; ++on_one) {
        fill(gapped, mine);
        for (int i = 0; i < next; ++i) in[i] = -9;
        const int64_t* const counts = on_one && !here ? NULL : input_splits;
        const int64_t* const at = on_one && !here ? NULL : places;
        const tutti_tensor* const all = on_one && !here ? NULL : &apart;
        if (!on_one && asynchronous)
            FINISH(tutti_all_gather_v_async(&apart, &own, counts, at, NULL, &work));
        else if (!on_one)
            OK(tutti_all_gather_v(&apart, &own, counts, at, NULL));
        else if (asynchronous)
            FINISH(tutti_gather_v_async(&own, all, counts, at, root, NULL, &work));
        else
            OK(tutti_gather_v(&own, all, counts, at, root, NULL));
        for (int r = 0; r < size && (here || !on_one); ++r) {
            EXPECT(in[places[r] - 1] == -9);
            for (int i = 0; i < r + 1; ++i) EXPECT(in[places[r] + i] == value(r, i));
        }
        if (!on_one) continue;
        for (int i = 0; i < mine; ++i) gapped[i] = -1;
        if (asynchronous)
            FINISH(tutti_scatter_v_async(&own, all, counts, at, root, NULL, &work));
        else
            OK(tutti_scatter_v(&own, all, counts, at, root, NULL));
        for (int i = 0; i < mine; ++i) EXPECT(gapped[i] == value(rank, i));
    }

    fill(in, size);
    tutti_tensor inputs[MOST_RANKS], outputs[MOST_RANKS];
    for (int r = 0; r < size; ++r) {
        inputs[r] = (tutti_tensor){in + r, TUTTI_INT32, 1, one, NULL};
        outputs[r] = (tutti_tensor){out + r, TUTTI_INT32, 1, one, NULL};
    }
    if (asynchronous)
        FINISH(tutti_all_to_all_async(outputs, inputs, (size_t)size, NULL, &work));
    else
        OK(tutti_all_to_all(outputs, inputs, (size_t)size, NULL));
    for (int r = 0; r < size; ++r) EXPECT(out[r] == value(r, rank));
}

static void barriers(int asynchronous) {
    if (asynchronous)
        FINISH(tutti_barrier_async(NULL, &work));
    else
        OK(tutti_barrier(NULL));
    OK(tutti_monitored_barrier(asynchronous, NULL));
}

static void messages(void) {
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int32_t out = value(rank, 7), in = 0;
    int from = -1;
    const tutti_tensor sent = TUTTI_VECTOR(&out, TUTTI_INT32, 1), received = TUTTI_VECTOR(&in, TUTTI_INT32, 1);
    tutti_options options = TUTTI_OPTIONS_INIT;
    tutti_work* works[2] = {NULL, NULL};
    options.tag = 3;
    for (int form = 0; form < 2; ++form) { /* ranks of the job, ranks of the group */
        options.group_ranks = form;
        OK(tutti_isend(&sent, next, &options, &works[0]));
        OK(tutti_irecv(&received, before, &options, &works[1]));
        OK(tutti_work_wait_all(works, 2));
        OK(tutti_work_source_rank(works[1], &from));
        EXPECT(in == value(before, 7) && from == before);
        OK(tutti_work_free(works[0]));
        OK(tutti_work_free(works[1]));
        if (size == 1) continue;
        in = 0;
        if (rank == 0) OK(tutti_send(&sent, 1, &options));
        if (rank == 1) OK(tutti_recv(&received, form == 0 ? 0 : TUTTI_ANY_RANK, &options, &from));
        if (rank == 1) EXPECT(in == value(0, 7) && from == 0);
    }
}

/* A circle, an open line, and messages of which the receiver knows nothing. */
static void exchanges_of_two(void) {
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int32_t out[2] = {value(rank, 1), value(rank, 2)}, in[2] = {0, 0};
    int from = -1, found = -1;
    const tutti_tensor sent = TUTTI_VECTOR(out, TUTTI_INT32, 2), received = TUTTI_VECTOR(in, TUTTI_INT32, 2);
    const tutti_tensor one = TUTTI_VECTOR(in, TUTTI_INT32, 1);
    tutti_message_info info = {-1, -1, -1, -1, -1, 0};
    tutti_message* message = NULL;
    tutti_work* work = NULL;
    tutti_options options = TUTTI_OPTIONS_INIT;
    OK(tutti_sendrecv(&sent, next, 4, &received, before, 4, NULL, &from));
    EXPECT(in[1] == value(before, 2) && from == before);
    OK(tutti_isendrecv(&sent, before, 0, &received, TUTTI_ANY_RANK, 0, NULL, &work));
    OK(tutti_work_wait(work, 0));
    OK(tutti_work_source_rank(work, &from));
    OK(tutti_work_free(work));
    EXPECT(in[0] == value(next, 1) && from == next);
    OK(tutti_sendrecv_replace(&received, next, 1, before, 1, NULL, NULL));
    EXPECT(in[1] == value(rank, 2));
    /* With a tag of its own: a rank may come here while another still receives from any rank with tag 0. */
    OK(tutti_sendrecv(rank + 1 < size ? &sent : NULL, rank + 1 < size ? rank + 1 : TUTTI_NO_RANK, 3,
                      rank > 0 ? &received : NULL, rank > 0 ? rank - 1 : TUTTI_NO_RANK, 3, NULL, &from));
    EXPECT(from == (rank > 0 ? rank - 1 : TUTTI_NO_RANK));
    options.tag = 5;
    EXPECT(tutti_probe(TUTTI_ANY_RANK, 5, &options, &info) == TUTTI_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "options.tag 5") != NULL);

    OK(tutti_isend(&sent, next, &options, &work));
    OK(tutti_probe(before, TUTTI_ANY_TAG, NULL, &info));
    EXPECT(info.source == before && info.tag == 5 && info.dtype == TUTTI_INT32 && info.count == 2 && info.bytes == 8);
    OK(tutti_iprobe(TUTTI_ANY_RANK, 6, NULL, &found, &info));
    EXPECT(found == 0);
    OK(tutti_matched_probe(TUTTI_ANY_RANK, 5, NULL, &message, NULL));
    OK(tutti_iprobe(TUTTI_ANY_RANK, 5, NULL, &found, &info));
    EXPECT(found == 0);
    OK(tutti_message_free(message)); /* it returns to its place */
    OK(tutti_matched_iprobe(before, TUTTI_ANY_TAG, NULL, &found, &message, &info));
    EXPECT(found == 1 && info.count == 2);
    EXPECT(tutti_message_recv(message, &one, 0) == TUTTI_INVALID_ARGUMENT);
    OK(tutti_message_recv(message, &received, 0));
    EXPECT(in[1] == value(before, 2));
    EXPECT(tutti_message_recv(message, &received, 0) == TUTTI_INVALID_ARGUMENT);
    OK(tutti_message_free(message));
    EXPECT(tutti_message_free(message) == TUTTI_INVALID_ARGUMENT);
    OK(tutti_message_free(NULL));
    OK(tutti_work_wait(work, 0));
    OK(tutti_work_free(work));
    options.tag = 7; /* others may be here already */
    OK(tutti_isend(&sent, next, &options, &work));
    OK(tutti_matched_probe(before, 7, NULL, &message, &info));
    in[0] = 0;
    tutti_work* receipt = NULL;
    OK(tutti_message_irecv(message, &received, 0, &receipt));
    OK(tutti_work_wait(receipt, 0));
    EXPECT(in[0] == value(before, 1));
    OK(tutti_work_free(receipt));
    OK(tutti_message_free(message));
    OK(tutti_work_wait(work, 0));
    OK(tutti_work_free(work));
}

/* A ring: halos of one cell, then a message to both sides. */
static void neighbours(int asynchronous) {
    const int low = (rank + size - 1) % size, high = (rank + 1) % size;
    const int sources[] = {low, high, TUTTI_NO_RANK}, destinations[] = {high, TUTTI_NO_RANK, low};
    int32_t row[4] = {-1, value(rank, 0), value(rank, 1), -1}, up = value(rank, 2), down = value(rank, 1);
    int32_t from_low = -1, from_high = -1, untouched = -1;
    const tutti_tensor whole = TUTTI_VECTOR(row, TUTTI_INT32, 4);
    const tutti_tensor outputs[] = {TUTTI_VECTOR(&from_low, TUTTI_INT32, 1), TUTTI_VECTOR(&from_high, TUTTI_INT32, 1),
                                    TUTTI_VECTOR(&untouched, TUTTI_INT32, 1)};
    const tutti_tensor inputs[] = {TUTTI_VECTOR(&up, TUTTI_INT32, 1), TUTTI_VECTOR(&untouched, TUTTI_INT32, 1),
                                   TUTTI_VECTOR(&down, TUTTI_INT32, 1)};
    const tutti_halo halo = {0, 1, 1, 1, NULL};
    tutti_neighbor_graph* graph = NULL;
    if (asynchronous)
        FINISH(tutti_exchange_halos_async(&whole, &halo, 1, NULL, &work));
    else
        OK(tutti_exchange_halos(&whole, &halo, 1, NULL));
    EXPECT(row[0] == value(low, 1) && row[1] == value(rank, 0) && row[2] == value(rank, 1) && row[3] == value(high, 0));
    OK(tutti_neighbor_graph_create(sources, 3, destinations, 3, NULL, &graph));
    if (asynchronous)
        FINISH(tutti_neighbor_all_to_all_async(outputs, 3, inputs, 3, graph, NULL, &work));
    else
        OK(tutti_neighbor_all_to_all(outputs, 3, inputs, 3, graph, NULL));
    if (size != 2) EXPECT(from_low == value(low, 2) && from_high == value(high, 1));
    if (size == 2) EXPECT(from_low == value(low, 2) && from_high == value(low, 1)); /* in the order of the lists */
    EXPECT(untouched == -1);
    if (asynchronous)
        FINISH(tutti_neighbor_all_gather_async(outputs, 3, &inputs[0], graph, NULL, &work));
    else
        OK(tutti_neighbor_all_gather(outputs, 3, &inputs[0], graph, NULL));
    EXPECT(from_low == value(low, 2) && from_high == value(high, 2));
    OK(tutti_neighbor_graph_free(graph));
    EXPECT(tutti_exchange_halos(&whole, &halo, 0, NULL) == TUTTI_INVALID_ARGUMENT);
    EXPECT(tutti_neighbor_all_gather(outputs, 3, &inputs[0], graph, NULL) == TUTTI_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "expected a neighbor graph") != NULL);
}

static void the_group(void) {
    int hosts[MOST_RANKS] = {-1}, number = -1;
    int64_t timeout = 0;
    const char* name = NULL;
    tutti_group *group = NULL, *other = NULL;
    tutti_store *tcp = NULL, *store = NULL;
    EXPECT(tutti_is_initialized() == 1);
    OK(tutti_default_group(&group));
    OK(tutti_group_hosts(group, hosts, (size_t)size));
    EXPECT(hosts[0] == 0);
    OK(tutti_group_name(group, &name));
    EXPECT(strcmp(name, "world") == 0);
    OK(tutti_group_set_timeout(group, 30000));
    OK(tutti_group_timeout(NULL, &timeout));
    EXPECT(timeout == 30000);
    OK(tutti_group_determinism(group, &number));
    EXPECT(number == TUTTI_FAST);

    /* A second world beside it: rank 0 serves the store, and tells its port. */
    int port = 0;
    tutti_tcp_store_options served = TUTTI_TCP_STORE_OPTIONS_INIT;
    const tutti_tensor told = TUTTI_VECTOR(&port, TUTTI_INT32, 1);
    served.is_master = rank == 0;
    if (rank == 0) OK(tutti_store_tcp(&served, &tcp));
    if (rank == 0) OK(tutti_store_port(tcp, &port));
    OK(tutti_broadcast(&told, 0, NULL));
    served.port = port;
    if (rank != 0) OK(tutti_store_tcp(&served, &tcp));
    OK(tutti_store_prefix("second", tcp, &store));
    tutti_group_options made = TUTTI_GROUP_OPTIONS_INIT;
    made.store = store;
    made.rank = size - 1 - rank; /* the other way round */
    made.world_size = size;
    made.name = "second";
    made.determinism = TUTTI_RUN_TO_RUN;
    OK(tutti_group_create(&made, &other));
    OK(tutti_store_free(store));
    OK(tutti_group_rank(other, &number));
    EXPECT(number == size - 1 - rank);
    tutti_options options = TUTTI_OPTIONS_INIT;
    options.group = other;
    number = rank;
    const tutti_tensor tensor = TUTTI_VECTOR(&number, TUTTI_INT32, 1);
    OK(tutti_broadcast(&tensor, 0, &options));
    EXPECT(number == size - 1);
    OK(tutti_set_default_group(other));
    OK(tutti_group_rank(NULL, &number));
    EXPECT(number == size - 1 - rank);
    OK(tutti_set_default_group(group));
    OK(tutti_destroy_process_group(other));
    OK(tutti_barrier(NULL)); /* the store is served until all have left */
    OK(tutti_store_free(tcp));
    OK(tutti_group_free(group));
}

int main(void) {
    tutti_init_options options = TUTTI_INIT_OPTIONS_INIT;
    options.timeout_ms = 60000;
    OK(tutti_init_process_group(&options));
    OK(tutti_group_rank(NULL, &rank));
    OK(tutti_group_size(NULL, &size));
    EXPECT(size <= MOST_RANKS);
    for (int asynchronous = 0; asynchronous < 2; ++asynchronous) {
        reductions(asynchronous);
        operators(asynchronous);
        quantized(asynchronous);
        gathers(asynchronous);
        from_a_root(asynchronous);
        exchanges(asynchronous);
        barriers(asynchronous);
        neighbours(asynchronous);
        one_sided(asynchronous);
    }
    messages();
    exchanges_of_two();
    the_group();
    OK(tutti_destroy_process_group(NULL));
    EXPECT(tutti_is_initialized() == 0);
    return 0;
}
