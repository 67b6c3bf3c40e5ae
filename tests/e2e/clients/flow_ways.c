// flow_ways.c: every way of having a GPU compute, copy or set within its memory, once each.
//
// A way is a name of the driver's and the form of its arguments. Names are looked up as programs do
// that know only some drivers; each is called in a thread of its own, which has its own stream, so
// that one which is held back holds back no other.
#define _GNU_SOURCE
#include "flow.h"

#include <dlfcn.h>
#include <stddef.h>

enum form {
    KERNEL,
    COOPERATIVE,
    CONFIG,
    DEVICES,
    OLD,
    OLD_GRID,
    OLD_GRID_ASYNC,
    GRAPH,
    LINEAR,
    LINEAR_ASYNC,
    PEER,
    PEER_ASYNC,
    SHAPE_2D,
    SHAPE_2D_ASYNC,
    SHAPE_3D,
    SHAPE_3D_ASYNC,
    ARRAYS,
    TO_ARRAY,
    FROM_ARRAY,
    SET,
    SET_ASYNC,
    SET_2D,
    SET_2D_ASYNC,
};

#define SETS(bits)                                                                                 \
    {"cuMemsetD" bits "_v2", SET}, {"cuMemsetD" bits "_v2_ptds", SET},                             \
        {"cuMemsetD" bits "Async", SET_ASYNC}, {"cuMemsetD" bits "Async_ptsz", SET_ASYNC},         \
        {"cuMemsetD2D" bits "_v2", SET_2D}, {"cuMemsetD2D" bits "_v2_ptds", SET_2D},               \
        {"cuMemsetD2D" bits "Async", SET_2D_ASYNC}, {                                              \
        "cuMemsetD2D" bits "Async_ptsz", SET_2D_ASYNC                                              \
    }

static const struct way {
    const char *name;
    enum form form;
} ways[] = {
    {"cuLaunchKernel", KERNEL},
    {"cuLaunchKernel_ptsz", KERNEL},
    {"cuLaunchCooperativeKernel", COOPERATIVE},
    {"cuLaunchCooperativeKernel_ptsz", COOPERATIVE},
    {"cuLaunchKernelEx", CONFIG},
    {"cuLaunchKernelEx_ptsz", CONFIG},
    {"cuLaunchCooperativeKernelMultiDevice", DEVICES},
    {"cuLaunch", OLD},
    {"cuLaunchGrid", OLD_GRID},
    {"cuLaunchGridAsync", OLD_GRID_ASYNC},
    {"cuGraphLaunch", GRAPH},
    {"cuGraphLaunch_ptsz", GRAPH},
    {"cuMemcpy", LINEAR},
    {"cuMemcpy_ptds", LINEAR},
    {"cuMemcpyAsync", LINEAR_ASYNC},
    {"cuMemcpyAsync_ptsz", LINEAR_ASYNC},
    {"cuMemcpyDtoD_v2", LINEAR},
    {"cuMemcpyDtoD_v2_ptds", LINEAR},
    {"cuMemcpyDtoDAsync_v2", LINEAR_ASYNC},
    {"cuMemcpyDtoDAsync_v2_ptsz", LINEAR_ASYNC},
    {"cuMemcpyPeer", PEER},
    {"cuMemcpyPeer_ptds", PEER},
    {"cuMemcpyPeerAsync", PEER_ASYNC},
    {"cuMemcpyPeerAsync_ptsz", PEER_ASYNC},
    {"cuMemcpy2D_v2", SHAPE_2D},
    {"cuMemcpy2D_v2_ptds", SHAPE_2D},
    {"cuMemcpy2DUnaligned_v2", SHAPE_2D},
    {"cuMemcpy2DUnaligned_v2_ptds", SHAPE_2D},
    {"cuMemcpy2DAsync_v2", SHAPE_2D_ASYNC},
    {"cuMemcpy2DAsync_v2_ptsz", SHAPE_2D_ASYNC},
    {"cuMemcpy3D_v2", SHAPE_3D},
    {"cuMemcpy3D_v2_ptds", SHAPE_3D},
    {"cuMemcpy3DAsync_v2", SHAPE_3D_ASYNC},
    {"cuMemcpy3DAsync_v2_ptsz", SHAPE_3D_ASYNC},
    {"cuMemcpy3DPeer", SHAPE_3D},
    {"cuMemcpy3DPeer_ptds", SHAPE_3D},
    {"cuMemcpy3DPeerAsync", SHAPE_3D_ASYNC},
    {"cuMemcpy3DPeerAsync_ptsz", SHAPE_3D_ASYNC},
    {"cuMemcpyAtoA_v2", ARRAYS},
    {"cuMemcpyAtoA_v2_ptds", ARRAYS},
    {"cuMemcpyDtoA_v2", TO_ARRAY},
    {"cuMemcpyDtoA_v2_ptds", TO_ARRAY},
    {"cuMemcpyAtoD_v2", FROM_ARRAY},
    {"cuMemcpyAtoD_v2_ptds", FROM_ARRAY},
    SETS("8"),
    SETS("16"),
    SETS("32"),
};
enum { WAYS = sizeof(ways) / sizeof(*ways), BYTES = 64 };

// What a thread works with.
static struct part {
    const struct way *way;
    pthread_t thread;
    CUstream stream;
    int code;
    bool through;
} parts[WAYS];
static uint64_t cost;
static CUdeviceptr from, to;
static CUarray arrays[2];
static CUgraphExec exec;

typedef CUresult any_fn();

// Arguments as each form has them. What is passed for a narrower number is an int in any case.
static CUresult call_launch(const struct part *part, any_fn *fn) {
    CUfunction spin = places[0].spin;
    CUstream stream = part->stream;
    void *params[] = {&cost}, *none = NULL;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    CUDA_LAUNCH_PARAMS devices = {spin, 1, 1, 1, 1, 1, 1, 0, stream, params};
    switch (part->way->form) {
    case KERNEL:
        return fn(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, none);
    case COOPERATIVE:
        return fn(spin, 1, 1, 1, 1, 1, 1, 0, stream, params);
    case CONFIG:
        return fn(&config, spin, params, none);
    case DEVICES:
        return fn(&devices, 1, 0);
    case OLD:
        return fn(spin);
    case OLD_GRID:
        return fn(spin, 1, 1);
    case OLD_GRID_ASYNC:
        return fn(spin, 1, 1, stream);
    case GRAPH:
        return fn(exec, stream);
    default:
        return CUDA_ERROR_NOT_FOUND;
    }
}

static CUresult call_shape(const struct part *part, any_fn *fn) {
    CUcontext context = places[0].context;
    CUstream stream = part->stream;
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = BYTES,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = BYTES,
                          .WidthInBytes = BYTES,
                          .Height = 1};
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = BYTES,
                          .srcHeight = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = BYTES,
                          .dstHeight = 1,
                          .WidthInBytes = BYTES,
                          .Height = 1,
                          .Depth = 1};
    bool peer = part->way->name[8] == '3' && part->way->name[10] == 'P';
    if (peer)
        deep.reserved0 = deep.reserved1 = context;
    switch (part->way->form) {
    case SHAPE_2D:
        return fn(&flat);
    case SHAPE_2D_ASYNC:
        return fn(&flat, stream);
    case SHAPE_3D:
        return fn(&deep);
    case SHAPE_3D_ASYNC:
        return fn(&deep, stream);
    default:
        return CUDA_ERROR_NOT_FOUND;
    }
}

static CUresult call_linear(const struct part *part, any_fn *fn) {
    CUcontext context = places[0].context;
    CUstream stream = part->stream;
    size_t bytes = BYTES, few = 4, pitch = BYTES, one = 1, zero = 0;
    switch (part->way->form) {
    case LINEAR:
        return fn(to, from, bytes);
    case LINEAR_ASYNC:
        return fn(to, from, bytes, stream);
    case PEER:
        return fn(to, context, from, context, bytes);
    case PEER_ASYNC:
        return fn(to, context, from, context, bytes, stream);
    case ARRAYS:
        return fn(arrays[1], zero, arrays[0], zero, bytes);
    case TO_ARRAY:
        return fn(arrays[0], zero, from, bytes);
    case FROM_ARRAY:
        return fn(to, arrays[0], zero, bytes);
    case SET:
        return fn(to, 1, few);
    case SET_ASYNC:
        return fn(to, 1, few, stream);
    case SET_2D:
        return fn(to, pitch, 1, few, one);
    case SET_2D_ASYNC:
        return fn(to, pitch, 1, few, one, stream);
    default:
        return CUDA_ERROR_NOT_FOUND;
    }
}

static CUresult call(const struct part *part, any_fn *fn) {
    enum form form = part->way->form;
    if (form <= GRAPH)
        return call_launch(part, fn);
    return form >= SHAPE_2D && form <= SHAPE_3D_ASYNC ? call_shape(part, fn)
                                                      : call_linear(part, fn);
}

static void *go(void *argument) {
    struct part *part = argument;
    any_fn *fn = (any_fn *)dlsym(RTLD_DEFAULT, part->way->name);
    CUresult code = fn ? cuCtxSetCurrent(places[0].context) : CUDA_ERROR_NOT_FOUND;
    if (!code)
        code = cuStreamCreate(&part->stream, CU_STREAM_NON_BLOCKING);
    if (!code)
        code = call(part, fn);
    part->code = (int)code;
    __atomic_store_n(&part->through, true, __ATOMIC_RELEASE);
    return NULL;
}

// All that takes the GPU and is not to be held back is done here, before.
static CUresult prepare(void) {
    CUDA_ARRAY_DESCRIPTOR line = {.Width = BYTES, .Format = CU_AD_FORMAT_UNSIGNED_INT8};
    CUstream stream;
    CUgraph graph;
    line.NumChannels = 1;
    CUresult code = cuMemAlloc_v2(&from, BYTES);
    if (!code)
        code = cuMemAlloc_v2(&to, BYTES);
    for (int i = 0; i < 2 && !code; i++)
        code = cuArrayCreate_v2(&arrays[i], &line);
    if (!code)
        code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!code)
        code = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (!code)
        code = flow_spin(&places[0], stream, false, cost);
    if (!code)
        code = cuStreamEndCapture(stream, &graph);
    if (!code)
        code = cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (!code)
        code = cuFuncSetBlockShape(places[0].spin, 1, 1, 1);
    if (!code)
        code = cuParamSetSize(places[0].spin, sizeof cost);
    return code ? code : cuParamSetv(places[0].spin, 0, &cost, sizeof cost);
}

int flow_ways_begin(uint64_t cost_ns) {
    cost = cost_ns;
    if (prepare())
        return -1;
    for (int i = 0; i < WAYS; i++) {
        parts[i].way = &ways[i];
        if (pthread_create(&parts[i].thread, NULL, go, &parts[i]))
            return -1;
    }
    return WAYS;
}

int flow_ways_through(const char **refused, int *code) {
    int through = 0;
    for (int i = 0; i < WAYS; i++) {
        if (!__atomic_load_n(&parts[i].through, __ATOMIC_ACQUIRE))
            continue;
        through++;
        if (parts[i].code && !*refused) {
            *refused = ways[i].name;
            *code = parts[i].code;
        }
    }
    return through;
}
