/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the HIP host code share. */
#ifndef PF_TEST_HIP_CLIENT_H
#define PF_TEST_HIP_CLIENT_H

#include "fake_hip.h"
#include "problems.h"

/* Load the fake library, and make pfattn open it. */
fake_hip *fake_open(const char *path);

/* A handle of the hip backend. */
pfattn_handle fake_handle(int device);

/* The name of the image in the library whose bytes these are. */
const char *fake_image_name(const void *bytes);

void assert_error(pfattn_status status, pfattn_status want, const char *text);
void assert_success(pfattn_status status);

#endif
