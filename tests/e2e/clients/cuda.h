// cuda.h: the part of the driver API that test clients and benchmarks call, declared from its
// documented form, and how such a program begins.
#ifndef WEIR_E2E_CUDA_H
#define WEIR_E2E_CUDA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
};

enum { CU_MEM_ATTACH_GLOBAL = 1 };

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height,
                       unsigned element_bytes);
int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags);
int cuMemFree_v2(uint64_t address);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream);
int cuMemFreeAsync(uint64_t address, void *stream);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags);
int cuGraphLaunch(void *exec, void *stream);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);
int cuGetExportTable(const void **table, const void *id);

typedef int launch_fn(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void *stream, void **parameters, void **extra);
launch_fn cuLaunchKernel;

typedef int alloc_fn(uint64_t *address, size_t bytes);
typedef int free_fn(uint64_t address);

// Makes the primary context of a device current in this thread. The driver's code.
static inline int use_gpu(int ordinal) {
    int device, code = cuInit(0);
    void *context;
    if (!code)
        code = cuDeviceGet(&device, ordinal);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, device);
    return code ? code : cuCtxSetCurrent(context);
}

// A kernel of a PTX file. The driver's code, or -1 where the file cannot be read.
static inline int load_kernel(const char *path, const char *name, void **function) {
    static char ptx[1 << 20];
    void *module;
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(ptx, 1, sizeof(ptx) - 1, file) : 0;
    if (file)
        fclose(file);
    if (bytes == 0)
        return -1;
    ptx[bytes] = 0;
    int code = cuModuleLoadData(&module, ptx);
    return code ? code : cuModuleGetFunction(function, module, name);
}

#endif
