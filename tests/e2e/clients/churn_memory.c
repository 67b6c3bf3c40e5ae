// churn_memory.c: memory that a process takes for itself, and graphs that take it.
#include "churn.h"

#include <stdlib.h>

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemPoolProps pool_on_device = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUDA_ARRAY3D_DESCRIPTOR shape = {
    .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};

// ---- At addresses ----

static void plain(CUstream stream) {
    CUdeviceptr address;
    (void)stream;
    OK(cuMemAlloc_v2, &address, PIECE_BYTES);
    OK(cuMemFree_v2, address);
}

static void pitched(CUstream stream) {
    CUdeviceptr address;
    size_t pitch;
    (void)stream;
    OK(cuMemAllocPitch_v2, &address, &pitch, 100, 8, 4);
    OK(cuMemFree_v2, address);
}

static void managed(CUstream stream) {
    CUdeviceptr address;
    (void)stream;
    OK(cuMemAllocManaged, &address, PIECE_BYTES, CU_MEM_ATTACH_GLOBAL);
    OK(cuMemFree_v2, address);
}

static void array(CUstream stream) {
    CUarray handle;
    (void)stream;
    OK(cuArray3DCreate_v2, &handle, &shape);
    OK(cuArrayDestroy, handle);
}

static void mipmap(CUstream stream) {
    CUmipmappedArray handle;
    (void)stream;
    OK(cuMipmappedArrayCreate, &handle, &shape, 3);
    OK(cuMipmappedArrayDestroy, handle);
}

// ---- In stream order ----

static void in_order(CUstream stream) {
    CUdeviceptr address;
    OK(cuMemAllocAsync, &address, PIECE_BYTES, stream);
    OK(cuMemFreeAsync, address, stream);
}

static CUmemoryPool pool_of_all;

static void make_pool(void) {
    OK(cuMemPoolCreate, &pool_of_all, &pool_on_device);
}

static void pooled(CUstream stream) {
    CUdeviceptr address;
    OK(cuMemAllocFromPoolAsync, &address, PIECE_BYTES, pool_of_all, stream);
    OK(cuMemFreeAsync, address, stream);
}

static void pool(CUstream stream) {
    CUmemoryPool own;
    CUdeviceptr address;
    OK(cuMemPoolCreate, &own, &pool_on_device);
    OK(cuMemAllocFromPoolAsync, &address, PIECE_BYTES, own, stream);
    OK(cuMemFreeAsync, address, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemPoolDestroy, own);
}

// ---- Created and mapped ----

static void physical(CUstream stream) {
    CUmemGenericAllocationHandle handle;
    (void)stream;
    OK(cuMemCreate, &handle, PHYSICAL_BYTES, &on_device, 0);
    OK(cuMemRelease, handle);
}

static void mapped(CUstream stream) {
    static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    (void)stream;
    OK(cuMemAddressReserve, &address, PHYSICAL_BYTES, 0, 0, 0);
    OK(cuMemCreate, &handle, PHYSICAL_BYTES, &on_device, 0);
    OK(cuMemMap, address, PHYSICAL_BYTES, 0, handle, 0);
    OK(cuMemSetAccess, address, PHYSICAL_BYTES, &access, 1);
    OK(cuMemRelease, handle);  // the mapping keeps it
    OK(cuMemUnmap, address, PHYSICAL_BYTES);
    OK(cuMemAddressFree, address, PHYSICAL_BYTES);
}

// ---- Graphs ----

static CUgraph graph_of_memory(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS take = {.poolProps = pool_on_device, .bytesize = PIECE_BYTES};
    CUgraphNode taken, given;
    CUgraph made;
    OK(cuGraphCreate, &made, 0);
    OK(cuGraphAddMemAllocNode, &taken, made, NULL, 0, &take);
    OK(cuGraphAddMemFreeNode, &given, made, &taken, 1, take.dptr);
    return made;
}

static void graph(CUstream stream) {
    CUgraph made = graph_of_memory();
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags, &exec, made, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, made);
    OK(cuDeviceGraphMemTrim, 0);
}

static void captured(CUstream stream) {
    CUdeviceptr address;
    CUgraph made;
    CUgraphExec exec;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAllocAsync, &address, PIECE_BYTES, stream);
    OK(cuMemFreeAsync, address, stream);
    OK(cuStreamEndCapture, stream, &made);
    OK(cuGraphInstantiateWithFlags, &exec, made, 0);
    OK(cuGraphUpload, exec, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, made);
}

static void nothing(void *unused) {
    (void)unused;
}

static CUgraph graph_of_calls(void) {
    CUDA_HOST_NODE_PARAMS call = {.fn = nothing};
    CUgraphNode node;
    CUgraph made;
    OK(cuGraphCreate, &made, 0);
    OK(cuGraphAddHostNode, &node, made, NULL, 0, &call);
    return made;
}

static void updated(CUstream stream) {
    CUgraph first = graph_of_calls(), second = graph_of_calls();
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;
    (void)stream;
    OK(cuGraphInstantiateWithFlags, &exec, first, 0);
    OK(cuGraphExecUpdate_v2, exec, second, &info);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, first);
    OK(cuGraphDestroy, second);
}

const struct kind memory_kinds[] = {
    {"plain", NULL, plain},        {"pitched", NULL, pitched}, {"managed", NULL, managed},
    {"array", NULL, array},        {"mipmap", NULL, mipmap},   {"async", NULL, in_order},
    {"pooled", make_pool, pooled}, {"pool", NULL, pool},       {"physical", NULL, physical},
    {"mapped", NULL, mapped},      {"graph", NULL, graph},     {"captured", NULL, captured},
    {"updated", NULL, updated},    {NULL, NULL, NULL},
};
