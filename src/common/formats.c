/* SPDX-License-Identifier: Apache-2.0 */
#include "formats.h"

#include <float.h>
#include <string.h>

/* All arithmetic is on integers, so that neither the rounding mode nor a flush of subnormals set by
 * the host program changes a result. */

static uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Drop the low `count` bits (1 to 54) of a significand below 2^53, to nearest, ties to even. */
static uint64_t round_off(uint64_t significand, int count) {
    const uint64_t half = UINT64_C(1) << (count - 1);
    const uint64_t rest = significand & ((half << 1) - 1);
    const uint64_t kept = significand >> count;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

/* The code of `value` in an IEEE-like format of `exponent_bits` and `fraction_bits`. */
static uint32_t encode(double value, int exponent_bits, int fraction_bits) {
    const uint64_t bits = bits_of_double(value);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const uint32_t sign = (uint32_t)(bits >> 63) << (exponent_bits + fraction_bits);
    const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;

    if (exponent == 1024 && fraction != 0) {
        const uint32_t quiet = 1u << (fraction_bits - 1);
        return sign | infinity | quiet | (uint32_t)(fraction >> (52 - fraction_bits));
    }
    if (exponent > bias) {
        return sign | infinity;
    }
    int dropped = 52 - fraction_bits;
    uint32_t base = 0;
    if (exponent >= 1 - bias) {
        /* The implicit bit adds one to the exponent field, as does a carry out of the fraction. */
        base = (uint32_t)(exponent + bias - 1) << fraction_bits;
    } else {
        dropped += 1 - bias - exponent;
    }
    if (dropped > 54) {
        return sign; /* below half the smallest subnormal; so is every subnormal double */
    }
    return sign | (base + (uint32_t)round_off(fraction | UINT64_C(1) << 52, dropped));
}

float pf_f16_to_f32(uint16_t code) {
    const uint32_t sign = (uint32_t)(code & 0x8000) << 16;
    const uint32_t magnitude = code & 0x7fffu;
    if (magnitude >= 0x7c00) {
        return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    }
    if (magnitude < 0x400) {
        const float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
}

float pf_bf16_to_f32(uint16_t code) {
    return float_of_bits((uint32_t)code << 16);
}

/* e5m2 is f16 without the low byte of its fraction. */
float pf_e5m2_to_f32(uint8_t code) {
    return pf_f16_to_f32((uint16_t)(code << 8));
}

uint16_t pf_f64_to_f16(double value) {
    return (uint16_t)encode(value, 5, 10);
}

uint16_t pf_f64_to_bf16(double value) {
    return (uint16_t)encode(value, 8, 7);
}

uint8_t pf_f64_to_e5m2(double value) {
    return (uint8_t)encode(value, 5, 2);
}

/* Every float is a double, so the rounding stays a single one. */
uint16_t pf_f32_to_f16(float value) {
    return pf_f64_to_f16(value);
}

uint16_t pf_f32_to_bf16(float value) {
    return pf_f64_to_bf16(value);
}

uint8_t pf_f32_to_e5m2(float value) {
    return pf_f64_to_e5m2(value);
}

double pf_load(const void *base, pfattn_dtype dtype, int64_t index) {
    switch (dtype) {
    case PFATTN_DTYPE_F16:
        return pf_f16_to_f32(((const uint16_t *)base)[index]);
    case PFATTN_DTYPE_BF16:
        return pf_bf16_to_f32(((const uint16_t *)base)[index]);
    case PFATTN_DTYPE_F32:
        return ((const float *)base)[index];
    case PFATTN_DTYPE_F64:
        return ((const double *)base)[index];
    case PFATTN_DTYPE_E5M2:
        return pf_e5m2_to_f32(((const uint8_t *)base)[index]);
    case PFATTN_DTYPE_U8:
        return ((const uint8_t *)base)[index];
    case PFATTN_DTYPE_NONE:
        break;
    }
    return 0;
}

void pf_store(void *base, pfattn_dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case PFATTN_DTYPE_F16:
        ((uint16_t *)base)[index] = pf_f64_to_f16(value);
        break;
    case PFATTN_DTYPE_BF16:
        ((uint16_t *)base)[index] = pf_f64_to_bf16(value);
        break;
    case PFATTN_DTYPE_F32:
        ((float *)base)[index] = (float)value;
        break;
    case PFATTN_DTYPE_F64:
        ((double *)base)[index] = value;
        break;
    case PFATTN_DTYPE_E5M2:
        ((uint8_t *)base)[index] = pf_f64_to_e5m2(value);
        break;
    case PFATTN_DTYPE_U8:
        ((uint8_t *)base)[index] = value != 0;
        break;
    case PFATTN_DTYPE_NONE:
        break;
    }
}

double pf_round(double value, pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_F16:
        return pf_f16_to_f32(pf_f64_to_f16(value));
    case PFATTN_DTYPE_BF16:
        return pf_bf16_to_f32(pf_f64_to_bf16(value));
    case PFATTN_DTYPE_F32:
        return (float)value;
    case PFATTN_DTYPE_E5M2:
        return pf_e5m2_to_f32(pf_f64_to_e5m2(value));
    case PFATTN_DTYPE_F64:
    case PFATTN_DTYPE_U8:
    case PFATTN_DTYPE_NONE:
        break;
    }
    return value;
}

double pf_smallest_normal(pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_F16:
    case PFATTN_DTYPE_E5M2:
        return 0x1p-14;
    case PFATTN_DTYPE_BF16:
    case PFATTN_DTYPE_F32:
        return FLT_MIN;
    case PFATTN_DTYPE_F64:
        return DBL_MIN;
    case PFATTN_DTYPE_U8:
    case PFATTN_DTYPE_NONE:
        break;
    }
    return 0;
}
