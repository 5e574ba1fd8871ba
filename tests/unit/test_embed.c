/* SPDX-License-Identifier: Apache-2.0 */
/* What embed_images writes: a table sorted by name that holds each file's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "image.h"

extern const pf_image embedded[];
extern const size_t embedded_count;

static void images_are_found_by_name(void **state) {
    (void)state;
    assert_int_equal(embedded_count, 3);
    const char *names[] = {"Third", "first.sm_1", "second"};
    const char *bytes[] = {"second image\n", "first image, longer\n", "second image\n"};
    for (size_t i = 0; i < 3; i++) {
        const pf_image *image = pf_image_find(embedded, embedded_count, names[i]);
        assert_ptr_equal(image, &embedded[i]);
        assert_int_equal(image->size, strlen(bytes[i]));
        assert_memory_equal(image->bytes, bytes[i], image->size);
        assert_int_equal((uintptr_t)image->bytes % 64, 0);
    }
    assert_null(pf_image_find(embedded, embedded_count, "first"));
    assert_null(pf_image_find(embedded, 0, "second"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(images_are_found_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
