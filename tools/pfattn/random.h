/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are a function of (seed, index) alone, so that threads and layouts do not
 * change them. */
#ifndef RANDOM_H
#define RANDOM_H

#include <math.h>
#include <stdint.h>

/* Finaliser of splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t random_bits(uint64_t seed, uint64_t index) {
    uint64_t x = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* In (0, 1). */
static inline double random_uniform(uint64_t seed, uint64_t index) {
    return ((double)(random_bits(seed, index) >> 11) + 0.5) * 0x1p-53;
}

/* Standard normal (Box and Muller). */
static inline double random_normal(uint64_t seed, uint64_t index) {
    uint64_t bits = random_bits(seed, index);
    double radius = ((double)(bits >> 32) + 0.5) * 0x1p-32;
    double angle = (double)(bits & UINT32_MAX) * (6.283185307179586 * 0x1p-32);
    return sqrt(-2 * log(radius)) * cos(angle);
}

/* A seed for a name under a seed (FNV-1a). */
static inline uint64_t random_seed(uint64_t seed, const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    }
    return random_bits(hash, 0);
}

#endif
