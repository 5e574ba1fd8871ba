/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_hip.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hip/driver.h"

#define API __attribute__((visibility("default")))

static fake_hip fake = {.device_count = 1, .arch = "gfx90a:sramecc+:xnack-"};

/* What a module and a function handle point to. */
typedef struct module {
    const void *image;
} module;

typedef struct function {
    const module *module;
    char name[64];
} function;

API fake_hip *fake_hip_control(void);
fake_hip *fake_hip_control(void) {
    return &fake;
}

/* The prototypes of the functions below, from the table that the library fills. */
#define X(result, name, parameters) API result name parameters;
PF_HIP_REQUIRED(X)
PF_HIP_OPTIONAL(X)
#undef X

static pf_hip_error outcome(const char *call) {
    if (fake.fail_call == NULL || strcmp(fake.fail_call, call) != 0 || fake.fail_after-- > 0) {
        return PF_HIP_SUCCESS;
    }
    return (pf_hip_error)fake.fail_result;
}

#define FAIL_HERE                                                                                  \
    do {                                                                                           \
        pf_hip_error error = outcome(__func__);                                                    \
        if (error != PF_HIP_SUCCESS) {                                                             \
            return error;                                                                          \
        }                                                                                          \
    } while (0)

/* ---- devices ------------------------------------------------------------------------------- */

pf_hip_error hipInit(unsigned flags) {
    FAIL_HERE;
    return flags == 0 ? PF_HIP_SUCCESS : PF_HIP_UNKNOWN;
}

pf_hip_error hipRuntimeGetVersion(int *version) {
    *version = 60342134;
    return PF_HIP_SUCCESS;
}

const char *hipGetErrorName(pf_hip_error error) {
    return error == PF_HIP_OUT_OF_MEMORY ? "hipErrorOutOfMemory" : "hipErrorOfTheFake";
}

const char *hipGetErrorString(pf_hip_error error) {
    (void)error;
    return "as the fake library was told";
}

pf_hip_error hipGetDeviceCount(int *count) {
    FAIL_HERE;
    *count = fake.device_count;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipDeviceGetName(char *name, int length, int device) {
    FAIL_HERE;
    strncpy(name, "Fake Instinct", (size_t)length);
    return device < fake.device_count ? PF_HIP_SUCCESS : PF_HIP_INVALID_DEVICE;
}

pf_hip_error hipDeviceGetAttribute(int *value, int attribute, int device) {
    FAIL_HERE;
    *value = attribute == PF_HIP_MULTIPROCESSOR_COUNT ? 104
             : attribute == PF_HIP_SHARED_PER_BLOCK   ? 65536
                                                      : -1;
    return device < fake.device_count ? PF_HIP_SUCCESS : PF_HIP_INVALID_DEVICE;
}

pf_hip_error hipDeviceTotalMem(size_t *bytes, int device) {
    FAIL_HERE;
    *bytes = (size_t)64 << 30;
    return device < fake.device_count ? PF_HIP_SUCCESS : PF_HIP_INVALID_DEVICE;
}

pf_hip_error hipGetDevicePropertiesR0600(void *properties, int device) {
    FAIL_HERE;
    (void)device;
    strcpy((char *)properties + PF_HIP_ARCH_R0600, fake.arch);
    return PF_HIP_SUCCESS;
}

pf_hip_error hipGetDeviceProperties(void *properties, int device) {
    FAIL_HERE;
    (void)device;
    strcpy((char *)properties + PF_HIP_ARCH_R0000, fake.arch);
    return PF_HIP_SUCCESS;
}

pf_hip_error hipGetDevice(int *device) {
    FAIL_HERE;
    *device = fake.current_device;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipSetDevice(int device) {
    FAIL_HERE;
    fake.current_device = device;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipDeviceSynchronize(void) {
    FAIL_HERE;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipThreadExchangeStreamCaptureMode(int *mode) {
    FAIL_HERE;
    *mode = *mode == PF_HIP_CAPTURE_RELAXED ? 0 : PF_HIP_CAPTURE_RELAXED;
    return PF_HIP_SUCCESS;
}

/* ---- modules and launches ------------------------------------------------------------------ */

pf_hip_error hipModuleLoadData(pf_hip_handle *to, const void *image) {
    FAIL_HERE;
    module *made = malloc(sizeof *made);
    made->image = image;
    *to = made;
    fake.modules++;
    fake.loads++;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipModuleUnload(pf_hip_handle handle) {
    free(handle);
    fake.modules--;
    return PF_HIP_SUCCESS;
}

/* Functions live as long as the process. */
pf_hip_error hipModuleGetFunction(pf_hip_handle *to, pf_hip_handle handle, const char *name) {
    static function made[512];
    static int count;
    FAIL_HERE;
    function *f = &made[count++ % 512];
    f->module = handle;
    strncpy(f->name, name, sizeof f->name - 1);
    *to = f;
    return PF_HIP_SUCCESS;
}

static fake_launch *record(const char *kernel, void *stream) {
    fake_launch *launch = &fake.launches[fake.launch_count++ % FAKE_LAUNCHES];
    memset(launch, 0, sizeof *launch);
    launch->kernel = kernel;
    launch->stream = stream;
    launch->device = fake.current_device;
    return launch;
}

pf_hip_error hipModuleLaunchKernel(pf_hip_handle handle, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, pf_hip_handle stream,
                                   void **parameters, void **extra) {
    FAIL_HERE;
    (void)extra;
    const function *f = handle;
    fake_launch *launch = record(f->name, stream);
    bool merge = strcmp(f->name, "pf_merge") == 0;
    launch->image = f->module->image;
    memcpy(launch->grid, (unsigned[]){grid_x, grid_y, grid_z}, sizeof launch->grid);
    memcpy(launch->block, (unsigned[]){block_x, block_y, block_z}, sizeof launch->block);
    launch->shared = shared_bytes;
    memcpy(&launch->args, parameters[0],
           merge ? sizeof launch->args.merge : sizeof launch->args.attention);
    return PF_HIP_SUCCESS;
}

/* ---- memory and events --------------------------------------------------------------------- */

pf_hip_error hipMalloc(void **memory, size_t bytes) {
    FAIL_HERE;
    *memory = malloc(bytes);
    fake.allocations++;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipFree(void *memory) {
    FAIL_HERE;
    free(memory);
    fake.allocations--;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipMemcpyHtoD(void *to, void *from, size_t bytes) {
    FAIL_HERE;
    memcpy(to, from, bytes);
    return PF_HIP_SUCCESS;
}

pf_hip_error hipMemcpyDtoH(void *to, void *from, size_t bytes) {
    FAIL_HERE;
    memcpy(to, from, bytes);
    return PF_HIP_SUCCESS;
}

pf_hip_error hipEventCreate(pf_hip_handle *event) {
    FAIL_HERE;
    *event = malloc(1);
    fake.events++;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipEventDestroy(pf_hip_handle event) {
    free(event);
    fake.events--;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipEventRecord(pf_hip_handle event, pf_hip_handle stream) {
    FAIL_HERE;
    (void)event;
    (void)stream;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipEventSynchronize(pf_hip_handle event) {
    FAIL_HERE;
    (void)event;
    return PF_HIP_SUCCESS;
}

pf_hip_error hipEventElapsedTime(float *milliseconds, pf_hip_handle start, pf_hip_handle stop) {
    FAIL_HERE;
    (void)start;
    (void)stop;
    *milliseconds = 2.5f;
    return PF_HIP_SUCCESS;
}
