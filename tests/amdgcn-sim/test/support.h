/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator's tests share: device buffers, launches, captured messages, random numbers. */
#ifndef AMDGCN_SIM_TEST_SUPPORT_H
#define AMDGCN_SIM_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../hip.h"

/* AMDGCN_SIM_ARCH of this run. */
const char *test_arch(void);
bool test_is_gfx942(void);

/* The code object NAME.ARCH.co of the directory in AMDGCN_SIM_KERNELS. */
void *test_image(const char *name, const char *arch);
hipModule_t test_module(const char *name);

void *test_upload(const void *data, size_t size);
void *test_output(size_t size); /* fresh memory, poisoned */
void test_download(void *to, const void *device, size_t size);

/* Launches with pointers to the arguments; returns the first error. */
hipError_t test_launch(hipModule_t module, const char *kernel, unsigned groups, unsigned items,
                       void **params);
#define ARGS(...) ((void *[]){__VA_ARGS__})
void test_run(hipModule_t module, const char *kernel, unsigned groups, unsigned items,
              void **params);

/* Text written to stderr between the two calls. */
void test_capture_begin(void);
const char *test_capture_end(void);

uint32_t test_random(void);
float test_uniform(void); /* in [-1, 1) */

float bits_f32(uint32_t x);
uint32_t f32_bits(float x);
/* Steps of one unit in the last place between two floats; huge when only one is a NaN. */
double ulps(float a, double b);

#endif
