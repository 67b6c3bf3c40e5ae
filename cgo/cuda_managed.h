// cuda_managed.h: what cuda.h has for managed memory, what is asked about addresses, and waits and
// writes of memory words.
#ifndef WEIR_CUDA_MANAGED_H
#define WEIR_CUDA_MANAGED_H

enum {
    CU_MEM_ATTACH_GLOBAL = 1,
    CU_DEVICE_CPU = -1,
    CU_STREAM_NON_BLOCKING = 1,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,

    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
};

typedef CUresult cuMemPrefetchAsync_fn(CUdeviceptr pointer, size_t bytes, CUdevice device,
                                       CUstream stream);
typedef cuMemPrefetchAsync_fn cuMemPrefetchAsync_ptsz_fn;
typedef CUresult cuMemPrefetchAsync_v2_fn(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                                          unsigned flags, CUstream stream);
typedef cuMemPrefetchAsync_v2_fn cuMemPrefetchAsync_v2_ptsz_fn;
typedef CUresult cuMemAdvise_fn(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device);
typedef CUresult cuMemAdvise_v2_fn(CUdeviceptr pointer, size_t bytes, int advice,
                                   CUmemLocation location);
typedef CUresult cuMemRangeGetAttribute_fn(void *data, size_t data_bytes, int attribute,
                                           CUdeviceptr pointer, size_t bytes);
typedef CUresult cuMemRangeGetAttributes_fn(void **data, size_t *data_bytes, int *attributes,
                                            size_t count, CUdeviceptr pointer, size_t bytes);
typedef CUresult cuStreamAttachMemAsync_fn(CUstream stream, CUdeviceptr pointer, size_t bytes,
                                           unsigned flags);
typedef cuStreamAttachMemAsync_fn cuStreamAttachMemAsync_ptsz_fn;

typedef CUresult cuPointerGetAttributes_fn(unsigned count, int *attributes, void **values,
                                           CUdeviceptr pointer);
typedef CUresult cuDeviceCanAccessPeer_fn(int *can, CUdevice device, CUdevice peer);

typedef CUresult cuStreamCreateWithPriority_fn(CUstream *stream, unsigned flags, int priority);
typedef CUresult cuCtxGetStreamPriorityRange_fn(int *least, int *greatest);
typedef CUresult cuFuncGetParamInfo_fn(CUfunction function, size_t index, size_t *offset,
                                       size_t *bytes);
typedef cuFuncGetParamInfo_fn cuKernelGetParamInfo_fn;

// A wait or a write of a batch; they have the same layout.
typedef union {
    unsigned operation;
    struct {
        unsigned operation;
        CUdeviceptr address;
    } value;
    uint64_t words[6];
} CUstreamBatchMemOpParams;

typedef CUresult cuStreamWaitValue32_fn(CUstream stream, CUdeviceptr pointer, uint32_t value,
                                        unsigned flags);
typedef cuStreamWaitValue32_fn cuStreamWaitValue32_ptsz_fn;
typedef cuStreamWaitValue32_fn cuStreamWaitValue32_v2_fn;
typedef cuStreamWaitValue32_fn cuStreamWaitValue32_v2_ptsz_fn;
typedef cuStreamWaitValue32_fn cuStreamWriteValue32_fn;
typedef cuStreamWaitValue32_fn cuStreamWriteValue32_ptsz_fn;
typedef cuStreamWaitValue32_fn cuStreamWriteValue32_v2_fn;
typedef cuStreamWaitValue32_fn cuStreamWriteValue32_v2_ptsz_fn;
typedef CUresult cuStreamWaitValue64_fn(CUstream stream, CUdeviceptr pointer, uint64_t value,
                                        unsigned flags);
typedef cuStreamWaitValue64_fn cuStreamWaitValue64_ptsz_fn;
typedef cuStreamWaitValue64_fn cuStreamWaitValue64_v2_fn;
typedef cuStreamWaitValue64_fn cuStreamWaitValue64_v2_ptsz_fn;
typedef cuStreamWaitValue64_fn cuStreamWriteValue64_fn;
typedef cuStreamWaitValue64_fn cuStreamWriteValue64_ptsz_fn;
typedef cuStreamWaitValue64_fn cuStreamWriteValue64_v2_fn;
typedef cuStreamWaitValue64_fn cuStreamWriteValue64_v2_ptsz_fn;
typedef CUresult cuStreamBatchMemOp_fn(CUstream stream, unsigned count,
                                       CUstreamBatchMemOpParams *ops, unsigned flags);
typedef cuStreamBatchMemOp_fn cuStreamBatchMemOp_ptsz_fn;
typedef cuStreamBatchMemOp_fn cuStreamBatchMemOp_v2_fn;
typedef cuStreamBatchMemOp_fn cuStreamBatchMemOp_v2_ptsz_fn;

// What nodes of graphs use.
enum {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_EMPTY = 5,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
    CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
};

typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
    void *kern;  // not in the first version, as what follows
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
    CUcontext ctx;  // not in the first version
} CUDA_MEMSET_NODE_PARAMS;

typedef CUresult cuGraphKernelNodeGetParams_v2_fn(CUgraphNode node,
                                                  CUDA_KERNEL_NODE_PARAMS *params);
typedef CUresult cuGraphMemcpyNodeGetParams_fn(CUgraphNode node, CUDA_MEMCPY3D *copy);
typedef CUresult cuGraphMemsetNodeGetParams_fn(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set);
typedef CUresult cuGraphExecKernelNodeSetParams_fn(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS *params);
typedef cuGraphExecKernelNodeSetParams_fn cuGraphExecKernelNodeSetParams_v2_fn;
typedef CUresult cuGraphExecMemcpyNodeSetParams_fn(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_MEMCPY3D *copy, CUcontext context);
typedef CUresult cuGraphExecMemsetNodeSetParams_fn(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_MEMSET_NODE_PARAMS *set,
                                                   CUcontext context);
typedef CUresult cuGraphExecChildGraphNodeSetParams_fn(CUgraphExec exec, CUgraphNode node,
                                                       CUgraph child);
typedef CUresult cuGraphExecNodeSetParams_fn(CUgraphExec exec, CUgraphNode node,
                                             CUgraphNodeParams *params);
typedef CUresult cuGraphExecUpdate_fn(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                      int *result);
typedef CUresult cuGraphExecUpdate_v2_fn(CUgraphExec exec, CUgraph graph, void *result);

#endif
