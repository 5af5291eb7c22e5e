/* The same library from C: everyone contributes a gradient, everyone gets the average.
 *
 *   cc -std=c11 c_abi.c $(pkg-config --cflags --libs tutti) -o c_abi && tutti run -n 4 ./c_abi
 */
#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>

/* Every function returns a status; the sentence that belongs to it is tutti_last_error(). */
static void must(tutti_status status) {
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s: %s\n", tutti_status_name(status), tutti_last_error());
    exit(1);
}

int main(void) {
    enum { COUNT = 1000 };
    float gradient[COUNT];
    int rank = 0, size = 0;

    must(tutti_init_process_group(NULL)); /* env://, as set by tutti run, torchrun, srun or mpirun */
    must(tutti_group_rank(NULL, &rank));  /* NULL: the default group */
    must(tutti_group_size(NULL, &size));

    for (int i = 0; i < COUNT; ++i) gradient[i] = (float)rank;
    const tutti_tensor tensor = TUTTI_VECTOR(gradient, TUTTI_FLOAT32, COUNT);
    tutti_work* work = NULL;
    must(tutti_all_reduce_async(&tensor, TUTTI_AVG, NULL, &work)); /* in place, while this thread does other things */
    must(tutti_work_wait(work, 0));
    must(tutti_work_free(work));
    printf("rank %d of %d: the average is %g\n", rank, size, (double)gradient[0]);
    const int wrong = gradient[COUNT - 1] != (float)(size - 1) / 2;

    /* What cannot be is refused before anything is sent, with a sentence that says what is expected. */
    tutti_options options = TUTTI_OPTIONS_INIT;
    options.timeout_ms = -1;
    if (tutti_barrier(&options) != TUTTI_INVALID_ARGUMENT) return 1;
    if (rank == 0) printf("refused: %s\n", tutti_last_error());

    must(tutti_destroy_process_group(NULL));
    return wrong;
}
