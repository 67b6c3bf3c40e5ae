// cuda.h: the driver's types, result codes and function types that the library uses.
//
// Declared from documented facts; nothing here is NVIDIA's text. A function type is named
// <export>_fn after the driver's export, not after the name that a program writes: cuMemAlloc is
// the 32-bit form of before 3.2, cuMemAlloc_v2 what is called today.
#ifndef WEIR_CUDA_H
#define WEIR_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint32_t CUdeviceptr_v1;  // of the functions without a suffix that are older than 3.2
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

typedef struct {
    uint8_t bytes[16];
} CUuuid;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

// What cuThreadExchangeStreamCaptureMode takes. Relaxed: our own calls disturb no capture.
enum {
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

typedef CUresult cuInit_fn(unsigned flags);
typedef CUresult cuDriverGetVersion_fn(int *version);

// Finding functions.
typedef CUresult cuGetProcAddress_fn(const char *symbol, void **function, int version,
                                     uint64_t flags);
typedef CUresult cuGetProcAddress_v2_fn(const char *symbol, void **function, int version,
                                        uint64_t flags, int *status);

// Memory: allocation and free.
typedef CUresult cuMemAlloc_fn(CUdeviceptr_v1 *pointer, unsigned bytes);
typedef CUresult cuMemAlloc_v2_fn(CUdeviceptr *pointer, size_t bytes);
typedef CUresult cuMemAllocPitch_fn(CUdeviceptr_v1 *pointer, unsigned *pitch, unsigned width_bytes,
                                    unsigned height, unsigned element_bytes);
typedef CUresult cuMemAllocPitch_v2_fn(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                       size_t height, unsigned element_bytes);
typedef CUresult cuMemAllocManaged_fn(CUdeviceptr *pointer, size_t bytes, unsigned flags);
typedef CUresult cuMemFree_fn(CUdeviceptr_v1 pointer);
typedef CUresult cuMemFree_v2_fn(CUdeviceptr pointer);
typedef CUresult cuMemFreeAsync_fn(CUdeviceptr pointer, CUstream stream);
typedef CUresult cuMemFreeAsync_ptsz_fn(CUdeviceptr pointer, CUstream stream);

// Memory: reports.
typedef CUresult cuMemGetInfo_fn(unsigned *free_bytes, unsigned *total_bytes);
typedef CUresult cuMemGetInfo_v2_fn(size_t *free_bytes, size_t *total_bytes);
typedef CUresult cuDeviceTotalMem_fn(unsigned *bytes, CUdevice device);
typedef CUresult cuDeviceTotalMem_v2_fn(size_t *bytes, CUdevice device);

// Memory: of the host, as devices use it.
enum {
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
};

typedef CUresult cuMemHostAlloc_fn(void **pointer, size_t bytes, unsigned flags);
typedef CUresult cuMemFreeHost_fn(void *pointer);

// Devices and contexts. What a context holds ends with it.
typedef CUresult cuDeviceGet_fn(CUdevice *device, int ordinal);
typedef CUresult cuDeviceGetCount_fn(int *count);
typedef CUresult cuDeviceGetUuid_fn(CUuuid *uuid, CUdevice device);
typedef CUresult cuDeviceGetUuid_v2_fn(CUuuid *uuid, CUdevice device);
typedef CUresult cuCtxGetCurrent_fn(CUcontext *context);
typedef CUresult cuCtxSetCurrent_fn(CUcontext context);
typedef CUresult cuCtxGetDevice_fn(CUdevice *device);
typedef CUresult cuCtxPushCurrent_v2_fn(CUcontext context);
typedef CUresult cuCtxPopCurrent_v2_fn(CUcontext *context);
typedef CUresult cuCtxAttach_fn(CUcontext *context, unsigned flags);
typedef CUresult cuCtxDestroy_fn(CUcontext context);
typedef CUresult cuCtxDestroy_v2_fn(CUcontext context);
typedef CUresult cuCtxDetach_fn(CUcontext context);
typedef CUresult cuCtxCreate_fn(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult cuCtxCreate_v2_fn(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult cuCtxCreate_v3_fn(CUcontext *context, void *affinity, int affinities,
                                   unsigned flags, CUdevice device);
typedef CUresult cuCtxCreate_v4_fn(CUcontext *context, void *params, unsigned flags,
                                   CUdevice device);
typedef CUresult cuGLCtxCreate_fn(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult cuGLCtxCreate_v2_fn(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult cuVDPAUCtxCreate_fn(CUcontext *context, unsigned flags, CUdevice device,
                                     uint32_t vdp_device, void *vdp_get_proc_address);
typedef CUresult cuVDPAUCtxCreate_v2_fn(CUcontext *context, unsigned flags, CUdevice device,
                                        uint32_t vdp_device, void *vdp_get_proc_address);
typedef CUresult cuGreenCtxCreate_fn(CUgreenCtx *green, CUdevResourceDesc resources,
                                     CUdevice device, unsigned flags);
typedef CUresult cuGreenCtxDestroy_fn(CUgreenCtx green);
typedef CUresult cuCtxFromGreenCtx_fn(CUcontext *context, CUgreenCtx green);
typedef CUresult cuCtxGetLimit_fn(size_t *value, int limit);
typedef CUresult cuCtxSetLimit_fn(int limit, size_t value);
typedef CUresult cuDeviceGetAttribute_fn(int *value, int attribute, CUdevice device);
typedef CUresult cuDevicePrimaryCtxGetState_fn(CUdevice device, unsigned *flags, int *active);
typedef CUresult cuDevicePrimaryCtxRetain_fn(CUcontext *context, CUdevice device);
typedef CUresult cuDevicePrimaryCtxRelease_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxRelease_v2_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxReset_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxReset_v2_fn(CUdevice device);
typedef CUresult cuThreadExchangeStreamCaptureMode_fn(int *mode);

// Code. Options are passed on as they come.
typedef CUresult cuModuleLoad_fn(CUmodule *module, const char *path);
typedef CUresult cuModuleLoadData_fn(CUmodule *module, const void *image);
typedef CUresult cuModuleLoadDataEx_fn(CUmodule *module, const void *image, unsigned count,
                                       int *options, void **values);
typedef CUresult cuModuleLoadFatBinary_fn(CUmodule *module, const void *image);
typedef CUresult cuModuleUnload_fn(CUmodule module);
typedef CUresult cuLibraryLoadData_fn(CUlibrary *library, const void *image, int *jit_options,
                                      void **jit_values, unsigned jit_count, int *options,
                                      void **values, unsigned count);
typedef CUresult cuLibraryLoadFromFile_fn(CUlibrary *library, const char *path, int *jit_options,
                                          void **jit_values, unsigned jit_count, int *options,
                                          void **values, unsigned count);
typedef CUresult cuLibraryUnload_fn(CUlibrary library);

// Where memory lies.
enum {
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
};

typedef struct {
    int type;
    int id;
} CUmemLocation;

// Arrays. Formats are those whose size is not 32 bits a channel, and the ends of ranges of others.
enum {
    CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
    CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
    CU_AD_FORMAT_SIGNED_INT8 = 0x08,
    CU_AD_FORMAT_SIGNED_INT16 = 0x09,
    CU_AD_FORMAT_HALF = 0x10,
    CU_AD_FORMAT_UNORM_INT_101010_2 = 0x50,
    CU_AD_FORMAT_BC1_UNORM = 0x91,
    CU_AD_FORMAT_BC1_UNORM_SRGB = 0x92,
    CU_AD_FORMAT_BC4_UNORM = 0x97,
    CU_AD_FORMAT_BC4_SNORM = 0x98,
    CU_AD_FORMAT_BC7_UNORM_SRGB = 0x9e,
    CU_AD_FORMAT_P010 = 0x9f,
    CU_AD_FORMAT_P016 = 0xa1,
    CU_AD_FORMAT_NV16 = 0xa2,
    CU_AD_FORMAT_P210 = 0xa3,
    CU_AD_FORMAT_YUY2 = 0xa5,
    CU_AD_FORMAT_Y410 = 0xa9,
    CU_AD_FORMAT_NV12 = 0xb0,
    CU_AD_FORMAT_Y416 = 0xb1,
    CU_AD_FORMAT_Y444_PLANAR8 = 0xb2,
    CU_AD_FORMAT_Y444_PLANAR10 = 0xb3,
    CU_AD_FORMAT_UNORM_INT8X1 = 0xc0,
    CU_AD_FORMAT_UNORM_INT8X2 = 0xc1,
    CU_AD_FORMAT_UNORM_INT8X4 = 0xc2,
    CU_AD_FORMAT_UNORM_INT16X1 = 0xc3,
    CU_AD_FORMAT_UNORM_INT16X2 = 0xc4,
    CU_AD_FORMAT_UNORM_INT16X4 = 0xc5,
    CU_AD_FORMAT_SNORM_INT8X1 = 0xc6,
    CU_AD_FORMAT_SNORM_INT8X2 = 0xc7,
    CU_AD_FORMAT_SNORM_INT8X4 = 0xc8,
    CU_AD_FORMAT_SNORM_INT16X1 = 0xc9,
    CU_AD_FORMAT_SNORM_INT16X2 = 0xca,
    CU_AD_FORMAT_SNORM_INT16X4 = 0xcb,
};

enum {
    CUDA_ARRAY3D_LAYERED = 0x01,
    CUDA_ARRAY3D_CUBEMAP = 0x04,
    CUDA_ARRAY3D_SPARSE = 0x40,
    CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
};

typedef struct {
    size_t Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    unsigned Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    size_t Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    unsigned Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    size_t size;
    size_t alignment;
    unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef CUresult cuArrayCreate_fn(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *made);
typedef CUresult cuArrayCreate_v2_fn(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *made);
typedef CUresult cuArray3DCreate_fn(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *made);
typedef CUresult cuArray3DCreate_v2_fn(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *made);
typedef CUresult cuArrayDestroy_fn(CUarray array);
typedef CUresult cuArrayGetMemoryRequirements_fn(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                                 CUarray array, CUdevice device);
typedef CUresult cuMipmappedArrayCreate_fn(CUmipmappedArray *array,
                                           const CUDA_ARRAY3D_DESCRIPTOR *made, unsigned levels);
typedef CUresult cuMipmappedArrayDestroy_fn(CUmipmappedArray array);
typedef CUresult
cuMipmappedArrayGetMemoryRequirements_fn(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                         CUmipmappedArray array, CUdevice device);

// Memory pools. What is unused beyond the release threshold goes back at the next synchronization.
enum {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
};

typedef struct {
    int allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    uint8_t reserved[56];
} CUmemPoolProps;

typedef CUresult cuMemPoolCreate_fn(CUmemoryPool *pool, const CUmemPoolProps *props);
typedef CUresult cuMemPoolDestroy_fn(CUmemoryPool pool);
typedef CUresult cuMemPoolGetAttribute_fn(CUmemoryPool pool, int attribute, void *value);
typedef CUresult cuMemPoolSetAttribute_fn(CUmemoryPool pool, int attribute, void *value);
typedef CUresult cuMemPoolTrimTo_fn(CUmemoryPool pool, size_t keep_bytes);
typedef CUresult cuDeviceGetDefaultMemPool_fn(CUmemoryPool *pool, CUdevice device);
typedef CUresult cuDeviceGetMemPool_fn(CUmemoryPool *pool, CUdevice device);
typedef CUresult cuDeviceSetMemPool_fn(CUdevice device, CUmemoryPool pool);
typedef CUresult cuMemAllocAsync_fn(CUdeviceptr *pointer, size_t bytes, CUstream stream);
typedef CUresult cuMemAllocAsync_ptsz_fn(CUdeviceptr *pointer, size_t bytes, CUstream stream);
typedef CUresult cuMemAllocFromPoolAsync_fn(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                            CUstream stream);
typedef CUresult cuMemAllocFromPoolAsync_ptsz_fn(CUdeviceptr *pointer, size_t bytes,
                                                 CUmemoryPool pool, CUstream stream);

// Streams and events. Handles up to CU_STREAM_PER_THREAD stand for default streams.
enum {
    CU_STREAM_LEGACY = 1,
    CU_STREAM_PER_THREAD = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
};

typedef CUresult cuCtxSynchronize_fn(void);
typedef CUresult cuStreamSynchronize_fn(CUstream stream);
typedef CUresult cuStreamSynchronize_ptsz_fn(CUstream stream);
typedef CUresult cuStreamQuery_fn(CUstream stream);
typedef CUresult cuStreamQuery_ptsz_fn(CUstream stream);
typedef CUresult cuStreamGetCtx_fn(CUstream stream, CUcontext *context);
typedef CUresult cuStreamGetGreenCtx_fn(CUstream stream, CUgreenCtx *green);
typedef CUresult cuStreamGetId_fn(CUstream stream, unsigned long long *id);
typedef CUresult cuStreamGetId_ptsz_fn(CUstream stream, unsigned long long *id);
typedef CUresult cuStreamIsCapturing_fn(CUstream stream, int *status);
typedef CUresult cuStreamIsCapturing_ptsz_fn(CUstream stream, int *status);
typedef CUresult cuEventCreate_fn(CUevent *event, unsigned flags);
typedef CUresult cuEventRecord_fn(CUevent event, CUstream stream);
typedef CUresult cuEventDestroy_v2_fn(CUevent event);
typedef CUresult cuEventElapsedTime_fn(float *milliseconds, CUevent start, CUevent end);
typedef CUresult cuEventSynchronize_fn(CUevent event);
typedef CUresult cuEventQuery_fn(CUevent event);

// Graphs. Their memory nodes take memory of the device when they are launched or uploaded.
enum {
    CU_GRAPH_NODE_TYPE_GRAPH = 4,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
    CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
};

typedef struct {
    CUmemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    int type;
    int reserved0[3];
    int64_t reserved1[29];
    int64_t reserved2;
} CUgraphNodeParams;

typedef struct {
    uint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef CUresult cuGraphAddMemAllocNode_fn(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *after, size_t after_count,
                                           CUDA_MEM_ALLOC_NODE_PARAMS *params);
typedef CUresult cuGraphAddNode_fn(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                   size_t after_count, CUgraphNodeParams *params);
typedef CUresult cuGraphAddNode_v2_fn(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                      const void *edges, size_t after_count,
                                      CUgraphNodeParams *params);
typedef CUresult cuGraphGetNodes_fn(CUgraph graph, CUgraphNode *nodes, size_t *count);
typedef CUresult cuGraphNodeGetType_fn(CUgraphNode node, int *type);
typedef CUresult cuGraphMemAllocNodeGetParams_fn(CUgraphNode node,
                                                 CUDA_MEM_ALLOC_NODE_PARAMS *params);
typedef CUresult cuGraphChildGraphNodeGetGraph_fn(CUgraphNode node, CUgraph *graph);
typedef CUresult cuGraphInstantiate_fn(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                       char *log, size_t log_bytes);
typedef CUresult cuGraphInstantiate_v2_fn(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                          char *log, size_t log_bytes);
typedef CUresult cuGraphInstantiateWithFlags_fn(CUgraphExec *exec, CUgraph graph, uint64_t flags);
typedef CUresult cuGraphInstantiateWithParams_fn(CUgraphExec *exec, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params);
typedef CUresult cuGraphInstantiateWithParams_ptsz_fn(CUgraphExec *exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params);
typedef CUresult cuGraphExecDestroy_fn(CUgraphExec exec);
typedef CUresult cuGraphLaunch_fn(CUgraphExec exec, CUstream stream);
typedef CUresult cuGraphLaunch_ptsz_fn(CUgraphExec exec, CUstream stream);
typedef CUresult cuGraphUpload_fn(CUgraphExec exec, CUstream stream);
typedef CUresult cuGraphUpload_ptsz_fn(CUgraphExec exec, CUstream stream);
typedef CUresult cuDeviceGetGraphMemAttribute_fn(CUdevice device, int attribute, void *value);
typedef CUresult cuDeviceGraphMemTrim_fn(CUdevice device);

// Physical memory that programs create and map by themselves.
enum {
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_HANDLE_TYPE_FABRIC = 8,
};

typedef uint64_t CUmemGenericAllocationHandle;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    uint8_t allocFlags[8];
} CUmemAllocationProp;

// What a fabric handle is made of, an exported pointer of a pool, and an IPC handle.
typedef struct {
    uint8_t bytes[64];
} CUshareable;
typedef CUshareable CUipcMemHandle;
typedef CUshareable CUmemPoolPtrExportData;

typedef CUresult cuMemCreate_fn(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *prop, uint64_t flags);
typedef CUresult cuMemRelease_fn(CUmemGenericAllocationHandle handle);
typedef CUresult cuMemMap_fn(CUdeviceptr pointer, size_t bytes, size_t offset,
                             CUmemGenericAllocationHandle handle, uint64_t flags);
typedef CUresult cuMemUnmap_fn(CUdeviceptr pointer, size_t bytes);
typedef CUresult cuMemRetainAllocationHandle_fn(CUmemGenericAllocationHandle *handle,
                                                void *address);
typedef CUresult cuMemGetAllocationPropertiesFromHandle_fn(CUmemAllocationProp *prop,
                                                           CUmemGenericAllocationHandle handle);
typedef CUresult cuMemExportToShareableHandle_fn(void *shareable,
                                                 CUmemGenericAllocationHandle handle, int type,
                                                 uint64_t flags);
typedef CUresult cuMemImportFromShareableHandle_fn(CUmemGenericAllocationHandle *handle,
                                                   void *shareable, int type);
typedef CUresult cuMemGetHandleForAddressRange_fn(void *handle, CUdeviceptr pointer, size_t bytes,
                                                  int type, uint64_t flags);
typedef CUresult cuMemGetAddressRange_v2_fn(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer);

// Memory between processes.
enum {
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
};

typedef struct CUextMemory_st *CUexternalMemory;

typedef struct {
    int type;
    union {
        int fd;
        void *words[2];
    } handle;
    uint64_t size;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef CUresult cuPointerGetAttribute_fn(void *value, int attribute, CUdeviceptr pointer);
typedef CUresult cuIpcGetMemHandle_fn(CUipcMemHandle *handle, CUdeviceptr pointer);
typedef CUresult cuIpcOpenMemHandle_fn(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags);
typedef CUresult cuIpcOpenMemHandle_v2_fn(CUdeviceptr *pointer, CUipcMemHandle handle,
                                          unsigned flags);
typedef CUresult cuIpcCloseMemHandle_fn(CUdeviceptr pointer);
typedef CUresult cuImportExternalMemory_fn(CUexternalMemory *memory,
                                           const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc);
typedef CUresult cuDestroyExternalMemory_fn(CUexternalMemory memory);
typedef CUresult cuMemPoolExportToShareableHandle_fn(void *shareable, CUmemoryPool pool, int type,
                                                     uint64_t flags);
typedef CUresult cuMemPoolImportFromShareableHandle_fn(CUmemoryPool *pool, void *shareable,
                                                       int type, uint64_t flags);
typedef CUresult cuMemPoolExportPointer_fn(CUmemPoolPtrExportData *data, CUdeviceptr pointer);
typedef CUresult cuMemPoolImportPointer_fn(CUdeviceptr *pointer, CUmemoryPool pool,
                                           CUmemPoolPtrExportData *data);

#include "cuda_work.h"

#include "cuda_managed.h"

#endif
