// CUDA C++ for Debian's clang without any file of NVIDIA's: the words of the language, the built-in
// variables, the device functions that weir's test programs need, and the runtime API that
// libweircudart.so has. Meant for `clang -x cuda -nocudainc -nocudalib`; see programs/build.mk.
//
// Names, values and argument orders are CUDA's, so that a program compiles with either header.
// struct cudaDeviceProp has fewer members. Under nvcc this is NVIDIA's header (make gpu-check).
#ifndef WEIR_CUDA_H
#define WEIR_CUDA_H

#ifdef __NVCC__
#include <cuda_runtime.h>
#else

#include <stddef.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ __inline__ __attribute__((always_inline))

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    __host__ __device__ constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_) {}
};

// The built-in variables: reading a member reads the special register.
#define WEIR_COMPONENT(name, sreg, c)                                                              \
    __declspec(property(get = get_##c)) unsigned c;                                                \
    static __device__ __forceinline__ unsigned get_##c() {                                         \
        return __nvvm_read_ptx_sreg_##sreg##_##c();                                                \
    }
#define WEIR_BUILTIN(name, sreg)                                                                   \
    struct weir_##name {                                                                           \
        WEIR_COMPONENT(name, sreg, x)                                                              \
        WEIR_COMPONENT(name, sreg, y)                                                              \
        WEIR_COMPONENT(name, sreg, z)                                                              \
    };                                                                                             \
    extern const __device__ __attribute__((weak)) weir_##name name;
WEIR_BUILTIN(threadIdx, tid)
WEIR_BUILTIN(blockIdx, ctaid)
WEIR_BUILTIN(blockDim, ntid)
WEIR_BUILTIN(gridDim, nctaid)
#define warpSize 32

static __device__ __forceinline__ int atomicAdd(int *at, int value) {
    return __nvvm_atom_add_gen_i(at, value);
}
static __device__ __forceinline__ unsigned atomicAdd(unsigned *at, unsigned value) {
    return (unsigned)__nvvm_atom_add_gen_i((int *)at, (int)value);
}
static __device__ __forceinline__ unsigned long long atomicAdd(unsigned long long *at,
                                                               unsigned long long value) {
    return (unsigned long long)__nvvm_atom_add_gen_ll((long long *)at, (long long)value);
}
static __device__ __forceinline__ float atomicAdd(float *at, float value) {
    return __nvvm_atom_add_gen_f(at, value);
}
static __device__ __forceinline__ double atomicAdd(double *at, double value) {
    return __nvvm_atom_add_gen_d(at, value);
}
static __device__ __forceinline__ int atomicMax(int *at, int value) {
    return __nvvm_atom_max_gen_i(at, value);
}
static __device__ __forceinline__ unsigned atomicCAS(unsigned *at, unsigned was, unsigned value) {
    return (unsigned)__nvvm_atom_cas_gen_i((int *)at, (int)was, (int)value);
}
static __device__ __forceinline__ unsigned long long __umul64hi(unsigned long long a,
                                                                unsigned long long b) {
    return __nvvm_mulhi_ull(a, b);
}
static __device__ __forceinline__ long long __mul64hi(long long a, long long b) {
    return __nvvm_mulhi_ll(a, b);
}
static __device__ __forceinline__ float __fmaf_rn(float a, float b, float c) {
    return __nvvm_fma_rn_f(a, b, c);
}
static __device__ __forceinline__ float __shfl_down_sync(unsigned mask, float value, unsigned by) {
    return __nvvm_shfl_sync_down_f32(mask, value, by, warpSize - 1);
}
static __device__ __forceinline__ unsigned long long weir_globaltimer() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct cudaArray *cudaArray_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidKernelImage = 200,
    cudaErrorInvalidPtx = 218,
    cudaErrorSharedObjectInitFailed = 303,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

#define cudaStreamDefault 0u
#define cudaStreamNonBlocking 1u
#define cudaEventDefault 0u
#define cudaEventBlockingSync 1u
#define cudaEventDisableTiming 2u
#define cudaMemAttachGlobal 1u

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2,
};
enum cudaLimit { cudaLimitStackSize = 0, cudaLimitPrintfFifoSize = 1, cudaLimitMallocHeapSize = 2 };
enum cudaChannelFormatKind {
    cudaChannelFormatKindSigned = 0,
    cudaChannelFormatKindUnsigned = 1,
    cudaChannelFormatKindFloat = 2,
};
// Bits of each component.
struct cudaChannelFormatDesc {
    int x, y, z, w;
    cudaChannelFormatKind f;
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, maxThreadsPerBlock, clockRate;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};

extern "C" {
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t = 0);
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                               size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice);
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost);
cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol);
cudaError_t cudaMemset(void *pointer, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t = 0);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t);
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t);

cudaError_t cudaMallocArray(cudaArray_t *, const cudaChannelFormatDesc *, size_t width,
                            size_t height = 0, unsigned flags = 0);
cudaError_t cudaFreeArray(cudaArray_t);
cudaError_t cudaMemcpy2DToArray(cudaArray_t, size_t x_bytes, size_t y, const void *from,
                                size_t pitch, size_t width_bytes, size_t height, cudaMemcpyKind);
cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_t, size_t x_bytes, size_t y,
                                  size_t width_bytes, size_t height, cudaMemcpyKind);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit);
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t value);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);

cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t);
const char *cudaGetErrorString(cudaError_t);

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t);
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared_bytes, cudaStream_t);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *function);

// What the compiler calls for kernel<<<grid, block, shared_bytes, stream>>>(...).
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes = 0,
                                     cudaStream_t = 0);
}

template <typename T> cudaError_t cudaMalloc(T **pointer, size_t bytes) {
    return cudaMalloc((void **)pointer, bytes);
}
template <typename T> cudaError_t cudaMallocManaged(T **pointer, size_t bytes) {
    return cudaMallocManaged((void **)pointer, bytes);
}
template <typename T> cudaError_t cudaMallocHost(T **pointer, size_t bytes) {
    return cudaMallocHost((void **)pointer, bytes);
}

#endif
#endif
