/* The header and its initialisers are C11. capi_test.cpp looks at the results. */
#include <tutti/tutti.h>

#include <tutti/tutti.h>

int64_t elements_of_vector_in_c(void);
size_t sizes_of_initialisers_in_c(void);

int64_t elements_of_vector_in_c(void) {
    float x[3] = {1, 2, 3};
    const tutti_tensor vector = TUTTI_VECTOR(x, TUTTI_FLOAT32, 3);
    return vector.data == x && vector.dtype == TUTTI_FLOAT32 && vector.ndim == 1 ? vector.shape[0] : -1;
}

size_t sizes_of_initialisers_in_c(void) {
    const tutti_tcp_store_options tcp = TUTTI_TCP_STORE_OPTIONS_INIT;
    const tutti_init_options init = TUTTI_INIT_OPTIONS_INIT;
    const tutti_group_options group = TUTTI_GROUP_OPTIONS_INIT;
    const tutti_options options = TUTTI_OPTIONS_INIT;
    const tutti_quantized_options quantized = TUTTI_QUANTIZED_OPTIONS_INIT;
    const tutti_window_options window = TUTTI_WINDOW_OPTIONS_INIT;
    return tcp.size + init.size + group.size + options.size + quantized.size + window.size;
}
