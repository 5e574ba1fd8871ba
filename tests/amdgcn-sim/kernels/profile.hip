/* SPDX-License-Identifier: Apache-2.0 */
/* One access to LDS and one to memory a lane, where the caller says. */
#include "device.h"

typedef int int2_ __attribute__((ext_vector_type(2)));

template <typename word>
DEVICE inline void store_load(int *out, const int *store, const int *load) {
    SHARED word shared[16384 / sizeof(word)];
    volatile __attribute__((address_space(3))) word *lds =
        (volatile __attribute__((address_space(3))) word *)shared;
    lds[store[LANE]] = (word)LANE;
    const word x = lds[load[LANE]];
    *(word *)(out + 16 * LANE) = x;
}

KERNEL access16(int *out, const int *store, const int *load) {
    store_load<short>(out, store, load);
}

KERNEL access32(int *out, const int *store, const int *load) {
    store_load<int>(out, store, load);
}

KERNEL access64(int *out, const int *store, const int *load) {
    store_load<int2_>(out, store, load);
}

KERNEL access128(int *out, const int *store, const int *load) {
    store_load<int4_>(out, store, load);
}
