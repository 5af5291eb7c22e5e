/* The same from C. */
#include <tutti/tutti.h>

#include <stdio.h>

int main(void) {
    float sum[3] = {0, 42, 0};
    const tutti_tensor tensor = TUTTI_VECTOR(sum, TUTTI_FLOAT32, 3);
    tutti_init_options options = TUTTI_INIT_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = 1;
    if (tutti_store_hash(0, &options.store) != TUTTI_OK || tutti_init_process_group(&options) != TUTTI_OK ||
        tutti_all_reduce(&tensor, TUTTI_SUM, NULL) != TUTTI_OK || tutti_destroy_process_group(NULL) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return 1;
    }
    printf("tutti %s: %g\n", tutti_version(), (double)sum[1]);
    tutti_store_free(options.store);
    return 0;
}
