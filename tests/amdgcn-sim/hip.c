/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, memory, modules and launches of the HIP module API. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hip_stream.h"

#define DEVICE_MEMORY ((size_t)64 << 30)
#define DRIVER_VERSION 60342134

static _Thread_local hipError_t last_error;
static _Thread_local hipError_t pending;
static _Thread_local int current_device;

hipError_t sim_error(hipError_t error) {
    if (error != hipSuccess)
        last_error = error;
    return error;
}
void sim_pending_set(hipError_t error) {
    pending = error;
}
hipError_t sim_pending_take(void) {
    hipError_t error = pending;
    pending = hipSuccess;
    return error;
}

/* --- devices --- */

static sim_arch arch(void) {
    const char *name = getenv("AMDGCN_SIM_ARCH");
    return name && strncmp(name, "gfx942", 6) == 0 ? SIM_GFX942 : SIM_GFX90A;
}

static bool arch_known(void) {
    const char *name = getenv("AMDGCN_SIM_ARCH");
    if (!name || !*name || strcmp(name, "gfx90a") == 0 || strcmp(name, "gfx942") == 0)
        return true;
    fprintf(stderr, "amdgcn-sim: AMDGCN_SIM_ARCH is '%s'; known are gfx90a and gfx942\n", name);
    return false;
}

/* Several devices of one kind, for tests that look after the current device. */
static int device_count(void) {
    const char *text = getenv("AMDGCN_SIM_DEVICES");
    int count = text ? atoi(text) : 1;
    return count < 0 ? 0 : count;
}

hipError_t hipInit(unsigned flags) {
    if (flags != 0)
        return sim_error(hipErrorInvalidValue);
    return sim_error(arch_known() ? hipSuccess : hipErrorInvalidDevice);
}
hipError_t hipDriverGetVersion(int *version) {
    if (!version)
        return sim_error(hipErrorInvalidValue);
    *version = DRIVER_VERSION;
    return hipSuccess;
}
hipError_t hipRuntimeGetVersion(int *version) {
    return hipDriverGetVersion(version);
}
hipError_t hipGetDeviceCount(int *count) {
    if (!count)
        return sim_error(hipErrorInvalidValue);
    *count = device_count();
    return sim_error(arch_known() ? hipSuccess : hipErrorInvalidDevice);
}

static bool bad_device(int device) {
    return device < 0 || device >= device_count();
}

hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) {
    if (!device || bad_device(ordinal))
        return sim_error(hipErrorInvalidDevice);
    *device = ordinal;
    return hipSuccess;
}
hipError_t hipSetDevice(int device) {
    if (bad_device(device))
        return sim_error(hipErrorInvalidDevice);
    current_device = device;
    return hipSuccess;
}
hipError_t hipGetDevice(int *device) {
    if (!device)
        return sim_error(hipErrorInvalidValue);
    *device = current_device;
    return hipSuccess;
}
hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device) {
    if (!name || length <= 0 || bad_device(device))
        return sim_error(hipErrorInvalidDevice);
    snprintf(name, (size_t)length, "simulated %s", sim_arch_name(arch()));
    return hipSuccess;
}
hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device) {
    if (!bytes || bad_device(device))
        return sim_error(hipErrorInvalidDevice);
    *bytes = DEVICE_MEMORY;
    return hipSuccess;
}

static int compute_units(void) {
    const char *text = getenv("AMDGCN_SIM_UNITS");
    if (text && atoi(text) > 0)
        return atoi(text);
    return arch() == SIM_GFX90A ? 104 : 304;
}

/* Numbers of hipDeviceAttribute_t. */
enum {
    ATTRIBUTE_CLOCK_RATE = 5,
    ATTRIBUTE_L2_SIZE = 19,
    ATTRIBUTE_MAJOR = 23,
    ATTRIBUTE_BLOCK_X = 26,
    ATTRIBUTE_BLOCK_Z = 28,
    ATTRIBUTE_GRID_X = 29,
    ATTRIBUTE_GRID_Z = 31,
    ATTRIBUTE_THREADS_PER_BLOCK = 56,
    ATTRIBUTE_THREADS_PER_CU = 57,
    ATTRIBUTE_BUS_WIDTH = 59,
    ATTRIBUTE_MEMORY_CLOCK = 60,
    ATTRIBUTE_MINOR = 61,
    ATTRIBUTE_CU_COUNT = 63,
    ATTRIBUTE_PCI_BUS = 67,
    ATTRIBUTE_PCI_DEVICE = 68,
    ATTRIBUTE_PCI_DOMAIN = 69,
    ATTRIBUTE_REGISTERS = 71,
    ATTRIBUTE_SHARED_PER_BLOCK = 74,
    ATTRIBUTE_SHARED_OPTIN = 75,
    ATTRIBUTE_SHARED_PER_CU = 76,
    ATTRIBUTE_WARP_SIZE = 87,
    ATTRIBUTE_AMD_SHARED_PER_CU = 10002,
};

static int attribute_value(int attribute, bool *known) {
    bool mi200 = arch() == SIM_GFX90A;
    switch (attribute) {
    case ATTRIBUTE_CLOCK_RATE:
        return mi200 ? 1700000 : 2100000;
    case ATTRIBUTE_L2_SIZE:
        return mi200 ? 8 << 20 : 4 << 20;
    case ATTRIBUTE_MAJOR:
        return 9;
    case ATTRIBUTE_MINOR:
        return mi200 ? 0 : 4;
    case ATTRIBUTE_BLOCK_X:
    case ATTRIBUTE_BLOCK_X + 1:
    case ATTRIBUTE_BLOCK_Z:
    case ATTRIBUTE_THREADS_PER_BLOCK:
        return 1024;
    case ATTRIBUTE_GRID_X:
        return 0x7fffffff;
    case ATTRIBUTE_GRID_X + 1:
    case ATTRIBUTE_GRID_Z:
        return 65536;
    case ATTRIBUTE_THREADS_PER_CU:
        return 2048;
    case ATTRIBUTE_BUS_WIDTH:
        return mi200 ? 4096 : 8192;
    case ATTRIBUTE_MEMORY_CLOCK:
        return mi200 ? 1600000 : 1300000;
    case ATTRIBUTE_CU_COUNT:
        return compute_units();
    case ATTRIBUTE_PCI_BUS:
    case ATTRIBUTE_PCI_DEVICE:
    case ATTRIBUTE_PCI_DOMAIN:
        return 0;
    case ATTRIBUTE_REGISTERS:
    case ATTRIBUTE_SHARED_PER_BLOCK:
    case ATTRIBUTE_SHARED_OPTIN:
    case ATTRIBUTE_SHARED_PER_CU:
    case ATTRIBUTE_AMD_SHARED_PER_CU:
        return 65536;
    case ATTRIBUTE_WARP_SIZE:
        return SIM_LANES;
    default:
        *known = false;
        return 0;
    }
}

hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
    bool known = true;
    if (!value || bad_device(device))
        return sim_error(hipErrorInvalidDevice);
    int x = attribute_value(attribute, &known);
    if (!known)
        return sim_error(hipErrorInvalidValue);
    *value = x;
    return hipSuccess;
}

/* Byte offsets of the fields that are filled, in the two layouts of hipDeviceProp_t. */
struct layout {
    size_t size, memory, shared, registers, warp, threads, dims, grid, clock, major, units,
        threads_per_cu, arch_name, shared_per_cu;
};
static const struct layout layout_r0600 = {1472, 288, 296, 304, 308, 320,  324,
                                           336,  348, 360, 388, 624, 1160, 1416};
static const struct layout layout_r0000 = {792, 256, 264, 272, 276, 280, 284,
                                           296, 308, 328, 336, 344, 396, 376};

static void put(uint8_t *at, size_t offset, uint64_t value, size_t size) {
    memcpy(at + offset, &value, size);
}

static hipError_t properties(uint8_t *p, int device, const struct layout *l) {
    bool known;
    if (!p || bad_device(device))
        return sim_error(hipErrorInvalidDevice);
    memset(p, 0, l->size);
    snprintf((char *)p, 256, "simulated %s", sim_arch_name(arch()));
    put(p, l->memory, DEVICE_MEMORY, 8);
    put(p, l->shared, SIM_LDS_MAX, 8);
    put(p, l->shared_per_cu, SIM_LDS_MAX, 8);
    put(p, l->registers, 65536, 4);
    put(p, l->warp, SIM_LANES, 4);
    put(p, l->threads, 1024, 4);
    for (size_t i = 0; i < 3; i++) {
        put(p, l->dims + 4 * i, 1024, 4);
        put(p, l->grid + 4 * i, i ? 65536 : 0x7fffffff, 4);
    }
    put(p, l->clock, (uint64_t)attribute_value(ATTRIBUTE_CLOCK_RATE, &known), 4);
    put(p, l->major, 9, 4);
    put(p, l->major + 4, (uint64_t)attribute_value(ATTRIBUTE_MINOR, &known), 4);
    put(p, l->units, (uint64_t)compute_units(), 4);
    put(p, l->threads_per_cu, 2048, 4);
    snprintf((char *)p + l->arch_name, 256, "%s:sramecc+:xnack-", sim_arch_name(arch()));
    return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0600(void *p, int device) {
    return properties(p, device, &layout_r0600);
}
hipError_t hipGetDeviceProperties(void *p, int device) {
    return properties(p, device, &layout_r0000);
}

hipError_t hipDeviceSynchronize(void) {
    if (sim_capture_forbids())
        return sim_error(hipErrorStreamCaptureUnsupported);
    return sim_error(sim_pending_take());
}
hipError_t hipPeekAtLastError(void) {
    return last_error;
}
hipError_t hipGetLastError(void) {
    hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}

/* --- errors --- */

static const struct {
    hipError_t error;
    const char *name, *text;
} errors[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration",
     "invalid configuration argument"},
    {hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu",
     "no kernel image is available for execution on the device"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorIllegalState, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources", "out of resources"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const char *hipGetErrorName(hipError_t error) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error)
            return errors[i].name;
    }
    return "hipErrorUnknown";
}
const char *hipGetErrorString(hipError_t error) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error)
            return errors[i].text;
    }
    return "unknown error";
}
hipError_t hipDrvGetErrorName(hipError_t error, const char **name) {
    *name = hipGetErrorName(error);
    return hipSuccess;
}
hipError_t hipDrvGetErrorString(hipError_t error, const char **text) {
    *text = hipGetErrorString(error);
    return hipSuccess;
}

/* --- memory --- */

hipError_t hipMalloc(void **pointer, size_t size) {
    if (!pointer)
        return sim_error(hipErrorInvalidValue);
    if (sim_capture_forbids())
        return sim_error(hipErrorStreamCaptureUnsupported);
    *pointer = NULL;
    if (size == 0)
        return hipSuccess;
    if (size <= DEVICE_MEMORY - sim_memory_used())
        *pointer = sim_memory_alloc(size);
    return sim_error(*pointer ? hipSuccess : hipErrorOutOfMemory);
}
hipError_t hipFree(void *pointer) {
    if (sim_capture_forbids())
        return sim_error(hipErrorStreamCaptureUnsupported);
    if (!pointer || sim_memory_free(pointer))
        return hipSuccess;
    fprintf(stderr, "amdgcn-sim: hipFree of %p, which is no live allocation\n", pointer);
    return sim_error(hipErrorInvalidValue);
}
hipError_t hipHostMalloc(void **pointer, size_t size, unsigned flags) {
    (void)flags;
    return hipMalloc(pointer, size);
}
hipError_t hipHostFree(void *pointer) {
    return hipFree(pointer);
}
hipError_t hipMallocAsync(void **pointer, size_t size, hipStream_t stream) {
    (void)stream;
    return hipMalloc(pointer, size);
}
hipError_t hipFreeAsync(void *pointer, hipStream_t stream) {
    (void)stream;
    return hipFree(pointer);
}
hipError_t hipMemGetInfo(size_t *available, size_t *total) {
    if (!available || !total)
        return sim_error(hipErrorInvalidValue);
    *available = DEVICE_MEMORY - sim_memory_used();
    *total = DEVICE_MEMORY;
    return hipSuccess;
}

static hipError_t copy(void *to, const void *from, size_t size, int kind, hipStream_t stream) {
    struct sim_work work = {.kind = WORK_COPY, .to = to, .from = from, .size = size};
    bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
    bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
    if (size == 0)
        return hipSuccess;
    if (kind < 0 || kind > hipMemcpyDefault || (to_device && !sim_memory_live(to, size)) ||
        (from_device && !sim_memory_live(from, size))) {
        fprintf(stderr,
                "amdgcn-sim: copy of %zu bytes from %p to %p (kind %d) is outside every live "
                "allocation\n",
                size, from, to, kind);
        return sim_error(hipErrorInvalidValue);
    }
    return sim_error(sim_submit(stream, &work));
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, hipStream_t stream) {
    return copy(to, from, size, kind, stream);
}
hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind) {
    if (sim_capture_forbids())
        return sim_error(hipErrorStreamCaptureUnsupported);
    return copy(to, from, size, kind, NULL);
}
hipError_t hipMemcpyHtoD(void *to, void *from, size_t size) {
    return hipMemcpy(to, from, size, hipMemcpyHostToDevice);
}
hipError_t hipMemcpyDtoH(void *to, void *from, size_t size) {
    return hipMemcpy(to, from, size, hipMemcpyDeviceToHost);
}
hipError_t hipMemcpyDtoD(void *to, void *from, size_t size) {
    return hipMemcpy(to, from, size, hipMemcpyDeviceToDevice);
}
hipError_t hipMemcpyHtoDAsync(void *to, void *from, size_t size, hipStream_t stream) {
    return copy(to, from, size, hipMemcpyHostToDevice, stream);
}
hipError_t hipMemcpyDtoHAsync(void *to, void *from, size_t size, hipStream_t stream) {
    return copy(to, from, size, hipMemcpyDeviceToHost, stream);
}
hipError_t hipMemcpyDtoDAsync(void *to, void *from, size_t size, hipStream_t stream) {
    return copy(to, from, size, hipMemcpyDeviceToDevice, stream);
}

static hipError_t set(void *to, uint32_t value, uint32_t width, size_t count, hipStream_t stream) {
    struct sim_work work = {
        .kind = WORK_SET, .to = to, .value = value, .width = width, .size = count};
    if (count == 0)
        return hipSuccess;
    if (!sim_memory_live(to, count * width)) {
        fprintf(stderr, "amdgcn-sim: memset of %zu bytes at %p is outside every live allocation\n",
                count * width, to);
        return sim_error(hipErrorInvalidValue);
    }
    return sim_error(sim_submit(stream, &work));
}
hipError_t hipMemset(void *to, int value, size_t size) {
    return set(to, (uint32_t)value, 1, size, NULL);
}
hipError_t hipMemsetAsync(void *to, int value, size_t size, hipStream_t stream) {
    return set(to, (uint32_t)value, 1, size, stream);
}
hipError_t hipMemsetD8Async(void *to, unsigned char value, size_t count, hipStream_t stream) {
    return set(to, value, 1, count, stream);
}
hipError_t hipMemsetD16Async(void *to, unsigned short value, size_t count, hipStream_t stream) {
    return set(to, value, 2, count, stream);
}
hipError_t hipMemsetD32Async(void *to, int value, size_t count, hipStream_t stream) {
    return set(to, (uint32_t)value, 4, count, stream);
}

/* --- modules --- */

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";

/* The device's code object in an offload bundle, or NULL. */
static const void *bundle_find(const uint8_t *image) {
    uint64_t count, entry[3];
    const uint8_t *at = image + 32;
    memcpy(&count, image + 24, 8);
    for (uint64_t i = 0; i < count; i++) {
        memcpy(entry, at, 24);
        const char *id = (const char *)at + 24;
        const char *name = sim_arch_name(arch());
        size_t length = strlen(name);
        for (uint64_t j = 0; j + length <= entry[2]; j++) {
            if (memcmp(id + j, name, length) == 0)
                return image + entry[0];
        }
        at += 24 + entry[2];
    }
    return NULL;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
    char why[160] = "the offload bundle has no code object for the device";
    bool wrong_arch = true;
    if (!module || !image || !arch_known())
        return sim_error(hipErrorInvalidValue);
    if (memcmp(image, bundle_magic, sizeof(bundle_magic) - 1) == 0)
        image = bundle_find(image);
    *module = image ? sim_module_load(image, arch(), why, sizeof(why), &wrong_arch) : NULL;
    if (*module)
        return hipSuccess;
    fprintf(stderr, "amdgcn-sim: hipModuleLoadData: %s\n", why);
    return sim_error(wrong_arch ? hipErrorNoBinaryForGpu : hipErrorInvalidImage);
}
hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count,
                               void *options, void **values) {
    (void)count, (void)options, (void)values;
    return hipModuleLoadData(module, image);
}
hipError_t hipModuleUnload(hipModule_t module) {
    if (!module)
        return sim_error(hipErrorInvalidHandle);
    sim_module_free(module);
    return hipSuccess;
}
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
    if (!function || !module || !name)
        return sim_error(hipErrorInvalidValue);
    for (size_t i = 0; i < module->nkernels; i++) {
        if (strcmp(module->kernels[i].name, name) == 0) {
            *function = &module->kernels[i];
            return hipSuccess;
        }
    }
    return sim_error(hipErrorNotFound);
}
hipError_t hipModuleGetGlobal(void **pointer, size_t *size, hipModule_t module, const char *name) {
    if (!module || !name)
        return sim_error(hipErrorInvalidValue);
    for (size_t i = 0; i < module->nglobals; i++) {
        if (strcmp(module->globals[i].name, name) != 0)
            continue;
        if (pointer)
            *pointer = (void *)(uintptr_t)module->globals[i].address;
        if (size)
            *size = module->globals[i].size;
        return hipSuccess;
    }
    return sim_error(hipErrorNotFound);
}

enum {
    FUNC_MAX_THREADS,
    FUNC_SHARED,
    FUNC_CONST,
    FUNC_LOCAL,
    FUNC_REGISTERS,
    FUNC_MAX_DYNAMIC_SHARED = 8
};

hipError_t hipFuncSetAttribute(const void *function, int attribute, int value) {
    const struct sim_kernel *k = function;
    if (!k || attribute < 0 || attribute > 9 || value < 0)
        return sim_error(hipErrorInvalidValue);
    if (attribute == FUNC_MAX_DYNAMIC_SHARED && (uint64_t)k->group_size + value > SIM_LDS_MAX)
        return sim_error(hipErrorInvalidValue);
    return hipSuccess;
}
hipError_t hipFuncGetAttribute(int *value, int attribute, hipFunction_t k) {
    if (!value || !k)
        return sim_error(hipErrorInvalidValue);
    switch (attribute) {
    case FUNC_MAX_THREADS:
        *value = (int)k->max_workgroup;
        break;
    case FUNC_SHARED:
        *value = (int)k->group_size;
        break;
    case FUNC_LOCAL:
        *value = (int)k->private_size;
        break;
    case FUNC_REGISTERS:
        *value = (int)((k->rsrc1 & 63) + 1) * 8;
        break;
    case FUNC_CONST:
        *value = 0;
        break;
    case FUNC_MAX_DYNAMIC_SHARED:
        *value = (int)(SIM_LDS_MAX - k->group_size);
        break;
    default:
        return sim_error(hipErrorInvalidValue);
    }
    return hipSuccess;
}

/* --- launches --- */

static void hidden_arg(const struct sim_launch *l, const struct sim_arg *a, uint8_t *to) {
    const char *axis = strrchr(a->kind, '_');
    int i = axis ? axis[1] - 'x' : 0;
    uint64_t value = 0;
    bool per_axis = axis && axis[2] == 0 && i >= 0 && i < 3;
    if (per_axis && strncmp(a->kind, "hidden_block_count", 18) == 0)
        value = l->grid[i];
    else if (per_axis && strncmp(a->kind, "hidden_group_size", 17) == 0)
        value = l->block[i];
    else if (strcmp(a->kind, "hidden_grid_dims") == 0)
        value = l->grid[2] > 1 ? 3 : l->grid[1] > 1 ? 2 : 1;
    else if (strcmp(a->kind, "hidden_private_base") == 0)
        value = SIM_PRIVATE_HI;
    else if (strcmp(a->kind, "hidden_shared_base") == 0)
        value = SIM_SHARED_HI;
    else if (strcmp(a->kind, "hidden_dynamic_lds_size") == 0)
        value = l->dynamic_lds;
    memcpy(to + a->offset, &value, a->size < 8 ? a->size : 8);
}

static bool fill_kernarg(struct sim_launch *l, uint8_t *to, void **params, void **extra) {
    const struct sim_kernel *k = l->kernel;
    const void *block = NULL;
    size_t size = 0, next = 0;
    for (; extra && *extra != HIP_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER)
            block = extra[1];
        else if (*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(size_t *)extra[1];
        else
            return false;
    }
    if ((params && block) || size > k->kernarg_size)
        return false;
    if (block)
        memcpy(to, block, size);
    for (size_t i = 0; i < k->nargs; i++) {
        const struct sim_arg *a = &k->args[i];
        if ((uint64_t)a->offset + a->size > k->kernarg_size)
            return false;
        if (strncmp(a->kind, "hidden_", 7) == 0)
            hidden_arg(l, a, to);
        else if (params)
            memcpy(to + a->offset, params[next++], a->size);
        else if (!block)
            return false;
    }
    return true;
}

/* hsa_kernel_dispatch_packet_t, for kernels that ask for it. */
static void fill_packet(struct sim_launch *l) {
    uint8_t *p = l->packet;
    put(p, 2, 3, 2);
    for (size_t i = 0; i < 3; i++) {
        put(p, 4 + 2 * i, l->block[i], 2);
        put(p, 12 + 4 * i, (uint64_t)l->grid[i] * l->block[i], 4);
    }
    put(p, 24, l->kernel->private_size, 4);
    put(p, 28, l->kernel->group_size + l->dynamic_lds, 4);
    put(p, 32, l->kernel->descriptor, 8);
    put(p, 40, (uint64_t)(uintptr_t)l->kernarg, 8);
}

static hipError_t check_launch(const struct sim_launch *l) {
    uint64_t items = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    uint64_t groups = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    if (items == 0 || groups == 0 || items > l->kernel->max_workgroup)
        return hipErrorInvalidConfiguration;
    if (l->grid[1] > 65536 || l->grid[2] > 65536 ||
        (uint64_t)l->grid[0] * l->block[0] > 0xffffffffu)
        return hipErrorInvalidConfiguration;
    if ((uint64_t)l->kernel->group_size + l->dynamic_lds > SIM_LDS_MAX)
        return hipErrorLaunchOutOfResources;
    return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, hipStream_t stream,
                                 void **params, void **extra) {
    struct sim_work work = {.kind = WORK_LAUNCH,
                            .launch = {.kernel = function,
                                       .grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .dynamic_lds = shared_bytes}};
    if (!function)
        return sim_error(hipErrorInvalidHandle);
    hipError_t error = check_launch(&work.launch);
    if (error != hipSuccess)
        return sim_error(error);
    uint8_t *kernarg = sim_memory_alloc(function->kernarg_size ? function->kernarg_size : 1);
    if (!kernarg)
        return sim_error(hipErrorOutOfMemory);
    work.launch.kernarg = kernarg;
    fill_packet(&work.launch);
    if (!fill_kernarg(&work.launch, kernarg, params, extra)) {
        sim_memory_free(kernarg);
        return sim_error(hipErrorInvalidValue);
    }
    return sim_error(sim_submit(stream, &work));
}
