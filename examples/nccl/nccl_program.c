/* A program written for NCCL, on a machine without a GPU: processes that share one unique id, then all ranks of one
 * process in one thread. It knows nothing of tutti: it declares the few names of nccl.h that it uses, and is linked
 * with libtutti-nccl instead of libnccl.
 *
 *   build/examples/nccl_program
 */
#define _DEFAULT_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct ncclComm* ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef int ncclResult_t;
enum { ncclSuccess = 0, ncclSum = 0, ncclFloat = 7 };

extern ncclResult_t ncclGetVersion(int* version);
extern ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
extern ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
extern ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist);
extern ncclResult_t ncclCommDestroy(ncclComm_t comm);
extern const char* ncclGetLastError(ncclComm_t comm);
extern ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, int type, int op, ncclComm_t comm,
                                  void* stream);
extern ncclResult_t ncclSend(const void* sendbuff, size_t count, int type, int peer, ncclComm_t comm, void* stream);
extern ncclResult_t ncclRecv(void* recvbuff, size_t count, int type, int peer, ncclComm_t comm, void* stream);
extern ncclResult_t ncclGroupStart(void);
extern ncclResult_t ncclGroupEnd(void);

#define CHECK(call)                                                                       \
    do {                                                                                  \
        ncclResult_t result_ = (call);                                                    \
        if (result_ != ncclSuccess) {                                                     \
            fprintf(stderr, "%s: %d: %s\n", #call, (int)result_, ncclGetLastError(NULL)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

enum { ranks = 4, elements = 100000 };

static void expect(double value, double expected, const char* what) {
    if (value == expected) return;
    fprintf(stderr, "%s: %g, expected %g\n", what, value, expected);
    exit(1);
}

/* One process of four: a sum, and a ring. */
static int run_rank(int rank, ncclUniqueId id) {
    ncclComm_t comm;
    CHECK(ncclCommInitRank(&comm, ranks, id, rank));
    float* gradients = malloc(elements * sizeof(float));
    for (int i = 0; i < elements; ++i) gradients[i] = (float)(rank + 1);
    CHECK(ncclAllReduce(gradients, gradients, elements, ncclFloat, ncclSum, comm, NULL));
    expect(gradients[elements - 1], 1 + 2 + 3 + 4, "the sum");

    float mine = (float)rank, before = -1;
    CHECK(ncclGroupStart());
    CHECK(ncclSend(&mine, 1, ncclFloat, (rank + 1) % ranks, comm, NULL));
    CHECK(ncclRecv(&before, 1, ncclFloat, (rank + ranks - 1) % ranks, comm, NULL));
    CHECK(ncclGroupEnd());
    expect(before, (rank + ranks - 1) % ranks, "from the rank before");
    if (rank == 0) printf("4 processes: the sum is %g, and rank 3 sent %g\n", (double)gradients[0], (double)before);
    free(gradients);
    CHECK(ncclCommDestroy(comm));
    return 0;
}

/* Four ranks in one thread, as ncclCommInitAll makes them. */
static void run_clique(void) {
    ncclComm_t comms[ranks];
    float values[ranks];
    CHECK(ncclCommInitAll(comms, ranks, NULL));
    CHECK(ncclGroupStart());
    for (int i = 0; i < ranks; ++i) {
        values[i] = (float)i;
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], NULL));
    }
    CHECK(ncclGroupEnd());
    for (int i = 0; i < ranks; ++i) expect(values[i], 0 + 1 + 2 + 3, "the sum in one thread");
    printf("1 process:   the sum is %g\n", (double)values[0]);
    for (int i = 0; i < ranks; ++i) CHECK(ncclCommDestroy(comms[i]));
}

int main(void) {
    int id_pipe[ranks][2];
    pid_t children[ranks];
    for (int rank = 0; rank < ranks; ++rank) {
        if (pipe(id_pipe[rank]) != 0) return 1;
    }
    for (int rank = 0; rank < ranks; ++rank) {
        children[rank] = fork();
        if (children[rank] < 0) return 1;
        if (children[rank] > 0) continue;
        ncclUniqueId id;
        if (rank == 0) { /* makes the id, and gives it to all: other programs do so by MPI_Bcast */
            CHECK(ncclGetUniqueId(&id));
            for (int to = 1; to < ranks; ++to) {
                if (write(id_pipe[to][1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
            }
        } else if (read(id_pipe[rank][0], &id, sizeof id) != (ssize_t)sizeof id) {
            return 1;
        }
        return run_rank(rank, id);
    }
    int failed = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        waitpid(children[rank], &status, 0);
        failed += status != 0;
    }
    if (failed > 0) return 1;
    int version = 0;
    CHECK(ncclGetVersion(&version));
    printf("NCCL's interface %d.%d\n", version / 10000, version / 100 % 100);
    run_clique();
    return 0;
}
