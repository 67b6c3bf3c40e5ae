// kinds.c: commands about kinds of memory beyond plain, pitched and managed; see main.c.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../hooks.h"
#include "driver.h"
#include "host.h"

typedef CUresult begin_capture_fn(CUstream stream, int mode);
typedef CUresult end_capture_fn(CUstream stream, CUgraph *graph);
typedef CUresult create_graph_fn(CUgraph *graph, unsigned flags);
typedef CUresult add_child_fn(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                              size_t after_count, CUgraph child);

#define DRIVER(type, export) ((type *)weir_real_table[WEIR_FN_##export])

static int do_array(char **words, uint64_t *value) {
    CUarray array = NULL;
    CUmipmappedArray mipmapped = NULL;
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = number(words[1]),
                                    .Height = number(words[2]),
                                    .Depth = number(words[3]),
                                    .Format = 0x20,
                                    .NumChannels = 1};
    CUDA_ARRAY_DESCRIPTOR flat = {made.Width, made.Height, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    CUresult result;
    if (!strcmp(words[0], "array")) {
        result = weir_cuArrayCreate_v2(&array, &flat);
    } else if (!strcmp(words[0], "array3d")) {
        made.Flags = (unsigned)number(words[4]);
        result = weir_cuArray3DCreate_v2(&array, &made);
    } else if (!strcmp(words[0], "mipmap")) {
        result = weir_cuMipmappedArrayCreate(&mipmapped, &made, (unsigned)number(words[4]));
    } else if (!strcmp(words[0], "noarray")) {
        result = weir_cuArrayDestroy((CUarray)(uintptr_t)number(words[1]));
    } else {
        result = weir_cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)number(words[1]));
    }
    *value = (uint64_t)(uintptr_t)array + (uint64_t)(uintptr_t)mipmapped;
    return result;
}

static int do_async(char **words, uint64_t *value) {
    CUstream stream = (CUstream)(uintptr_t)number(words[2]);
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)number(words[3]);
    if (!strcmp(words[0], "async"))
        return weir_cuMemAllocAsync(value, number(words[1]), stream);
    if (!strcmp(words[0], "asyncptsz"))
        return weir_cuMemAllocAsync_ptsz(value, number(words[1]), stream);
    if (!strcmp(words[0], "pooled"))
        return weir_cuMemAllocFromPoolAsync(value, number(words[1]), pool, stream);
    if (!strcmp(words[0], "pooledptsz"))
        return weir_cuMemAllocFromPoolAsync_ptsz(value, number(words[1]), pool, stream);
    return weir_cuMemFreeAsync(number(words[1]), stream);
}

static int do_pool(char **words, uint64_t *value) {
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)number(words[1]);
    if (!strcmp(words[0], "trim"))
        return weir_cuMemPoolTrimTo(pool, number(words[2]));
    if (!strcmp(words[0], "nopool"))
        return weir_cuMemPoolDestroy(pool);
    if (!strcmp(words[0], "setpool"))
        return WEIR_REAL(cuDeviceSetMemPool)((int)number(words[2]), pool);
    if (!strcmp(words[0], "keep")) {
        uint64_t keep_bytes = number(words[2]);
        return weir_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes);
    }
    CUresult result = CUDA_SUCCESS;
    int device = (int)number(words[1]);
    if (!strcmp(words[0], "default")) {
        result = WEIR_REAL(cuDeviceGetDefaultMemPool)(&pool, device);
    } else {
        CUmemPoolProps props = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        if (!strcmp(words[0], "hostpool"))
            props.location = (CUmemLocation){2, 0};
        result = weir_cuMemPoolCreate(&pool, &props);
    }
    *value = (uint64_t)(uintptr_t)pool;
    return result;
}

static int do_stream(char **words, uint64_t *value) {
    CUstream stream = (CUstream)(uintptr_t)number(words[1]);
    if (!strcmp(words[0], "sync"))
        return weir_cuCtxSynchronize();
    if (!strcmp(words[0], "syncstream"))
        return weir_cuStreamSynchronize(stream);
    if (!strcmp(words[0], "syncevent"))
        return weir_cuEventSynchronize(NULL);
    if (!strcmp(words[0], "query"))
        return weir_cuStreamQuery(stream);
    if (!strcmp(words[0], "busy"))
        test_driver.streams_busy = (int)number(words[1]);
    else if (!strcmp(words[0], "lags"))
        test_driver.used_lags = (int)number(words[1]);
    else if (!strcmp(words[0], "chunk"))
        test_driver.chunk_bytes = (unsigned)number(words[1]);
    else if (!strcmp(words[0], "unit"))
        test_driver.array_unit_bytes = (unsigned)number(words[1]);
    else if (!strcmp(words[0], "stream"))
        *value = number(words[1]) * 256 + number(words[2]);
    else if (!strcmp(words[0], "capture"))
        return DRIVER(begin_capture_fn, cuStreamBeginCapture_v2)(stream, 0);
    return CUDA_SUCCESS;
}

static int do_graph(char **words, uint64_t *value) {
    CUgraph graph = (CUgraph)(uintptr_t)number(words[1]);
    CUgraphNode node = NULL;
    CUresult result = CUDA_SUCCESS;
    if (!strcmp(words[0], "node")) {
        CUDA_MEM_ALLOC_NODE_PARAMS params = {
            .poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)number(words[3])},
            .bytesize = number(words[2])};
        result = weir_cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
        *value = params.dptr;
    } else if (!strcmp(words[0], "child")) {
        result = DRIVER(add_child_fn, cuGraphAddChildGraphNode)(
            &node, graph, NULL, 0, (CUgraph)(uintptr_t)number(words[2]));
    } else {
        if (!strcmp(words[0], "endcapture"))
            result = DRIVER(end_capture_fn,
                            cuStreamEndCapture)((CUstream)(uintptr_t)number(words[1]), &graph);
        else
            result = DRIVER(create_graph_fn, cuGraphCreate)(&graph, 0);
        *value = (uint64_t)(uintptr_t)graph;
    }
    return result;
}

static int do_exec(char **words, uint64_t *value) {
    CUgraphExec exec = (CUgraphExec)(uintptr_t)number(words[1]);
    CUgraph graph = (CUgraph)(uintptr_t)number(words[1]);
    CUstream stream = (CUstream)(uintptr_t)number(words[2]);
    if (!strcmp(words[0], "launch"))
        return weir_cuGraphLaunch(exec, stream);
    if (!strcmp(words[0], "upload"))
        return weir_cuGraphUpload(exec, stream);
    if (!strcmp(words[0], "noexec"))
        return weir_cuGraphExecDestroy(exec);
    if (!strcmp(words[0], "gtrim"))
        return weir_cuDeviceGraphMemTrim((int)number(words[1]));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 2, .hUploadStream = stream};
    CUresult result = strcmp(words[0], "uploaded") != 0
                          ? weir_cuGraphInstantiateWithFlags(&exec, graph, 0)
                          : weir_cuGraphInstantiateWithParams(&exec, graph, &params);
    *value = (uint64_t)(uintptr_t)exec;
    return result;
}

static const struct {
    const char *name;
    int (*run)(char **words, uint64_t *value);
} commands[] = {
    {"array", do_array},       {"array3d", do_array},    {"mipmap", do_array},
    {"noarray", do_array},     {"nomipmap", do_array},   {"async", do_async},
    {"asyncptsz", do_async},   {"pooled", do_async},     {"pooledptsz", do_async},
    {"afree", do_async},       {"pool", do_pool},        {"hostpool", do_pool},
    {"default", do_pool},      {"nopool", do_pool},      {"trim", do_pool},
    {"keep", do_pool},         {"setpool", do_pool},     {"sync", do_stream},
    {"syncstream", do_stream}, {"syncevent", do_stream}, {"query", do_stream},
    {"busy", do_stream},       {"lags", do_stream},      {"chunk", do_stream},
    {"unit", do_stream},       {"stream", do_stream},    {"capture", do_stream},
    {"graph", do_graph},       {"node", do_graph},       {"child", do_graph},
    {"endcapture", do_graph},  {"exec", do_exec},        {"uploaded", do_exec},
    {"launch", do_exec},       {"upload", do_exec},      {"noexec", do_exec},
    {"gtrim", do_exec},
};

int test_kinds(char **words, uint64_t *errno_lost) {
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        uint64_t value = 0;
        if (strcmp(words[0], commands[i].name) != 0)
            continue;
        errno = 4242;
        CUresult result = commands[i].run(words, &value);
        *errno_lost += errno != 4242;
        test_driver_call_over();
        if (result == CUDA_SUCCESS)
            printf("ok %" PRIu64 "\n", value);
        else
            printf("err %d\n", result);
        return 1;
    }
    return 0;
}
