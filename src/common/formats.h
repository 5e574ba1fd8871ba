/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between the element types. Each is ONE rounding to nearest, ties to even; values that
 * round beyond the largest finite number become infinite; a NaN stays a NaN of the same sign. */
#ifndef PF_FORMATS_H
#define PF_FORMATS_H

#include <stdint.h>

#include <pfattn/pfattn.h>

float pf_f16_to_f32(uint16_t code);
float pf_bf16_to_f32(uint16_t code);
float pf_e5m2_to_f32(uint8_t code);

uint16_t pf_f32_to_f16(float value);
uint16_t pf_f32_to_bf16(float value);
uint8_t pf_f32_to_e5m2(float value);

uint16_t pf_f64_to_f16(double value);
uint16_t pf_f64_to_bf16(double value);
uint8_t pf_f64_to_e5m2(double value);

/* Element `index` of an array of any type but NONE, exactly; 0 for other types. */
double pf_load(const void *base, pfattn_dtype dtype, int64_t index);

/* Round `value` to the type and store it as element `index`. For U8, any value but 0 is stored
 * as 1. */
void pf_store(void *base, pfattn_dtype dtype, int64_t index, double value);

/* The nearest number of the type, as a double; `value` itself for F64, U8 and NONE. */
double pf_round(double value, pfattn_dtype dtype);

/* The smallest positive normal number of a floating type; 0 for U8 and NONE. */
double pf_smallest_normal(pfattn_dtype dtype);

#endif
