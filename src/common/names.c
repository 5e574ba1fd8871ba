/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of the public enumerations, and the version that is running. */
#include <pfattn/pfattn.h>

const char *pfattn_backend_string(pfattn_backend backend) {
    switch (backend) {
    case PFATTN_BACKEND_AUTO:
        return "auto";
    case PFATTN_BACKEND_REF:
        return "ref";
    case PFATTN_BACKEND_CUDA:
        return "cuda";
    case PFATTN_BACKEND_HIP:
        return "hip";
    }
    return "unknown";
}

const char *pfattn_dtype_string(pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_NONE:
        return "none";
    case PFATTN_DTYPE_F16:
        return "f16";
    case PFATTN_DTYPE_BF16:
        return "bf16";
    case PFATTN_DTYPE_F32:
        return "f32";
    case PFATTN_DTYPE_F64:
        return "f64";
    case PFATTN_DTYPE_E5M2:
        return "e5m2";
    case PFATTN_DTYPE_U8:
        return "u8";
    }
    return "unknown";
}

size_t pfattn_dtype_size(pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_NONE:
        return 0;
    case PFATTN_DTYPE_F16:
    case PFATTN_DTYPE_BF16:
        return 2;
    case PFATTN_DTYPE_F32:
        return 4;
    case PFATTN_DTYPE_F64:
        return 8;
    case PFATTN_DTYPE_E5M2:
    case PFATTN_DTYPE_U8:
        return 1;
    }
    return 0;
}

int pfattn_version(void) {
    return PFATTN_VERSION_MAJOR * 10000 + PFATTN_VERSION_MINOR * 100 + PFATTN_VERSION_PATCH;
}

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *pfattn_version_string(void) {
    return VERSION_TEXT(PFATTN_VERSION_MAJOR, PFATTN_VERSION_MINOR, PFATTN_VERSION_PATCH);
}
