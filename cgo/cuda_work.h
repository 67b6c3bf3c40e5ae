// cuda_work.h: the part of cuda.h for calls that submit work to a device: launches, copies and
// sets, and captures of them. What is said at the head of cuda.h holds here too.
//
// A form that differs from another by its name alone (the default stream that it means) is declared
// as that other one.
#ifndef WEIR_CUDA_WORK_H
#define WEIR_CUDA_WORK_H

// A structure of the program's is read at these places.
#define AT(type, field, bytes)                                                                     \
    _Static_assert(offsetof(type, field) == (bytes), #type " is not the driver's")

// ---- Launches ----

typedef struct CUfunc_st *CUfunction;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

// Of one device of several.
typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

AT(CUlaunchConfig, hStream, 32);
AT(CUDA_LAUNCH_PARAMS, hStream, 40);
_Static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56, "launches of several devices lie in a row");

typedef CUresult cuLaunchKernel_fn(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **params, void **extra);
typedef cuLaunchKernel_fn cuLaunchKernel_ptsz_fn;
typedef CUresult cuLaunchKernelEx_fn(const CUlaunchConfig *config, CUfunction function,
                                     void **params, void **extra);
typedef cuLaunchKernelEx_fn cuLaunchKernelEx_ptsz_fn;
typedef CUresult cuLaunchCooperativeKernel_fn(CUfunction function, unsigned grid_x, unsigned grid_y,
                                              unsigned grid_z, unsigned block_x, unsigned block_y,
                                              unsigned block_z, unsigned shared_bytes,
                                              CUstream stream, void **params);
typedef cuLaunchCooperativeKernel_fn cuLaunchCooperativeKernel_ptsz_fn;
typedef CUresult cuLaunchCooperativeKernelMultiDevice_fn(CUDA_LAUNCH_PARAMS *launches,
                                                         unsigned devices, unsigned flags);
typedef CUresult cuLaunch_fn(CUfunction function);
typedef CUresult cuLaunchGrid_fn(CUfunction function, int width, int height);
typedef CUresult cuLaunchGridAsync_fn(CUfunction function, int width, int height, CUstream stream);

// ---- Copies ----

enum {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,  // the address, in the place of a device's, tells
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
};

typedef struct {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    unsigned srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    unsigned srcPitch;
    unsigned dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    unsigned dstPitch;
    unsigned WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

// The reserved places are the two contexts in the form for peers.
typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;
typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER;

typedef struct {
    unsigned srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    void *reserved0;
    unsigned srcPitch, srcHeight;
    unsigned dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    void *reserved1;
    unsigned dstPitch, dstHeight;
    unsigned WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;

AT(CUDA_MEMCPY2D, srcMemoryType, 16);
AT(CUDA_MEMCPY2D, dstMemoryType, 72);
AT(CUDA_MEMCPY2D, WidthInBytes, 112);
AT(CUDA_MEMCPY2D_v1, dstMemoryType, 52);
AT(CUDA_MEMCPY2D_v1, WidthInBytes, 84);
AT(CUDA_MEMCPY3D, srcMemoryType, 32);
AT(CUDA_MEMCPY3D, dstMemoryType, 120);
AT(CUDA_MEMCPY3D, WidthInBytes, 176);
AT(CUDA_MEMCPY3D_v1, dstMemoryType, 80);
AT(CUDA_MEMCPY3D_v1, WidthInBytes, 128);
#undef AT

// Between any two addresses.
typedef CUresult cuMemcpy_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes);
typedef cuMemcpy_fn cuMemcpy_ptds_fn;
typedef CUresult cuMemcpyAsync_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
typedef cuMemcpyAsync_fn cuMemcpyAsync_ptsz_fn;

typedef CUresult cuMemcpyDtoD_fn(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes);
typedef CUresult cuMemcpyDtoD_v2_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes);
typedef cuMemcpyDtoD_v2_fn cuMemcpyDtoD_v2_ptds_fn;
typedef CUresult cuMemcpyDtoDAsync_fn(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes,
                                      CUstream stream);
typedef CUresult cuMemcpyDtoDAsync_v2_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                         CUstream stream);
typedef cuMemcpyDtoDAsync_v2_fn cuMemcpyDtoDAsync_v2_ptsz_fn;

typedef CUresult cuMemcpyHtoD_fn(CUdeviceptr_v1 to, const void *from, unsigned bytes);
typedef CUresult cuMemcpyHtoD_v2_fn(CUdeviceptr to, const void *from, size_t bytes);
typedef cuMemcpyHtoD_v2_fn cuMemcpyHtoD_v2_ptds_fn;
typedef CUresult cuMemcpyHtoDAsync_fn(CUdeviceptr_v1 to, const void *from, unsigned bytes,
                                      CUstream stream);
typedef CUresult cuMemcpyHtoDAsync_v2_fn(CUdeviceptr to, const void *from, size_t bytes,
                                         CUstream stream);
typedef cuMemcpyHtoDAsync_v2_fn cuMemcpyHtoDAsync_v2_ptsz_fn;

typedef CUresult cuMemcpyDtoH_fn(void *to, CUdeviceptr_v1 from, unsigned bytes);
typedef CUresult cuMemcpyDtoH_v2_fn(void *to, CUdeviceptr from, size_t bytes);
typedef cuMemcpyDtoH_v2_fn cuMemcpyDtoH_v2_ptds_fn;
typedef CUresult cuMemcpyDtoHAsync_fn(void *to, CUdeviceptr_v1 from, unsigned bytes,
                                      CUstream stream);
typedef CUresult cuMemcpyDtoHAsync_v2_fn(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
typedef cuMemcpyDtoHAsync_v2_fn cuMemcpyDtoHAsync_v2_ptsz_fn;

// An array, and where in it.
typedef CUresult cuMemcpyAtoA_fn(CUarray to, unsigned to_at, CUarray from, unsigned from_at,
                                 unsigned bytes);
typedef CUresult cuMemcpyAtoA_v2_fn(CUarray to, size_t to_at, CUarray from, size_t from_at,
                                    size_t bytes);
typedef cuMemcpyAtoA_v2_fn cuMemcpyAtoA_v2_ptds_fn;
typedef CUresult cuMemcpyAtoD_fn(CUdeviceptr_v1 to, CUarray from, unsigned from_at, unsigned bytes);
typedef CUresult cuMemcpyAtoD_v2_fn(CUdeviceptr to, CUarray from, size_t from_at, size_t bytes);
typedef cuMemcpyAtoD_v2_fn cuMemcpyAtoD_v2_ptds_fn;
typedef CUresult cuMemcpyDtoA_fn(CUarray to, unsigned to_at, CUdeviceptr_v1 from, unsigned bytes);
typedef CUresult cuMemcpyDtoA_v2_fn(CUarray to, size_t to_at, CUdeviceptr from, size_t bytes);
typedef cuMemcpyDtoA_v2_fn cuMemcpyDtoA_v2_ptds_fn;
typedef CUresult cuMemcpyAtoH_fn(void *to, CUarray from, unsigned from_at, unsigned bytes);
typedef CUresult cuMemcpyAtoH_v2_fn(void *to, CUarray from, size_t from_at, size_t bytes);
typedef cuMemcpyAtoH_v2_fn cuMemcpyAtoH_v2_ptds_fn;
typedef CUresult cuMemcpyAtoHAsync_fn(void *to, CUarray from, unsigned from_at, unsigned bytes,
                                      CUstream stream);
typedef CUresult cuMemcpyAtoHAsync_v2_fn(void *to, CUarray from, size_t from_at, size_t bytes,
                                         CUstream stream);
typedef cuMemcpyAtoHAsync_v2_fn cuMemcpyAtoHAsync_v2_ptsz_fn;
typedef CUresult cuMemcpyHtoA_fn(CUarray to, unsigned to_at, const void *from, unsigned bytes);
typedef CUresult cuMemcpyHtoA_v2_fn(CUarray to, size_t to_at, const void *from, size_t bytes);
typedef cuMemcpyHtoA_v2_fn cuMemcpyHtoA_v2_ptds_fn;
typedef CUresult cuMemcpyHtoAAsync_fn(CUarray to, unsigned to_at, const void *from, unsigned bytes,
                                      CUstream stream);
typedef CUresult cuMemcpyHtoAAsync_v2_fn(CUarray to, size_t to_at, const void *from, size_t bytes,
                                         CUstream stream);
typedef cuMemcpyHtoAAsync_v2_fn cuMemcpyHtoAAsync_v2_ptsz_fn;

typedef CUresult cuMemcpyPeer_fn(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                 CUcontext from_context, size_t bytes);
typedef cuMemcpyPeer_fn cuMemcpyPeer_ptds_fn;
typedef CUresult cuMemcpyPeerAsync_fn(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                      CUcontext from_context, size_t bytes, CUstream stream);
typedef cuMemcpyPeerAsync_fn cuMemcpyPeerAsync_ptsz_fn;

typedef CUresult cuMemcpy2D_fn(const CUDA_MEMCPY2D_v1 *copy);
typedef CUresult cuMemcpy2D_v2_fn(const CUDA_MEMCPY2D *copy);
typedef cuMemcpy2D_v2_fn cuMemcpy2D_v2_ptds_fn;
typedef cuMemcpy2D_fn cuMemcpy2DUnaligned_fn;
typedef cuMemcpy2D_v2_fn cuMemcpy2DUnaligned_v2_fn;
typedef cuMemcpy2D_v2_fn cuMemcpy2DUnaligned_v2_ptds_fn;
typedef CUresult cuMemcpy2DAsync_fn(const CUDA_MEMCPY2D_v1 *copy, CUstream stream);
typedef CUresult cuMemcpy2DAsync_v2_fn(const CUDA_MEMCPY2D *copy, CUstream stream);
typedef cuMemcpy2DAsync_v2_fn cuMemcpy2DAsync_v2_ptsz_fn;
typedef CUresult cuMemcpy3D_fn(const CUDA_MEMCPY3D_v1 *copy);
typedef CUresult cuMemcpy3D_v2_fn(const CUDA_MEMCPY3D *copy);
typedef cuMemcpy3D_v2_fn cuMemcpy3D_v2_ptds_fn;
typedef CUresult cuMemcpy3DAsync_fn(const CUDA_MEMCPY3D_v1 *copy, CUstream stream);
typedef CUresult cuMemcpy3DAsync_v2_fn(const CUDA_MEMCPY3D *copy, CUstream stream);
typedef cuMemcpy3DAsync_v2_fn cuMemcpy3DAsync_v2_ptsz_fn;
typedef CUresult cuMemcpy3DPeer_fn(const CUDA_MEMCPY3D_PEER *copy);
typedef cuMemcpy3DPeer_fn cuMemcpy3DPeer_ptds_fn;
typedef CUresult cuMemcpy3DPeerAsync_fn(const CUDA_MEMCPY3D_PEER *copy, CUstream stream);
typedef cuMemcpy3DPeerAsync_fn cuMemcpy3DPeerAsync_ptsz_fn;

// ---- Sets ----

typedef CUresult cuMemsetD8_fn(CUdeviceptr_v1 to, unsigned char value, unsigned count);
typedef CUresult cuMemsetD8_v2_fn(CUdeviceptr to, unsigned char value, size_t count);
typedef cuMemsetD8_v2_fn cuMemsetD8_v2_ptds_fn;
typedef CUresult cuMemsetD8Async_fn(CUdeviceptr to, unsigned char value, size_t count,
                                    CUstream stream);
typedef cuMemsetD8Async_fn cuMemsetD8Async_ptsz_fn;
typedef CUresult cuMemsetD16_fn(CUdeviceptr_v1 to, unsigned short value, unsigned count);
typedef CUresult cuMemsetD16_v2_fn(CUdeviceptr to, unsigned short value, size_t count);
typedef cuMemsetD16_v2_fn cuMemsetD16_v2_ptds_fn;
typedef CUresult cuMemsetD16Async_fn(CUdeviceptr to, unsigned short value, size_t count,
                                     CUstream stream);
typedef cuMemsetD16Async_fn cuMemsetD16Async_ptsz_fn;
typedef CUresult cuMemsetD32_fn(CUdeviceptr_v1 to, unsigned value, unsigned count);
typedef CUresult cuMemsetD32_v2_fn(CUdeviceptr to, unsigned value, size_t count);
typedef cuMemsetD32_v2_fn cuMemsetD32_v2_ptds_fn;
typedef CUresult cuMemsetD32Async_fn(CUdeviceptr to, unsigned value, size_t count, CUstream stream);
typedef cuMemsetD32Async_fn cuMemsetD32Async_ptsz_fn;

typedef CUresult cuMemsetD2D8_fn(CUdeviceptr_v1 to, unsigned pitch, unsigned char value,
                                 unsigned width, unsigned height);
typedef CUresult cuMemsetD2D8_v2_fn(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                    size_t height);
typedef cuMemsetD2D8_v2_fn cuMemsetD2D8_v2_ptds_fn;
typedef CUresult cuMemsetD2D8Async_fn(CUdeviceptr to, size_t pitch, unsigned char value,
                                      size_t width, size_t height, CUstream stream);
typedef cuMemsetD2D8Async_fn cuMemsetD2D8Async_ptsz_fn;
typedef CUresult cuMemsetD2D16_fn(CUdeviceptr_v1 to, unsigned pitch, unsigned short value,
                                  unsigned width, unsigned height);
typedef CUresult cuMemsetD2D16_v2_fn(CUdeviceptr to, size_t pitch, unsigned short value,
                                     size_t width, size_t height);
typedef cuMemsetD2D16_v2_fn cuMemsetD2D16_v2_ptds_fn;
typedef CUresult cuMemsetD2D16Async_fn(CUdeviceptr to, size_t pitch, unsigned short value,
                                       size_t width, size_t height, CUstream stream);
typedef cuMemsetD2D16Async_fn cuMemsetD2D16Async_ptsz_fn;
typedef CUresult cuMemsetD2D32_fn(CUdeviceptr_v1 to, unsigned pitch, unsigned value, unsigned width,
                                  unsigned height);
typedef CUresult cuMemsetD2D32_v2_fn(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                     size_t height);
typedef cuMemsetD2D32_v2_fn cuMemsetD2D32_v2_ptds_fn;
typedef CUresult cuMemsetD2D32Async_fn(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                       size_t height, CUstream stream);
typedef cuMemsetD2D32Async_fn cuMemsetD2D32Async_ptsz_fn;

// ---- Streams: captures, ends ----

typedef CUresult cuStreamBeginCapture_fn(CUstream stream);
typedef cuStreamBeginCapture_fn cuStreamBeginCapture_ptsz_fn;
typedef CUresult cuStreamBeginCapture_v2_fn(CUstream stream, int mode);
typedef cuStreamBeginCapture_v2_fn cuStreamBeginCapture_v2_ptsz_fn;
typedef CUresult cuStreamBeginCaptureToGraph_fn(CUstream stream, CUgraph graph,
                                                const CUgraphNode *after, const void *edges,
                                                size_t after_count, int mode);
typedef cuStreamBeginCaptureToGraph_fn cuStreamBeginCaptureToGraph_ptsz_fn;
typedef CUresult cuStreamEndCapture_fn(CUstream stream, CUgraph *graph);
typedef cuStreamEndCapture_fn cuStreamEndCapture_ptsz_fn;
typedef CUresult cuStreamDestroy_fn(CUstream stream);
typedef cuStreamDestroy_fn cuStreamDestroy_v2_fn;

#endif
