/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PF_REF_EXPONENTIAL_H
#define PF_REF_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

/* 2^n for n within [-126, 127]. */
static inline __attribute__((always_inline)) float pf_power_of_2(int32_t n) {
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* e^x within 2 units in the last place, in a form that compilers vectorise: x = n ln 2 + r with
 * |r| <= ln(2)/2, e^r by a minimax polynomial, and 2^n in two factors, since n reaches from -150 to
 * 129. Beyond that e^x is 0 or infinite in float as well. NaN stays NaN. */
static inline __attribute__((always_inline)) float pf_exponential(float x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer */
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float shifted = x * 0x1.715476p+0f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    const float tail =
        0x1.fffffcp-2f +
        r * (0x1.555492p-3f + r * (0x1.5558f2p-5f + r * (0x1.1239e2p-7f + r * 0x1.6a2434p-10f)));
    const float y = 1.0f + (r + r * r * tail);
    int32_t whole;
    memcpy(&whole, &shifted, sizeof whole);
    whole -= 0x4b400000; /* the bits of magic: what is left is n */
    const int32_t half = whole >> 1;
    return y * pf_power_of_2(half) * pf_power_of_2(whole - half);
}

#endif
