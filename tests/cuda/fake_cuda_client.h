/* SPDX-License-Identifier: Apache-2.0 */
/* The tests' hold on the fake driver. The libraries are the program's arguments. */
#ifndef PF_TEST_FAKE_CUDA_CLIENT_H
#define PF_TEST_FAKE_CUDA_CLIENT_H

#include "fake_cuda.h"
#include "problems.h"

/* Open the fake driver at `path`, for the test and, through PFATTN_CUDA_LIBRARY, for the library.
 */
fake_cuda *fake_open(const char *path);

/* Contexts current in the calling thread. */
int fake_depth(void);

/* Forget calls, launches, encodes, faults and the capture. */
void fake_reset(fake_cuda *fake);

int fake_count_calls(const fake_cuda *fake, const char *name);

/* The name of the image that begins at `bytes`, in the table of the library under test. */
const char *fake_image_name(const void *bytes);

/* A handle on a device of the cuda backend; failure fails the test. */
pfattn_handle fake_handle(int device);

/* Fails the test unless `status` is that of the thread's last error and its text holds `text`. */
void assert_error(pfattn_status status, pfattn_status want, const char *text);
void assert_success(pfattn_status status);

#endif
