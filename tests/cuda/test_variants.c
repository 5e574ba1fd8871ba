/* SPDX-License-Identifier: Apache-2.0 */
/* That the build compiles the variants of the tuning table, and that a device launches the one that
 * its tuning file names. */
#include "fake_cuda_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/device.h"
#include "cuda/tuning.h"

static fake_cuda *fake;

static bool has_image(int target, int op, pfattn_dtype element, int hd, bool general, int variant) {
    char key[64];
    pf_image_key(target, pf_image_number(op, element, hd, general, variant), key, sizeof key);
    return pf_image_find(pf_cuda_images, pf_cuda_images_count, key) != NULL;
}

/* The build compiles an image for every row of a variant, in f16 and bf16, and no other. */
static void variants_are_compiled(void **state) {
    (void)state;
    int found = 0;
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        bool general = t->variant >= PF_VARIANT_GENERAL;
        int variant = t->variant - (general ? PF_VARIANT_GENERAL : 0);
        if (variant > 0) {
            assert_true(
                has_image(t->target, t->op, PFATTN_DTYPE_F16, t->head_dim, general, variant));
            assert_true(
                has_image(t->target, t->op, PFATTN_DTYPE_BF16, t->head_dim, general, variant));
            found += 2;
        }
    }
    for (size_t i = 0; i < pf_cuda_images_count; i++) {
        found -= strstr(pf_cuda_images[i].name, ".v") != NULL;
    }
    assert_int_equal(found, 0);
}

/* A name of its own for each variant of a kernel: the tuning file goes by it. The rows of general
 * images are none of its business. */
static void variants_have_names(void **state) {
    (void)state;
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        for (int j = 0; j < i; j++) {
            const pf_tuning *a = &pf_cuda_tuning[i], *b = &pf_cuda_tuning[j];
            if (a->variant >= PF_VARIANT_GENERAL || b->variant >= PF_VARIANT_GENERAL) {
                continue;
            }
            char name[PF_VARIANT_NAME], other[PF_VARIANT_NAME];
            pf_variant_name(a, name);
            pf_variant_name(b, other);
            assert_false(a->target == b->target && a->op == b->op && a->head_dim == b->head_dim &&
                         a->element_class == b->element_class && strcmp(name, other) == 0);
        }
    }
}

/* A tuning file written for the test, named by PFATTN_TUNING. */
static void write_tuning(const char *device, const char *entry) {
    char path[] = "/tmp/pfattn-cuda-tuning-XXXXXX";
    int descriptor = mkstemp(path);
    FILE *file = fdopen(descriptor, "w");
    assert_non_null(file);
    fprintf(file, "pfattn tuning 1\ndevice cuda %s %s\n%s\n", pfattn_version_string(), device,
            entry);
    assert_int_equal(fclose(file), 0);
    setenv("PFATTN_TUNING", path, 1);
}

static void remove_tuning(void) {
    unlink(getenv("PFATTN_TUNING"));
    setenv("PFATTN_TUNING", "none", 1);
}

/* 300 queries are 2 tiles of 256 in the variant for short sequences, and as many of 192 in row 0,
 * which the tuning file names; 8 heads of each. The file is read when the handle is made, and only
 * then. */
static void tuned_launch(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 300, 500, 64, 64});
    write_tuning("Fake GPU 0", "sm_90a forward f16 64 full any 192x128x64-s2-b1");
    pfattn_handle handle = fake_handle(0);
    remove_tuning();
    pfattn_handle untuned = fake_handle(0);
    fake_reset(fake);
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_int_equal(fake->launch_count, 1);
    assert_string_equal(fake_image_name(fake->launches[0].image), "sm_90a/forward.f16.64.plain");
    assert_int_equal(fake->launches[0].args.attention.work_count, 8 * 2);
    assert_int_equal(fake->encodes[fake->launches[0].map[PF_OPERAND_Q]].box[1], 192);
    assert_success(pfattn_forward(untuned, &a, NULL, 0, NULL));
    assert_string_equal(fake_image_name(fake->launches[1].image), "sm_90a/forward.f16.64.plain.v1");
    assert_int_equal(fake->encodes[fake->launches[1].map[PF_OPERAND_Q]].box[1], 256);
    /* As `pfattn tune` changes it. */
    *untuned->backend->capabilities(untuned->device)->tuned =
        *handle->backend->capabilities(handle->device)->tuned;
    pf_calls_forget(&untuned->calls);
    assert_success(pfattn_forward(untuned, &a, NULL, 0, NULL));
    assert_string_equal(fake_image_name(fake->launches[2].image), "sm_90a/forward.f16.64.plain");
    pfattn_destroy(handle);
    pfattn_destroy(untuned);
    assert_int_equal(fake->modules, 0);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_are_compiled),
        cmocka_unit_test(variants_have_names),
        cmocka_unit_test(tuned_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
