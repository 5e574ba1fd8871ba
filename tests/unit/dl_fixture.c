/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be opened by test_dl.c, in a vendor's driver's place. */
int dl_fixture_add(int a, int b);

__attribute__((visibility("default"))) int dl_fixture_add(int a, int b) {
    return a + b;
}
