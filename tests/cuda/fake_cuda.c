/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Built with -Dfunction=another_name, the library lacks that function. */

typedef struct fake_context {
    int device;
} fake_context;

typedef struct fake_function {
    char name[64];
    const void *image;
    int device;
    int shared_limit;
} fake_function;

enum { MAX_FUNCTIONS = 16 };

typedef struct fake_module {
    const void *image;
    int device;
    int function_count;
    fake_function functions[MAX_FUNCTIONS];
} fake_module;

static fake_cuda fake = {
    .version = 13000,
    .device_count = 1,
    .capability = {90, 80, 75, 120},
    .multiprocessors = 132,
    .shared_bytes = 232448,
};
static bool initialised;
static fake_context contexts[FAKE_DEVICES] = {{0}, {1}, {2}, {3}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local fake_context *stack[16];
static _Thread_local int depth;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

fake_cuda *fake_cuda_control(void);

fake_cuda *fake_cuda_control(void) {
    return &fake;
}

/* Contexts current in this thread, for the tests of balance. */
int fake_cuda_depth(void);

int fake_cuda_depth(void) {
    return depth;
}

static int environment_number(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value != NULL ? atoi(value) : otherwise;
}

__attribute__((constructor)) static void configure(void) {
    static char fail[64];
    fake.version = environment_number("FAKE_CUDA_VERSION", fake.version);
    fake.device_count = environment_number("FAKE_CUDA_DEVICES", fake.device_count);
    fake.capability[0] = environment_number("FAKE_CUDA_CAPABILITY", fake.capability[0]);
    const char *value = getenv("FAKE_CUDA_FAIL");
    if (value != NULL) {
        snprintf(fail, sizeof fail, "%s", value);
        char *equals = strchr(fail, '=');
        fake.fail_result = equals != NULL ? (CUresult)atoi(equals + 1) : CUDA_ERROR_UNKNOWN;
        if (equals != NULL) {
            *equals = '\0';
        }
        fake.fail_call = fail;
    }
}

/* Record a call; what it is told to fail with, else whether the driver is initialised. */
static CUresult enter(const char *name) {
    pthread_mutex_lock(&lock);
    if (fake.call_count < FAKE_CALLS) {
        fake.calls[fake.call_count++] = name;
    }
    CUresult result = CUDA_SUCCESS;
    if (fake.fail_call != NULL && strcmp(fake.fail_call, name) == 0 && fake.fail_after-- <= 0) {
        result = fake.fail_result;
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS && !initialised && strcmp(name, "cuInit") != 0) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    }
    return result;
}

#define ENTER(name)                                                                                \
    do {                                                                                           \
        CUresult entered = enter(name);                                                            \
        if (entered != CUDA_SUCCESS) {                                                             \
            return entered;                                                                        \
        }                                                                                          \
    } while (0)

#define NEED(condition, error)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return error;                                                                          \
        }                                                                                          \
    } while (0)

#define NEED_CONTEXT NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT)

/* What the real driver forbids while a capture is under way. */
static CUresult check_capture(void) {
    if (fake.capturing && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        fake.capture_broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

#define NEED_NO_CAPTURE NEED(check_capture() == CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)

/* ---- start, errors, devices ---------------------------------------------------------------- */

CUresult cuInit(unsigned flags) {
    ENTER("cuInit");
    NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
    initialised = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER("cuDriverGetVersion");
    *version = fake.version;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    static const struct {
        CUresult error;
        const char *name;
    } names[] = {
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].error == error) {
            *text = names[i].name;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    const char *name;
    NEED(cuGetErrorName(error, &name) == CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
    *text = "as the fake driver was told";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER("cuDeviceGetCount");
    *count = fake.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER("cuDeviceGet");
    NEED(ordinal >= 0 && ordinal < fake.device_count, CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER("cuDeviceGetName");
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER("cuDeviceGetAttribute");
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = fake.capability[device] / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = fake.capability[device] % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = fake.multiprocessors;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = fake.shared_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER("cuDeviceTotalMem");
    NEED(device < fake.device_count, CUDA_ERROR_INVALID_DEVICE);
    *bytes = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------ */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER("cuDevicePrimaryCtxRetain");
    pthread_mutex_lock(&lock);
    fake.retained[device]++;
    pthread_mutex_unlock(&lock);
    *context = (CUcontext)&contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER("cuDevicePrimaryCtxRelease");
    pthread_mutex_lock(&lock);
    fake.retained[device]--;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    ENTER("cuCtxPushCurrent");
    NEED(depth < 16, CUDA_ERROR_INVALID_VALUE);
    stack[depth++] = (fake_context *)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    ENTER("cuCtxPopCurrent");
    NEED_CONTEXT;
    *context = (CUcontext)stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    ENTER("cuCtxSynchronize");
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER("cuThreadExchangeStreamCaptureMode");
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- modules ------------------------------------------------------------------------------- */

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned option_count,
                            CUjit_option *options, void **values) {
    CUresult result = enter("cuModuleLoadDataEx");
    if (result != CUDA_SUCCESS) {
        for (unsigned i = 0; i < option_count; i++) {
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
                strcpy(values[i], "fake ptxas says no");
            }
        }
        return result;
    }
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    fake_module *made = calloc(1, sizeof *made);
    NEED(made != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    made->image = image;
    made->device = stack[depth - 1]->device;
    pthread_mutex_lock(&lock);
    fake.modules++;
    pthread_mutex_unlock(&lock);
    *module = (CUmodule)made;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER("cuModuleUnload");
    NEED_CONTEXT;
    free(module);
    pthread_mutex_lock(&lock);
    fake.modules--;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER("cuModuleGetFunction");
    NEED_CONTEXT;
    fake_module *m = (fake_module *)module;
    NEED(m->function_count < MAX_FUNCTIONS, CUDA_ERROR_NOT_FOUND);
    fake_function *f = &m->functions[m->function_count++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->image = m->image;
    f->device = m->device;
    f->shared_limit = 48 * 1024;
    *function = (CUfunction)f;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER("cuFuncSetAttribute");
    NEED(attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE);
    NEED(value <= fake.shared_bytes, CUDA_ERROR_INVALID_VALUE);
    ((fake_function *)function)->shared_limit = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
    ENTER("cuFuncLoad");
    NEED(function != NULL, CUDA_ERROR_INVALID_HANDLE);
    NEED_NO_CAPTURE;
    return CUDA_SUCCESS;
}

/* ---- work ---------------------------------------------------------------------------------- */

/* What the fake's own maps begin with. */
typedef struct fake_map {
    unsigned mark;
    int index; /* the number of their encode */
    uint64_t told;
    uint64_t address;
} fake_map;
static const unsigned map_mark = 0x70666d61;

static uint64_t mix(uint64_t sum, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    }
    return sum;
}

/* Of all but the address. */
static uint64_t checksum(const fake_encode *e) {
    const uint64_t words[] = {(uint64_t)e->type, e->rank, (uint64_t)e->swizzle,
                              (uint64_t)e->promotion, (uint64_t)e->fill};
    uint64_t sum = mix(0xcbf29ce484222325, words, sizeof words);
    sum = mix(sum, e->extent, sizeof e->extent);
    sum = mix(sum, e->stride, sizeof e->stride);
    return mix(sum, e->box, sizeof e->box);
}

static void copy_arguments(fake_launch *launch, void **parameters) {
    if (strcmp(launch->kernel, "pf_merge") == 0 || strcmp(launch->kernel, "pf_narrow") == 0) {
        memcpy(&launch->args.merge, parameters[0], sizeof launch->args.merge);
        return;
    }
    if (strcmp(launch->kernel, "pf_widen") == 0) {
        memcpy(&launch->args.widen, parameters[0], sizeof launch->args.widen);
        return;
    }
    memcpy(&launch->args.attention, parameters[0], sizeof launch->args.attention);
    for (int i = 0; i < FAKE_MAPS; i++) {
        fake_map map;
        memcpy(&map, (const CUtensorMap *)parameters[1] + i, sizeof map);
        launch->map[i] = map.mark == map_mark ? map.index : -1;
        launch->told[i] =
            map.mark == map_mark ? mix(map.told, &map.address, sizeof map.address) : 0;
    }
}

/* Whether a kernel can be launched so in the current context. */
static CUresult check_launch(const fake_function *f, unsigned grid, unsigned block,
                             unsigned shared) {
    NEED(f != NULL && f->device == stack[depth - 1]->device, CUDA_ERROR_INVALID_HANDLE);
    NEED(grid > 0 && grid <= 0x7fffffff && block > 0 && block <= 1024, CUDA_ERROR_INVALID_VALUE);
    NEED((int)shared <= f->shared_limit, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static void record(const fake_launch *launch) {
    pthread_mutex_lock(&lock);
    if (fake.launch_count < FAKE_LAUNCHES) {
        fake.launches[fake.launch_count++] = *launch;
    }
    pthread_mutex_unlock(&lock);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra) {
    ENTER("cuLaunchKernel");
    NEED_CONTEXT;
    const fake_function *f = (const fake_function *)function;
    NEED(extra == NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = check_launch(f, grid_x, block_x, shared);
    NEED(result == CUDA_SUCCESS, result);
    fake_launch launch = {.kernel = f->name,
                          .image = f->image,
                          .grid = {grid_x, grid_y, grid_z},
                          .block = {block_x, block_y, block_z},
                          .shared = shared,
                          .stream = stream,
                          .device = f->device};
    copy_arguments(&launch, parameters);
    record(&launch);
    return CUDA_SUCCESS;
}

/* ---- graphs, all in one line --------------------------------------------------------------- */

enum { GRAPH_NODES = 16 };

typedef struct fake_node {
    int index;
    fake_launch launch;
} fake_node;

typedef struct fake_graph {
    int count;
    fake_node node[GRAPH_NODES];
} fake_graph;

static void hold(int *held, int change) {
    pthread_mutex_lock(&lock);
    *held += change;
    pthread_mutex_unlock(&lock);
}

static CUresult fill_node(const CUDA_KERNEL_NODE_PARAMS *p, fake_launch *launch) {
    const fake_function *f = (const fake_function *)p->func;
    NEED(p->extra == NULL && p->kernelParams != NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = check_launch(f, p->gridDimX, p->blockDimX, p->sharedMemBytes);
    NEED(result == CUDA_SUCCESS, result);
    *launch = (fake_launch){.kernel = f->name,
                            .image = f->image,
                            .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                            .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                            .shared = p->sharedMemBytes,
                            .device = f->device};
    copy_arguments(launch, p->kernelParams);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    ENTER("cuStreamIsCapturing");
    NEED_CONTEXT;
    *status = fake.capturing && stream == fake.captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                        : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    ENTER("cuGraphCreate");
    NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
    *graph = calloc(1, sizeof(fake_graph));
    NEED(*graph != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    hold(&fake.graphs, 1);
    fake.last_graph = *graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS *parameters) {
    ENTER("cuGraphAddKernelNode");
    NEED_CONTEXT;
    fake_graph *g = (fake_graph *)graph;
    NEED(g->count < GRAPH_NODES && count == (g->count > 0), CUDA_ERROR_INVALID_VALUE);
    fake_node *made = &g->node[g->count];
    NEED(count == 0 || (fake_node *)dependencies[0] == made - 1, CUDA_ERROR_INVALID_VALUE);
    CUresult result = fill_node(parameters, &made->launch);
    NEED(result == CUDA_SUCCESS, result);
    made->index = g->count++;
    *node = (CUgraphNode)made;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    ENTER("cuGraphInstantiate");
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    NEED(flags == 0 && ((fake_graph *)graph)->count > 0, CUDA_ERROR_INVALID_VALUE);
    fake_graph *made = malloc(sizeof *made);
    NEED(made != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *made = *(fake_graph *)graph;
    hold(&fake.executables, 1);
    fake.last_executable = made;
    *executable = (CUgraphExec)made;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    ENTER("cuGraphUpload");
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    (void)stream;
    NEED(executable != NULL, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS *parameters) {
    ENTER("cuGraphExecKernelNodeSetParams");
    NEED_CONTEXT;
    return fill_node(parameters,
                     &((fake_graph *)executable)->node[((fake_node *)node)->index].launch);
}

/* On a captured stream it would be a node of the caller's graph, and no kernels. */
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    ENTER("cuGraphLaunch");
    NEED_CONTEXT;
    NEED(!fake.capturing || stream != fake.captured, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const fake_graph *g = (const fake_graph *)executable;
    for (int i = 0; i < g->count; i++) {
        fake_launch launch = g->node[i].launch;
        launch.stream = stream;
        record(&launch);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    ENTER("cuGraphExecDestroy");
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    free(executable);
    hold(&fake.executables, -1);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER("cuGraphDestroy");
    NEED_CONTEXT;
    free(graph);
    hold(&fake.graphs, -1);
    return CUDA_SUCCESS;
}

/* ---- tensor maps --------------------------------------------------------------------------- */

/* What the manual asks of a 2-byte, 128-byte swizzled map. */
static bool encode_is_legal(const fake_encode *e, const cuuint32_t *steps) {
    unsigned size = e->type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    bool legal = e->rank >= 3 && e->rank <= 5 && (size_t)e->address % 16 == 0 &&
                 e->address != NULL && e->box[0] * size <= 128;
    for (unsigned d = 0; d < e->rank && legal; d++) {
        legal = e->extent[d] >= 1 && e->extent[d] <= (cuuint64_t)1 << 32 && e->box[d] >= 1 &&
                e->box[d] <= 256 && steps[d] == 1;
    }
    for (unsigned d = 0; d + 1 < e->rank && legal; d++) {
        legal = e->stride[d] % 16 == 0 && e->stride[d] > 0 && e->stride[d] < (cuuint64_t)1 << 40;
    }
    return legal;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *extent, const cuuint64_t *stride,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    ENTER("cuTensorMapEncodeTiled");
    NEED((size_t)map % 64 == 0 && rank <= 5, CUDA_ERROR_INVALID_VALUE);
    NEED(interleave == CU_TENSOR_MAP_INTERLEAVE_NONE, CUDA_ERROR_INVALID_VALUE);
    fake_encode e = {.type = type,
                     .rank = rank,
                     .address = address,
                     .swizzle = swizzle,
                     .promotion = promotion,
                     .fill = fill};
    memcpy(e.extent, extent, rank * sizeof *extent);
    memcpy(e.stride, stride, (rank - 1) * sizeof *stride);
    memcpy(e.box, box, rank * sizeof *box);
    NEED(encode_is_legal(&e, steps), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    fake_map told = {map_mark, fake.encode_count, checksum(&e), (uint64_t)(size_t)address};
    if (fake.encode_count < FAKE_ENCODES) {
        fake.encodes[fake.encode_count++] = e;
    }
    pthread_mutex_unlock(&lock);
    memset(map, 0, sizeof *map);
    memcpy(map, &told, sizeof told);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
    ENTER("cuTensorMapReplaceAddress");
    fake_map told;
    memcpy(&told, map, sizeof told);
    NEED(told.mark == map_mark && address != NULL && (size_t)address % 16 == 0,
         CUDA_ERROR_INVALID_VALUE);
    told.address = (uint64_t)(size_t)address;
    memcpy(map, &told, sizeof told);
    return CUDA_SUCCESS;
}

/* ---- memory and events --------------------------------------------------------------------- */

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ENTER("cuMemAlloc");
    NEED_CONTEXT;
    NEED_NO_CAPTURE;
    NEED(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    void *memory = malloc(bytes);
    NEED(memory != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    fake.allocations++;
    *address = (CUdeviceptr)(size_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
    ENTER("cuMemFree");
    NEED_CONTEXT;
    free((void *)(size_t)address);
    fake.allocations--;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER("cuMemcpyHtoD");
    NEED_CONTEXT;
    memcpy((void *)(size_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    ENTER("cuMemcpyDtoH");
    NEED_CONTEXT;
    memcpy(to, (const void *)(size_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER("cuEventCreate");
    NEED_CONTEXT;
    NEED(flags == CU_EVENT_DEFAULT, CUDA_ERROR_INVALID_VALUE);
    *event = calloc(1, 1);
    fake.events++;
    return *event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy(CUevent event) {
    ENTER("cuEventDestroy");
    free(event);
    fake.events--;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER("cuEventRecord");
    NEED_CONTEXT;
    NEED(event != NULL && stream == NULL, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER("cuEventSynchronize");
    NEED(event != NULL, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

/* By its first name, which is the one that every driver has. */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop);

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop) {
    ENTER("cuEventElapsedTime");
    NEED(start != NULL && stop != NULL, CUDA_ERROR_INVALID_HANDLE);
    *milliseconds = 2.5f;
    return CUDA_SUCCESS;
}
