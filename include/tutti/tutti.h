/* tutti for C (C11), and for languages that call C: groups, stores, collectives, point to point, windows.
 *
 * Common to all functions:
 *   - They return TUTTI_OK or an error code; tutti_last_error() has the message. No C++ exception leaves them. A
 *     function that fails leaves the targets of its out arguments unchanged.
 *   - Each handle (tutti_store, tutti_group, tutti_work, tutti_message, tutti_window) is released by the function that
 * the comments name, also while other threads use it. A handle that never existed, is of another kind, or was released
 * gives TUTTI_INVALID_ARGUMENT. So does NULL, unless a comment says otherwise.
 *   - Any thread may call them. Collectives must be issued in the same order on all ranks.
 *   - Times are in milliseconds; 0: the default of the store, group or operation; negative: TUTTI_INVALID_ARGUMENT.
 *   - Texts are UTF-8 and end with a zero byte; all arguments are copied or no longer needed when a function returns,
 *     except the elements of tensors in asynchronous operations.
 * tutti/distributed.hpp, store.hpp and process_group.hpp describe the operations in more detail.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/version.h>
#include <tutti/export.hpp>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* Stable numbers, those of tutti::ErrorCode; the numbers from 100 on exist in C alone. */
typedef enum tutti_status {
    TUTTI_OK = 0,
    TUTTI_INVALID_ARGUMENT = 1,    /* the caller asked for something impossible; nothing was sent */
    TUTTI_TIMEOUT = 2,             /* a deadline passed */
    TUTTI_PEER_LOST = 3,           /* a rank died, left, or cannot be reached any more; see tutti_last_error_peer() */
    TUTTI_COLLECTIVE_MISMATCH = 4, /* ranks made different calls, or calls with different arguments */
    TUTTI_NETWORK = 5,             /* a connection was refused, reset or could not be made */
    TUTTI_STORE = 6,               /* a key/value store failed or is unreachable */
    TUTTI_BACKEND = 7,             /* the transport cannot do the requested operation, or failed */
    TUTTI_ABORTED = 8,             /* the group was aborted or destroyed while the operation ran */
    TUTTI_INTERRUPTED = 9,         /* a signal ended the wait */
    TUTTI_SECURITY = 10,           /* a peer could not prove the job's secret, or a secret is missing */
    TUTTI_NOT_INITIALIZED = 11,    /* tutti_init_process_group has not been called */
    TUTTI_INTERNAL = 99,           /* a bug in tutti */
    TUTTI_NO_MEMORY = 100          /* memory could not be allocated */
} tutti_status;

/* "peer_lost"; "ok" for TUTTI_OK, "unknown" for other numbers. Static memory. */
TUTTI_API const char* tutti_status_name(int status);
/* The message of this thread's last failed call; "" before the first. Valid until the next failed call. */
TUTTI_API const char* tutti_last_error(void);
/* The global rank that this message is about; -1: none. */
TUTTI_API int tutti_last_error_peer(void);
/* "0.1.0". Static memory. */
TUTTI_API const char* tutti_version(void);
/* Frees memory that a function of this header has allocated. NULL: does nothing. */
TUTTI_API void tutti_free(void* memory);

/* ---- Options --------------------------------------------------------------------------------------------------- */

/* Structures of options begin with their size and may grow: begin with the initialiser (TUTTI_..._INIT), then set
 * members. Members that a program's structure does not have yet get their defaults; a program that was compiled for
 * a newer tutti and sets a member that this one does not know gets TUTTI_INVALID_ARGUMENT. NULL: all defaults, unless a
 * comment says otherwise. */

typedef struct tutti_store tutti_store;
typedef struct tutti_group tutti_group;
typedef struct tutti_work tutti_work;
typedef struct tutti_message tutti_message;

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* Types of elements. */
enum {
    TUTTI_BOOL = 0, /* one byte, 0 or 1 */
    TUTTI_UINT8 = 1,
    TUTTI_UINT16 = 2,
    TUTTI_UINT32 = 3,
    TUTTI_UINT64 = 4,
    TUTTI_INT8 = 5,
    TUTTI_INT16 = 6,
    TUTTI_INT32 = 7,
    TUTTI_INT64 = 8,
    TUTTI_FLOAT16 = 9,
    TUTTI_BFLOAT16 = 10,
    TUTTI_FLOAT32 = 11,
    TUTTI_FLOAT64 = 12,
    TUTTI_COMPLEX64 = 13,  /* two float32 */
    TUTTI_COMPLEX128 = 14, /* two float64 */
    TUTTI_FLOAT8_E4M3FN = 15,
    TUTTI_FLOAT8_E5M2 = 16
};
/* Bytes of one element; 0 if there is no such type. */
TUTTI_API size_t tutti_dtype_size(int dtype);
/* "float32"; NULL if there is no such type. Static memory. */
TUTTI_API const char* tutti_dtype_name(int dtype);

/* A view of host memory that the caller owns. Functions say which tensors they only read. No dimensions: one element.
 * The arrays `shape` and `strides` are needed for the call alone, `data` until the operation is complete. */
typedef struct tutti_tensor {
    void* data; /* may be NULL when there are no elements */
    int32_t dtype;
    int32_t ndim;           /* 0 to 64 */
    const int64_t* shape;   /* ndim numbers; NULL when ndim is 0 */
    const int64_t* strides; /* ndim numbers, in elements; NULL: contiguous, row-major */
} tutti_tensor;

#ifndef __cplusplus
/* A vector: TUTTI_VECTOR(x, TUTTI_FLOAT32, 1000). Its shape lives as long as the enclosing block. */
#define TUTTI_VECTOR(data_, dtype_, count_) \
    ((tutti_tensor){(data_), (dtype_), 1, (const int64_t[]){(int64_t)(count_)}, NULL})
#endif

/* How values of several ranks become one; tutti/reduce_op.hpp says which operator is defined for which type. */
enum {
    TUTTI_SUM = 0,
    TUTTI_AVG = 1,
    TUTTI_PRODUCT = 2,
    TUTTI_MIN = 3,
    TUTTI_MAX = 4,
    TUTTI_BAND = 5,
    TUTTI_BOR = 6,
    TUTTI_BXOR = 7,
    TUTTI_PREMUL_SUM = 8 /* each rank multiplies its values by its tutti_options.factor first */
};

/* An operator of the caller, associative: inout[i] = in[i] op inout[i] for i < count; in[i] comes from the lower ranks.
 * It runs on the thread that makes progress, must not call tutti, and gets arrays that do not overlap. */
typedef void (*tutti_op_function)(const void* in, void* inout, size_t count, void* context);
/* `*op`: for the argument `op` of all reductions of this process, in tensors of `dtype` whose elements have that size;
 * or, for structures, of TUTTI_UINT8, whose bytes are those of elements of `element_bytes`, 1 to 65536. `commutative`:
 * 1 or 0; 0: elements are combined strictly in the order of ranks. `name` may be NULL; all ranks must give equal sizes,
 * commutativity and names. The arrays are aligned as the largest power of two up to 16 that divides the size. */
TUTTI_API tutti_status tutti_op_create(tutti_op_function function, void* context, size_t element_bytes, int dtype,
                                       int commutative, const char* name, int* op);
/* Releases the number; operations that use the operator go on with it. */
TUTTI_API tutti_status tutti_op_free(int op);

/* ---- Stores ---------------------------------------------------------------------------------------------------- */

/* Key/value stores: how the processes of a job find each other and share small data. Values are bytes, up to 1 GiB.
 * An operation that waits for a key ends with TUTTI_TIMEOUT after the store's timeout (default 300 s) or the given one.
 * An operation on a store whose server has ended fails with TUTTI_NETWORK or TUTTI_STORE. */

typedef struct tutti_tcp_store_options {
    size_t size;
    const char* host;         /* where the server listens, or clients connect; NULL: 127.0.0.1 */
    int32_t port;             /* 0, with is_master: any free port, see tutti_store_port() */
    int32_t world_size;       /* number of users, if fixed; 0: not fixed */
    int32_t is_master;        /* 1: this process runs the server */
    int32_t wait_for_workers; /* 1, with a world_size: the master waits until all users have connected */
    int32_t multi_tenant;     /* 1: stores of this process on one host and port share one server */
    int32_t master_listen_fd; /* an already bound socket, of which the store takes ownership; -1: none */
    int64_t timeout_ms;       /* of operations without a timeout of their own; 0: 300 s */
    const char* secret;       /* the job's; NULL: as TUTTI_JOB_SECRET and the other variables say */
    int32_t with_standby;     /* 1, with is_master: another process may be the store's standby */
    int32_t is_standby;       /* 1: this process is the standby of the server at host and port */
} tutti_tcp_store_options;
#define TUTTI_TCP_STORE_OPTIONS_INIT \
    { sizeof(tutti_tcp_store_options), NULL, 0, 0, 0, 1, 0, -1, 0, NULL, 0, 0 }

/* A store that one process serves and all processes reach over TCP. Errors: TUTTI_NETWORK, TUTTI_TIMEOUT,
 * TUTTI_SECURITY. */
TUTTI_API tutti_status tutti_store_tcp(const tutti_tcp_store_options* options, tutti_store** store);
/* A store in a file that all processes can lock. `world_size`: number of users, the last of which removes it; 0: not
 * fixed. */
TUTTI_API tutti_status tutti_store_file(const char* path, int world_size, int64_t timeout_ms, tutti_store** store);
/* A store in the memory of this process, for its threads. */
TUTTI_API tutti_status tutti_store_hash(int64_t timeout_ms, tutti_store** store);
/* The same store with `prefix` and "/" before every key; the new handle keeps `underlying` alive. */
TUTTI_API tutti_status tutti_store_prefix(const char* prefix, tutti_store* underlying, tutti_store** store);
/* Releases the handle. The store itself lives until groups and prefix stores no longer use it. NULL: does nothing. */
TUTTI_API tutti_status tutti_store_free(tutti_store* store);

/* The port that a TCP store's server listens on. TUTTI_INVALID_ARGUMENT for others. */
TUTTI_API tutti_status tutti_store_port(tutti_store* store, int* port);
/* The store's own time limit, for all handles of it. */
TUTTI_API tutti_status tutti_store_set_timeout(tutti_store* store, int64_t timeout_ms);
TUTTI_API tutti_status tutti_store_timeout(tutti_store* store, int64_t* timeout_ms);
/* Every wait on this store, now and later, ends within 100 ms with TUTTI_ABORTED. `reason` may be NULL. */
TUTTI_API tutti_status tutti_store_abort(tutti_store* store, const char* reason);

/* Inserts or overwrites `bytes` bytes; `value` may be NULL when there are none. */
TUTTI_API tutti_status tutti_store_set(tutti_store* store, const char* key, const void* value, size_t bytes);
/* Waits for the key. `*value` is new memory, for tutti_free(), with a zero byte behind the value; `bytes`: its size
 * without that byte (may be NULL). A counter's value is its decimal text. */
TUTTI_API tutti_status tutti_store_get(tutti_store* store, const char* key, int64_t timeout_ms, void** value,
                                       size_t* bytes);
/* Adds to a counter (from 0) and returns its new value; `result` may be NULL. TUTTI_STORE if the key is no counter. */
TUTTI_API tutti_status tutti_store_add(tutti_store* store, const char* key, int64_t amount, int64_t* result);
/* Appends to the value; creates the key if absent. */
TUTTI_API tutti_status tutti_store_append(tutti_store* store, const char* key, const void* value, size_t bytes);
/* If the key holds `expected` (or is absent, and `expected` empty) it gets `desired`. `*value`: the key's value
 * afterwards, or `expected` where the key was absent and still is; new memory as of tutti_store_get(). */
TUTTI_API tutti_status tutti_store_compare_set(tutti_store* store, const char* key, const void* expected,
                                               size_t expected_bytes, const void* desired, size_t desired_bytes,
                                               void** value, size_t* bytes);
/* `*exist`: 1 if all `count` keys exist, else 0. Does not wait for them. */
TUTTI_API tutti_status tutti_store_check(tutti_store* store, const char* const* keys, size_t count, int* exist);
/* Returns when all `count` keys exist. */
TUTTI_API tutti_status tutti_store_wait(tutti_store* store, const char* const* keys, size_t count, int64_t timeout_ms);
/* `*existed` (may be NULL): 1 if the key was there. */
TUTTI_API tutti_status tutti_store_delete_key(tutti_store* store, const char* key, int* existed);
/* TCP and file stores: one more than the user's keys; a prefix store: the underlying store's number. */
TUTTI_API tutti_status tutti_store_num_keys(tutti_store* store, int64_t* count);
/* `count` values at once: values[i] is new memory as of tutti_store_get(), bytes[i] its size (`bytes` may be NULL). */
TUTTI_API tutti_status tutti_store_multi_get(tutti_store* store, const char* const* keys, size_t count, void** values,
                                             size_t* bytes);
TUTTI_API tutti_status tutti_store_multi_set(tutti_store* store, const char* const* keys, const void* const* values,
                                             const size_t* bytes, size_t count);

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

/* Where a function takes a group, NULL is the default group (TUTTI_NOT_INITIALIZED if there is none). */

/* The transport of the data. */
enum {
    TUTTI_TRANSPORT_AUTO = 0, /* shared memory between ranks of one host, TCP between hosts; see TUTTI_TRANSPORT */
    TUTTI_TRANSPORT_SHM = 1,  /* shared memory only */
    TUTTI_TRANSPORT_TCP = 2   /* TCP only */
};
/* The conditions under which results are equal bit by bit; see tutti/process_group.hpp. */
enum { TUTTI_FAST = 0, TUTTI_RUN_TO_RUN = 1, TUTTI_LAYOUT_INVARIANT = 2 };

typedef struct tutti_init_options {
    size_t size;
    const char* init_method; /* NULL: env://; tcp://host:port, file:///path; ?rank=R&world_size=N allowed */
    tutti_store* store;      /* instead of init_method; needs rank and world_size */
    int32_t rank;            /* -1: as init_method says */
    int32_t world_size;      /* -1: as init_method says */
    int64_t timeout_ms;      /* of joining and of operations without their own; 0: 30 minutes */
    int32_t transport;
    int32_t determinism;
} tutti_init_options;
#define TUTTI_INIT_OPTIONS_INIT \
    { sizeof(tutti_init_options), NULL, NULL, -1, -1, 0, 0, 0 }

/* Makes the default group; returns when all ranks have joined. Call it from one thread of a process. Errors:
 * TUTTI_TIMEOUT that names the missing ranks, TUTTI_NETWORK, TUTTI_STORE, TUTTI_SECURITY. */
TUTTI_API tutti_status tutti_init_process_group(const tutti_init_options* options);
/* Leaves the group: waits for this rank's operations, then closes. Ranks that still wait for this one get
 * TUTTI_PEER_LOST. Releases the handle, also on failure. NULL: the default group. */
TUTTI_API tutti_status tutti_destroy_process_group(tutti_group* group);
/* 1 if there is a default group, else 0. Never fails. */
TUTTI_API int tutti_is_initialized(void);

typedef struct tutti_group_options {
    size_t size;
    tutti_store* store; /* reachable from all ranks; needed */
    int32_t rank;       /* 0 to world_size - 1, unique; needed */
    int32_t world_size; /* needed */
    int64_t timeout_ms; /* of joining and of operations without their own; 0: 30 minutes */
    const char* name;   /* in error messages; groups that use one store need different names; NULL: "world" */
    int32_t transport;
    int32_t determinism;
    const char* listen_host; /* address to listen on; NULL: TUTTI_HOST, else the interface that reaches the store */
} tutti_group_options;
#define TUTTI_GROUP_OPTIONS_INIT \
    { sizeof(tutti_group_options), NULL, -1, -1, 0, NULL, 0, 0, NULL }

/* A group beside the default one: all of its ranks call this. Errors as tutti_init_process_group. */
TUTTI_API tutti_status tutti_group_create(const tutti_group_options* options, tutti_group** group);
/* A new handle of the default group. */
TUTTI_API tutti_status tutti_default_group(tutti_group** group);
/* Makes this group the default one. The process does not leave the previous default group, if there was one. */
TUTTI_API tutti_status tutti_set_default_group(tutti_group* group);
/* Releases the handle without leaving the group; release of its last handle leaves, without waiting. NULL: nothing. */
TUTTI_API tutti_status tutti_group_free(tutti_group* group);

TUTTI_API tutti_status tutti_group_rank(tutti_group* group, int* rank);
TUTTI_API tutti_status tutti_group_size(tutti_group* group, int* size);
/* The group's own memory: valid while it exists. */
TUTTI_API tutti_status tutti_group_name(tutti_group* group, const char** name);
TUTTI_API tutti_status tutti_group_timeout(tutti_group* group, int64_t* timeout_ms);
/* At least 1 ms. */
TUTTI_API tutti_status tutti_group_set_timeout(tutti_group* group, int64_t timeout_ms);
TUTTI_API tutti_status tutti_group_determinism(tutti_group* group, int* determinism);
/* Writes one number for each rank (`count` must be the size): ranks with equal numbers share memory. */
TUTTI_API tutti_status tutti_group_hosts(tutti_group* group, int* hosts, size_t count);
/* Ends every operation in flight, here and (soon) on the other ranks, with TUTTI_ABORTED; afterwards the group is
 * unusable. `reason` may be NULL. */
TUTTI_API tutti_status tutti_group_abort(tutti_group* group, const char* reason);

/* ---- Ranks that leave, and ranks that come (docs/membership.md) -------------------------------------------------- */

/* A group of the survivors, which all call it. After `patience_ms` live ranks that did not are left out; -1: never. */
TUTTI_API tutti_status tutti_group_shrink(tutti_group* group, int64_t timeout_ms, int64_t patience_ms,
                                          tutti_group** smaller);
/* All ranks or survivors: `*grown` is a new group of them and of `count` newcomers, which wait in `store` under `name`
 * (NULL: "newcomers"); 0: of those that wait now, after a failure as many as are lost; if none, the same group. */
TUTTI_API tutti_status tutti_group_grow(tutti_group* group, tutti_store* store, const char* name, int count,
                                        int64_t timeout_ms, int64_t patience_ms, tutti_group** grown);
/* A newcomer waits for a group to take it in (`timeout_ms` 0: 30 minutes). `label`: its name in messages, or NULL. */
TUTTI_API tutti_status tutti_join(tutti_store* store, const char* name, const char* label, int64_t timeout_ms,
                                  tutti_group** group);
TUTTI_API tutti_status tutti_newcomers_waiting(tutti_store* store, const char* name, int* count);
/* All ranks of a grown group: each tensor becomes that of the lowest rank that is no newcomer. */
TUTTI_API tutti_status tutti_group_adopt(tutti_group* group, const tutti_tensor* tensors, size_t count);

/* ---- Collectives ----------------------------------------------------------------------------------------------- */

/* Options of every operation, which ignores the members that it does not use. */
typedef struct tutti_options {
    size_t size;
    tutti_group* group;  /* NULL: the default group */
    int64_t timeout_ms;  /* of the operation; 0: the group's */
    int32_t group_ranks; /* 1: roots, destinations and sources are ranks in the group; 0: global ranks */
    int32_t tag;         /* of send and recv: a receive takes only messages with its own tag; at least 0 */
    double factor;       /* of TUTTI_PREMUL_SUM */
} tutti_options;
#define TUTTI_OPTIONS_INIT \
    { sizeof(tutti_options), NULL, 0, 0, 0, 1.0 }

/* All ranks of a group call the same function; dtypes and element counts must agree unless a comment says otherwise,
 * shapes need not. A list of tensors has one for each rank, in rank order; `count` is checked. Errors:
 * TUTTI_INVALID_ARGUMENT before anything is sent; TUTTI_COLLECTIVE_MISMATCH, TUTTI_PEER_LOST, TUTTI_TIMEOUT,
 * TUTTI_ABORTED on every rank, and the group is unusable afterwards.
 *
 * Each has two forms: tutti_NAME returns when this rank's part is complete; tutti_NAME_async returns at once with a
 * work handle, and the elements of all tensors must stay alive and untouched until the work is complete. */

/* Copies the root's `tensor` into every rank's. */
TUTTI_API tutti_status tutti_broadcast(const tutti_tensor* tensor, int src, const tutti_options* options);
TUTTI_API tutti_status tutti_broadcast_async(const tutti_tensor* tensor, int src, const tutti_options* options,
                                             tutti_work** work);
/* Combines `tensor` over all ranks, element by element, in place; the same bits everywhere. */
TUTTI_API tutti_status tutti_all_reduce(const tutti_tensor* tensor, int op, const tutti_options* options);
TUTTI_API tutti_status tutti_all_reduce_async(const tutti_tensor* tensor, int op, const tutti_options* options,
                                              tutti_work** work);
/* As all_reduce, but only `dst` gets the result; the others' tensors stay unchanged. */
TUTTI_API tutti_status tutti_reduce(const tutti_tensor* tensor, int dst, int op, const tutti_options* options);
TUTTI_API tutti_status tutti_reduce_async(const tutti_tensor* tensor, int dst, int op, const tutti_options* options,
                                          tutti_work** work);
/* Prefix: `tensor` becomes the combination of those of ranks 0, 1, ... up to this one, in place and in the order of
 * ranks. TUTTI_AVG: TUTTI_INVALID_ARGUMENT. */
TUTTI_API tutti_status tutti_scan(const tutti_tensor* tensor, int op, const tutti_options* options);
TUTTI_API tutti_status tutti_scan_async(const tutti_tensor* tensor, int op, const tutti_options* options,
                                        tutti_work** work);
/* The same without this rank's own: of the ranks before it. Rank 0's tensor stays as it was. */
TUTTI_API tutti_status tutti_exscan(const tutti_tensor* tensor, int op, const tutti_options* options);
TUTTI_API tutti_status tutti_exscan_async(const tutti_tensor* tensor, int op, const tutti_options* options,
                                          tutti_work** work);
/* outputs[i] becomes rank i's `input`, which is only read; counts may differ between ranks. */
TUTTI_API tutti_status tutti_all_gather(const tutti_tensor* outputs, size_t count, const tutti_tensor* input,
                                        const tutti_options* options);
TUTTI_API tutti_status tutti_all_gather_async(const tutti_tensor* outputs, size_t count, const tutti_tensor* input,
                                              const tutti_options* options, tutti_work** work);
/* All inputs one after the other: `output` has size times the elements of `input`, which is only read. */
TUTTI_API tutti_status tutti_all_gather_into_tensor(const tutti_tensor* output, const tutti_tensor* input,
                                                    const tutti_options* options);
TUTTI_API tutti_status tutti_all_gather_into_tensor_async(const tutti_tensor* output, const tutti_tensor* input,
                                                          const tutti_options* options, tutti_work** work);
/* On `dst` outputs[i] becomes rank i's `input`, which is only read; elsewhere `count` is 0 and `outputs` NULL. */
TUTTI_API tutti_status tutti_gather(const tutti_tensor* input, const tutti_tensor* outputs, size_t count, int dst,
                                    const tutti_options* options);
TUTTI_API tutti_status tutti_gather_async(const tutti_tensor* input, const tutti_tensor* outputs, size_t count, int dst,
                                          const tutti_options* options, tutti_work** work);
/* `output` becomes inputs[rank] of `src`, which are only read; elsewhere `count` is 0 and `inputs` NULL. */
TUTTI_API tutti_status tutti_scatter(const tutti_tensor* output, const tutti_tensor* inputs, size_t count, int src,
                                     const tutti_options* options);
TUTTI_API tutti_status tutti_scatter_async(const tutti_tensor* output, const tutti_tensor* inputs, size_t count,
                                           int src, const tutti_options* options, tutti_work** work);
/* `output` becomes the combination of all ranks' inputs[rank], which are only read; counts may differ between them. */
TUTTI_API tutti_status tutti_reduce_scatter(const tutti_tensor* output, const tutti_tensor* inputs, size_t count,
                                            int op, const tutti_options* options);
TUTTI_API tutti_status tutti_reduce_scatter_async(const tutti_tensor* output, const tutti_tensor* inputs, size_t count,
                                                  int op, const tutti_options* options, tutti_work** work);
/* As reduce_scatter with one input of size equal blocks. */
TUTTI_API tutti_status tutti_reduce_scatter_tensor(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                   const tutti_options* options);
TUTTI_API tutti_status tutti_reduce_scatter_tensor_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                         const tutti_options* options, tutti_work** work);
/* As tutti_all_gather_into_tensor, but the input of rank i has output_splits[i] rows (along dimension 0); the list is
 * the same on all ranks. NULL: even; but the blocking form then learns the sizes by an additional all_gather.
 * output_offsets: the row of `output` at which each rank's rows begin, while other rows stay unchanged; NULL: one after
 * the other. tutti_all_gather_into_tensor_uneven: without offsets. */
TUTTI_API tutti_status tutti_all_gather_v(const tutti_tensor* output, const tutti_tensor* input,
                                          const int64_t* output_splits, const int64_t* output_offsets,
                                          const tutti_options* options);
TUTTI_API tutti_status tutti_all_gather_v_async(const tutti_tensor* output, const tutti_tensor* input,
                                                const int64_t* output_splits, const int64_t* output_offsets,
                                                const tutti_options* options, tutti_work** work);
TUTTI_API tutti_status tutti_all_gather_into_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input,
                                                           const int64_t* output_splits, const tutti_options* options);
TUTTI_API tutti_status tutti_all_gather_into_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input,
                                                                 const int64_t* output_splits,
                                                                 const tutti_options* options, tutti_work** work);
/* As tutti_reduce_scatter_tensor, but the block of rank i has input_splits[i] rows; the list is the same on all ranks.
 * NULL: as above. tutti_reduce_scatter_tensor_uneven is its former name. */
TUTTI_API tutti_status tutti_reduce_scatter_v(const tutti_tensor* output, const tutti_tensor* input, int op,
                                              const int64_t* input_splits, const tutti_options* options);
TUTTI_API tutti_status tutti_reduce_scatter_v_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                    const int64_t* input_splits, const tutti_options* options,
                                                    tutti_work** work);
TUTTI_API tutti_status tutti_reduce_scatter_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                          const int64_t* input_splits, const tutti_options* options);
TUTTI_API tutti_status tutti_reduce_scatter_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input,
                                                                int op, const int64_t* input_splits,
                                                                const tutti_options* options, tutti_work** work);
/* On `dst`, the receive_counts[i] elements at receive_offsets[i] of the flattened `output` become rank i's `input`,
 * which is only read, and other elements stay unchanged. NULL counts: equal blocks; NULL offsets: one block after the
 * other. On other ranks `output`, counts and offsets do not matter, and may be NULL. */
TUTTI_API tutti_status tutti_gather_v(const tutti_tensor* input, const tutti_tensor* output,
                                      const int64_t* receive_counts, const int64_t* receive_offsets, int dst,
                                      const tutti_options* options);
TUTTI_API tutti_status tutti_gather_v_async(const tutti_tensor* input, const tutti_tensor* output,
                                            const int64_t* receive_counts, const int64_t* receive_offsets, int dst,
                                            const tutti_options* options, tutti_work** work);
/* `output` becomes the send_counts[rank] elements at send_offsets[rank] of the flattened `input` of `src`, which is
 * only read; its blocks may overlap. The rest as in tutti_gather_v. */
TUTTI_API tutti_status tutti_scatter_v(const tutti_tensor* output, const tutti_tensor* input,
                                       const int64_t* send_counts, const int64_t* send_offsets, int src,
                                       const tutti_options* options);
TUTTI_API tutti_status tutti_scatter_v_async(const tutti_tensor* output, const tutti_tensor* input,
                                             const int64_t* send_counts, const int64_t* send_offsets, int src,
                                             const tutti_options* options, tutti_work** work);
/* inputs[i], only read, goes to rank i, outputs[j] comes from rank j; sizes match pairwise. */
TUTTI_API tutti_status tutti_all_to_all(const tutti_tensor* outputs, const tutti_tensor* inputs, size_t count,
                                        const tutti_options* options);
TUTTI_API tutti_status tutti_all_to_all_async(const tutti_tensor* outputs, const tutti_tensor* inputs, size_t count,
                                              const tutti_options* options, tutti_work** work);
/* Block i of `input`, only read, goes to rank i; `output` gets the blocks in the order of ranks. Splits: sizes of the
 * blocks along dimension 0, one for each rank; NULL: even. */
TUTTI_API tutti_status tutti_all_to_all_single(const tutti_tensor* output, const tutti_tensor* input,
                                               const int64_t* output_splits, const int64_t* input_splits,
                                               const tutti_options* options);
TUTTI_API tutti_status tutti_all_to_all_single_async(const tutti_tensor* output, const tutti_tensor* input,
                                                     const int64_t* output_splits, const int64_t* input_splits,
                                                     const tutti_options* options, tutti_work** work);
/* Blocks anywhere in the flattened tensors, in elements, one for each rank: a block of send_counts[i] at
 * send_offsets[i] of `input`, only read, goes to rank i; one of receive_counts[j] from rank j goes to
 * receive_offsets[j] of `output`, whose other elements stay unchanged. NULL counts: equal blocks; NULL offsets: one
 * block after the other. */
TUTTI_API tutti_status tutti_all_to_all_v(const tutti_tensor* output, const tutti_tensor* input,
                                          const int64_t* send_counts, const int64_t* send_offsets,
                                          const int64_t* receive_counts, const int64_t* receive_offsets,
                                          const tutti_options* options);
TUTTI_API tutti_status tutti_all_to_all_v_async(const tutti_tensor* output, const tutti_tensor* input,
                                                const int64_t* send_counts, const int64_t* send_offsets,
                                                const int64_t* receive_counts, const int64_t* receive_offsets,
                                                const tutti_options* options, tutti_work** work);
/* Returns, or is complete, when every rank has entered. */
TUTTI_API tutti_status tutti_barrier(const tutti_options* options);
TUTTI_API tutti_status tutti_barrier_async(const tutti_options* options, tutti_work** work);
/* A barrier whose error, TUTTI_TIMEOUT, names on rank 0 the first missing rank, or (wait_all_ranks 1) all of them. */
TUTTI_API tutti_status tutti_monitored_barrier(int wait_all_ranks, const tutti_options* options);

/* ---- Quantised collectives: tutti/quantized.hpp says what they do, when they pay, and how exact they are. ----
 */

enum { TUTTI_QUANTIZED_INT8 = 0, TUTTI_QUANTIZED_INT4 = 1, TUTTI_QUANTIZED_E4M3 = 2, TUTTI_QUANTIZED_E5M2 = 3 };
enum { TUTTI_SCALES_PER_RANK = 0, TUTTI_SCALES_SHARED = 1 };
enum { TUTTI_ROUND_NEAREST = 0, TUTTI_ROUND_STOCHASTIC = 1 };
enum { TUTTI_BLOCK_PER_ROW = -1, TUTTI_BLOCK_PER_TENSOR = -2 };

typedef struct tutti_quantized_options {
    size_t size;
    int64_t block;            /* elements with one scale: a multiple of 32 from 32 to 1024, or one of the above */
    int32_t type;             /* of the codes */
    int32_t scales;           /* whether each rank has its own scales, or all share them */
    float scale;              /* one for all of the input, on all ranks; 0: found from the values */
    int32_t quantize_results; /* of tutti_quantized_all_reduce: 1 if the second leg holds codes, too */
    uint64_t seed;            /* of stochastic rounding */
    int32_t rounding;
    int32_t reserved;      /* 0 */
    const int64_t* counts; /* of the other two functions: elements of each rank's piece; NULL: equal pieces */
} tutti_quantized_options;
#define TUTTI_QUANTIZED_OPTIONS_INIT \
    { sizeof(tutti_quantized_options), 256, 0, 0, 0.0F, 1, 0, 0, 0, NULL }

/* Adds up (TUTTI_SUM) or averages (TUTTI_AVG) `input` over all ranks into `output`, which may be the same tensor.
 * float32, float16, bfloat16; with a scale the input may hold codes of int8. `quantized` may be NULL. */
TUTTI_API tutti_status tutti_quantized_all_reduce(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                  const tutti_quantized_options* quantized,
                                                  const tutti_options* options);
TUTTI_API tutti_status tutti_quantized_all_reduce_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                        const tutti_quantized_options* quantized,
                                                        const tutti_options* options, tutti_work** work);
/* `output` becomes this rank's piece of the sums. */
TUTTI_API tutti_status tutti_quantized_reduce_scatter(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                      const tutti_quantized_options* quantized,
                                                      const tutti_options* options);
TUTTI_API tutti_status tutti_quantized_reduce_scatter_async(const tutti_tensor* output, const tutti_tensor* input,
                                                            int op, const tutti_quantized_options* quantized,
                                                            const tutti_options* options, tutti_work** work);
/* `output` becomes all inputs one after the other, as their codes say. */
TUTTI_API tutti_status tutti_quantized_all_gather(const tutti_tensor* output, const tutti_tensor* input,
                                                  const tutti_quantized_options* quantized,
                                                  const tutti_options* options);
TUTTI_API tutti_status tutti_quantized_all_gather_async(const tutti_tensor* output, const tutti_tensor* input,
                                                        const tutti_quantized_options* quantized,
                                                        const tutti_options* options, tutti_work** work);

/* ---- Point to point -------------------------------------------------------------------------------------------- */

enum { TUTTI_ANY_RANK = -1 };

/* Sends `tensor`, which is only read, to another rank. Returns when the caller may write to it again. */
TUTTI_API tutti_status tutti_send(const tutti_tensor* tensor, int dst, const tutti_options* options);
/* Receives from `src` or TUTTI_ANY_RANK; dtype and count must be the sender's. `sender` (may be NULL): its rank. */
TUTTI_API tutti_status tutti_recv(const tutti_tensor* tensor, int src, const tutti_options* options, int* sender);
/* The same, but they return at once; isend may send to its own rank. Where tutti_options.group_ranks is 1, isend takes
 * no timeout_ms and uses the group's. */
TUTTI_API tutti_status tutti_isend(const tutti_tensor* tensor, int dst, const tutti_options* options,
                                   tutti_work** work);
TUTTI_API tutti_status tutti_irecv(const tutti_tensor* tensor, int src, const tutti_options* options,
                                   tutti_work** work);

/* As a rank: nobody is on this side, whose tensor may be NULL. As a tag, of probes: any. */
enum { TUTTI_NO_RANK = -2, TUTTI_ANY_TAG = -1 };

/* Sends `sent`, which is only read, to `dst` with send_tag, and receives `received` from `src` or TUTTI_ANY_RANK with
 * recv_tag, both at once; dst and src may be this rank itself, or TUTTI_NO_RANK. `sender` (may be NULL): the rank of
 * the sender, or TUTTI_NO_RANK. tutti_options.tag has to be 0. */
TUTTI_API tutti_status tutti_sendrecv(const tutti_tensor* sent, int dst, int send_tag, const tutti_tensor* received,
                                      int src, int recv_tag, const tutti_options* options, int* sender);
TUTTI_API tutti_status tutti_isendrecv(const tutti_tensor* sent, int dst, int send_tag, const tutti_tensor* received,
                                       int src, int recv_tag, const tutti_options* options, tutti_work** work);
/* The same in one tensor, whose values leave before others take their place. Beyond 256 KB it goes in pieces, so its
 * two peers must call this function too. */
TUTTI_API tutti_status tutti_sendrecv_replace(const tutti_tensor* tensor, int dst, int send_tag, int src, int recv_tag,
                                              const tutti_options* options, int* sender);

/* What a probe knows of a message. */
typedef struct tutti_message_info {
    int32_t source; /* global rank of the sender */
    int32_t group_source;
    int32_t tag;
    int32_t dtype;
    int64_t count; /* elements */
    uint64_t bytes;
} tutti_message_info;

/* Waits for a message from `src` or TUTTI_ANY_RANK with `tag` or TUTTI_ANY_TAG that no receive waits for, describes it,
 * and leaves it where it is. tutti_options.tag has to be 0. */
TUTTI_API tutti_status tutti_probe(int src, int tag, const tutti_options* options, tutti_message_info* info);
/* The same without waiting; `*found`: 1 if there is such a message, else 0, and `info` stays unchanged. */
TUTTI_API tutti_status tutti_iprobe(int src, int tag, const tutti_options* options, int* found,
                                    tutti_message_info* info);
/* As these two, but no other receive and no probe gets the message: tutti_message_recv() or tutti_message_irecv() does.
 * `info` may be NULL. Release the handle with tutti_message_free(). */
TUTTI_API tutti_status tutti_matched_probe(int src, int tag, const tutti_options* options, tutti_message** message,
                                           tutti_message_info* info);
TUTTI_API tutti_status tutti_matched_iprobe(int src, int tag, const tutti_options* options, int* found,
                                            tutti_message** message, tutti_message_info* info);
/* Receives the message, once, into a tensor of its dtype and count. TUTTI_INVALID_ARGUMENT for another tensor: the
 * message is still there. */
TUTTI_API tutti_status tutti_message_recv(tutti_message* message, const tutti_tensor* tensor, int64_t timeout_ms);
TUTTI_API tutti_status tutti_message_irecv(tutti_message* message, const tutti_tensor* tensor, int64_t timeout_ms,
                                           tutti_work** work);
/* Releases the handle. A message that has not been received returns to its place, where others can receive it. NULL:
 * does nothing. */
TUTTI_API tutti_status tutti_message_free(tutti_message* message);

/* ---- Neighbours ------------------------------------------------------------------------------------------------- */

/* Halos and neighbourhood collectives, which tutti/neighbors.hpp describes. Of tutti_options they use timeout_ms, and
 * tutti_neighbor_graph_create also the group. */

/* The halos along one dimension of a tensor. */
typedef struct tutti_halo {
    int32_t dim;
    int32_t
        periodic; /* 1: the last rank of the group is beside the first; 0: halos beyond the ends keep their values */
    int64_t low, high;  /* numbers of cells before and behind the inner cells; equal on all ranks of the group */
    tutti_group* group; /* the ranks along the dimension, in their order; NULL: the default group */
} tutti_halo;

/* Fills the halos of this rank's block, which `tensor` views, with the cells of its neighbours next to it; one halo
 * after the other, so that corners are right, too. */
TUTTI_API tutti_status tutti_exchange_halos(const tutti_tensor* tensor, const tutti_halo* halos, size_t halo_count,
                                            const tutti_options* options);
TUTTI_API tutti_status tutti_exchange_halos_async(const tutti_tensor* tensor, const tutti_halo* halos,
                                                  size_t halo_count, const tutti_options* options, tutti_work** work);

/* Which ranks send to which. All ranks of the group create it; each lists the ranks from which it receives and those to
 * which it sends (TUTTI_NO_RANK: none; NULL: an empty list). If the lists of two ranks differ, all get
 * TUTTI_COLLECTIVE_MISMATCH.
 */
typedef struct tutti_neighbor_graph tutti_neighbor_graph;
TUTTI_API tutti_status tutti_neighbor_graph_create(const int* sources, size_t source_count, const int* destinations,
                                                   size_t destination_count, const tutti_options* options,
                                                   tutti_neighbor_graph** graph);
/* Releases the handle. NULL: does nothing. */
TUTTI_API tutti_status tutti_neighbor_graph_free(tutti_neighbor_graph* graph);
/* Sends inputs[i], which are only read, to destination i, and receives outputs[j] from source j. */
TUTTI_API tutti_status tutti_neighbor_all_to_all(const tutti_tensor* outputs, size_t output_count,
                                                 const tutti_tensor* inputs, size_t input_count,
                                                 tutti_neighbor_graph* graph, const tutti_options* options);
TUTTI_API tutti_status tutti_neighbor_all_to_all_async(const tutti_tensor* outputs, size_t output_count,
                                                       const tutti_tensor* inputs, size_t input_count,
                                                       tutti_neighbor_graph* graph, const tutti_options* options,
                                                       tutti_work** work);
/* Sends `input`, which is only read, to all destinations, and receives outputs[j] from source j. */
TUTTI_API tutti_status tutti_neighbor_all_gather(const tutti_tensor* outputs, size_t output_count,
                                                 const tutti_tensor* input, tutti_neighbor_graph* graph,
                                                 const tutti_options* options);
TUTTI_API tutti_status tutti_neighbor_all_gather_async(const tutti_tensor* outputs, size_t output_count,
                                                       const tutti_tensor* input, tutti_neighbor_graph* graph,
                                                       const tutti_options* options, tutti_work** work);

/* ---- Windows: tutti/window.hpp says what the calls do, with the memory model. ---------------------------------- */

/* Memory of each rank that the others read, write and update atomically, and signals. Targets are ranks of the group,
 * offsets count elements. The forms with _async complete as those of tutti/window.hpp that begin with i. */
typedef struct tutti_window tutti_window;

typedef struct tutti_window_options {
    size_t size;
    tutti_group* group; /* NULL: the default group */
    int64_t timeout_ms; /* for making it; 0: the group's */
    int32_t signals;    /* of each rank */
    int32_t reserved;   /* 0 */
} tutti_window_options;
#define TUTTI_WINDOW_OPTIONS_INIT \
    { sizeof(tutti_window_options), NULL, 0, 16, 0 }

/* Beside TUTTI_SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR, as `op` of a window's functions. */
enum {
    TUTTI_REPLACE = 100,
    TUTTI_NO_OP = 101 /* of those that give old values: only reads them */
};

/* All ranks make it: `ndim` sizes, all zeros. shape[0] may differ between ranks, and be 0. */
TUTTI_API tutti_status tutti_window_create(int dtype, const int64_t* shape, int ndim,
                                           const tutti_window_options* options, tutti_window** window);
/* All ranks close it together, behind all calls on it. The handle stays, for tutti_window_free(). */
TUTTI_API tutti_status tutti_window_close(tutti_window* window, int64_t timeout_ms);
/* Releases the handle; of a window that is not closed this rank lets go, without waiting. NULL: does nothing. */
TUTTI_API tutti_status tutti_window_free(tutti_window* window);
/* The number of a rank's elements. */
TUTTI_API tutti_status tutti_window_element_count(tutti_window* window, int rank, int64_t* count);
/* The elements of this rank, or of another one of its host, valid until the handle is released.
 * TUTTI_INVALID_ARGUMENT for ranks of other hosts. */
TUTTI_API tutti_status tutti_window_memory(tutti_window* window, int rank, void** memory);

TUTTI_API tutti_status tutti_window_put(tutti_window* window, const tutti_tensor* source, int target, int64_t offset,
                                        int64_t timeout_ms);
TUTTI_API tutti_status tutti_window_put_async(tutti_window* window, const tutti_tensor* source, int target,
                                              int64_t offset, int64_t timeout_ms, tutti_work** work);
TUTTI_API tutti_status tutti_window_get(tutti_window* window, const tutti_tensor* destination, int target,
                                        int64_t offset, int64_t timeout_ms);
TUTTI_API tutti_status tutti_window_get_async(tutti_window* window, const tutti_tensor* destination, int target,
                                              int64_t offset, int64_t timeout_ms, tutti_work** work);
TUTTI_API tutti_status tutti_window_put_signal(tutti_window* window, const tutti_tensor* source, int target,
                                               int64_t offset, int signal, uint64_t value, int64_t timeout_ms);

/* Each element of the target becomes itself `op` the one of `source`, atomically. */
TUTTI_API tutti_status tutti_window_accumulate(tutti_window* window, const tutti_tensor* source, int target, int op,
                                               int64_t offset, int64_t timeout_ms);
TUTTI_API tutti_status tutti_window_accumulate_async(tutti_window* window, const tutti_tensor* source, int target,
                                                     int op, int64_t offset, int64_t timeout_ms, tutti_work** work);
/* The same, and `before` gets the old values. TUTTI_NO_OP: `source` may be NULL. */
TUTTI_API tutti_status tutti_window_get_accumulate(tutti_window* window, const tutti_tensor* source,
                                                   const tutti_tensor* before, int target, int op, int64_t offset,
                                                   int64_t timeout_ms);
TUTTI_API tutti_status tutti_window_get_accumulate_async(tutti_window* window, const tutti_tensor* source,
                                                         const tutti_tensor* before, int target, int op, int64_t offset,
                                                         int64_t timeout_ms, tutti_work** work);
/* The same with one element: `value` (NULL with TUTTI_NO_OP) and `before` point to one of the window's type. */
TUTTI_API tutti_status tutti_window_fetch_op(tutti_window* window, const void* value, void* before, int target, int op,
                                             int64_t offset, int64_t timeout_ms);
/* The element becomes `desired` if it has the bits of `expected`; `before` gets the old value. For types of at most 8
 * bytes. */
TUTTI_API tutti_status tutti_window_compare_and_swap(tutti_window* window, const void* expected, const void* desired,
                                                     void* before, int target, int64_t offset, int64_t timeout_ms);

/* Adds to a signal of the target, behind all earlier puts of this rank to it. */
TUTTI_API tutti_status tutti_window_signal(tutti_window* window, int target, int signal, uint64_t value);
/* Waits until this rank's signal has at least the value. TUTTI_TIMEOUT leaves the window usable. */
TUTTI_API tutti_status tutti_window_wait_signal(tutti_window* window, int signal, uint64_t at_least,
                                                int64_t timeout_ms);
TUTTI_API tutti_status tutti_window_read_signal(tutti_window* window, int signal, uint64_t* value);
/* Returns when all calls of this rank to the target (TUTTI_ANY_RANK: to all) have taken effect there. */
TUTTI_API tutti_status tutti_window_flush(tutti_window* window, int target, int64_t timeout_ms);
/* All ranks: a flush, and a barrier. */
TUTTI_API tutti_status tutti_window_fence(tutti_window* window, int64_t timeout_ms);

/* ---- Work ------------------------------------------------------------------------------------------------------ */

/* Blocks until the operation is complete; returns TUTTI_OK or its error. A `timeout_ms` of 0 means the operation's own
 * deadline; if another `timeout_ms` passes first, the result is TUTTI_TIMEOUT, and the operation continues. */
TUTTI_API tutti_status tutti_work_wait(tutti_work* work, int64_t timeout_ms);
/* Waits until all are complete; returns the first failure. */
TUTTI_API tutti_status tutti_work_wait_all(tutti_work* const* works, size_t count);
/* `*done`: 1 if the operation is complete, with success or an error. Does not wait. */
TUTTI_API tutti_status tutti_work_test(tutti_work* work, int* done);
/* `*error`: TUTTI_OK while it runs or if it succeeded, else its error, with the message in tutti_last_error(). */
TUTTI_API tutti_status tutti_work_error(tutti_work* work, tutti_status* error);
/* The group rank of the sender that a receive matched; TUTTI_INVALID_ARGUMENT for other operations or before
 * completion. */
TUTTI_API tutti_status tutti_work_source_rank(tutti_work* work, int* rank);
/* Releases the handle; does not cancel the operation. NULL: does nothing. */
TUTTI_API tutti_status tutti_work_free(tutti_work* work);

#ifdef __cplusplus
}
#endif

#endif
