// Kernels: what the compiler's start-up code registers, loaded on the first use of one of its
// names, and launched.
//
// The compiler embeds the PTX of a source file and registers, before main, its kernels and
// variables by the address of their host stand-ins. An image stays registered until the process
// ends.
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1
#define THREADS_MAX 1024

struct wrapper {
    int magic, version;
    const void *data;
    void *unused;
};

struct image {
    const void *data;
    CUlibrary library;
    CUmodule modules[DEVICES_MAX];
};

// A kernel or variable, by the address of what stands for it on the host.
struct entry {
    const void *host;
    const char *name;
    struct image *image;
    bool is_variable;
    CUfunction functions[DEVICES_MAX];
    CUdeviceptr addresses[DEVICES_MAX];
    size_t bytes;
    struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards all of it
static struct entry *entries;

API void **__cudaRegisterFatBinary(void *data);
API void __cudaRegisterFatBinaryEnd(void **image);
API void __cudaUnregisterFatBinary(void **image);
API void __cudaRegisterFunction(void **image, const char *host, char *stub, const char *name,
                                int threads_max, void *tid, void *bid, struct dim3 *block,
                                struct dim3 *grid, int *warp);
API void __cudaRegisterVar(void **image, char *host, char *address, const char *name, int is_extern,
                           size_t bytes, int is_constant, int is_global);
API unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared_bytes,
                                         CUstream stream);
API cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block,
                                           size_t *shared_bytes, CUstream *stream);

API void **__cudaRegisterFatBinary(void *data) {
    const struct wrapper *wrapper = data;
    struct image *image = calloc(1, sizeof(*image));
    if (image && wrapper->magic == WRAPPER_MAGIC)
        image->data = wrapper->data;
    return (void **)image;
}

API void __cudaRegisterFatBinaryEnd(void **image) {
    (void)image;
}

API void __cudaUnregisterFatBinary(void **image) {
    (void)image;
}

static void add_entry(void **image, const void *host, const char *name, bool is_variable,
                      size_t bytes) {
    struct entry *e = image ? calloc(1, sizeof(*e)) : NULL;
    if (!e)
        return;  // a use of the name then fails
    e->host = host;
    e->name = name;
    e->image = (struct image *)image;
    e->is_variable = is_variable;
    e->bytes = bytes;
    pthread_mutex_lock(&lock);
    e->next = entries;
    entries = e;
    pthread_mutex_unlock(&lock);
}

API void __cudaRegisterFunction(void **image, const char *host, char *stub, const char *name,
                                int threads_max, void *tid, void *bid, struct dim3 *block,
                                struct dim3 *grid, int *warp) {
    (void)stub, (void)threads_max, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    add_entry(image, host, name, false, 0);
}

API void __cudaRegisterVar(void **image, char *host, char *address, const char *name, int is_extern,
                           size_t bytes, int is_constant, int is_global) {
    (void)address, (void)is_extern, (void)is_constant, (void)is_global;
    add_entry(image, host, name, true, bytes);
}

// Loads an image on a device. Drivers from before CUDA 12 have modules only.
static cudaError_t load(struct image *image, int device) {
    if (image->modules[device])
        return cudaSuccess;
    if (!image->data)
        return cudaErrorInvalidDeviceFunction;
    cudaError_t err = cudaErrorNotSupported;
    if (driver.cuLibraryLoadData && driver.cuLibraryGetModule) {
        err = image->library ? cudaSuccess
                             : driver.cuLibraryLoadData(&image->library, image->data, NULL, NULL, 0,
                                                        NULL, NULL, 0);
        if (err == cudaSuccess)
            err = driver.cuLibraryGetModule(&image->modules[device], image->library);
    }
    if (err == cudaErrorNotSupported && driver.cuModuleLoadData)
        err = driver.cuModuleLoadData(&image->modules[device], image->data);
    return err;
}

static cudaError_t resolve(struct entry *e, int device) {
    cudaError_t err = load(e->image, device);
    if (err != cudaSuccess)
        return err;
    CUmodule module = e->image->modules[device];
    err = cudaErrorNotSupported;
    if (e->is_variable && driver.cuModuleGetGlobal)
        err = driver.cuModuleGetGlobal(&e->addresses[device], &e->bytes, module, e->name);
    else if (!e->is_variable && driver.cuModuleGetFunction)
        err = driver.cuModuleGetFunction(&e->functions[device], module, e->name);
    if (err != cudaErrorSymbolNotFound)
        return err;
    return e->is_variable ? cudaErrorInvalidSymbol : cudaErrorInvalidDeviceFunction;
}

// Finds a kernel or variable on the current device, loading its image where that was not done.
static cudaError_t find(const void *host, bool is_variable, struct entry *found, int *device) {
    cudaError_t err = runtime_context(device);
    if (err != cudaSuccess)
        return err;
    pthread_mutex_lock(&lock);
    struct entry *e = entries;
    while (e && (e->host != host || e->is_variable != is_variable))
        e = e->next;
    if (!e)
        err = is_variable ? cudaErrorInvalidSymbol : cudaErrorInvalidDeviceFunction;
    else if (!e->functions[*device] && !e->addresses[*device])
        err = resolve(e, *device);
    if (err == cudaSuccess)
        *found = *e;
    pthread_mutex_unlock(&lock);
    return err;
}

void runtime_forget_modules(int device) {
    pthread_mutex_lock(&lock);
    for (struct entry *e = entries; e; e = e->next) {
        e->functions[device] = NULL;
        e->addresses[device] = 0;
        e->image->modules[device] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

// What <<<...>>> pushes and the kernel's stand-in pops: one deep is all that the compiler makes.
static __thread struct {
    struct dim3 grid, block;
    size_t shared_bytes;
    CUstream stream;
} configuration;

API unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared_bytes,
                                         CUstream stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared_bytes = shared_bytes;
    configuration.stream = stream;
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block,
                                           size_t *shared_bytes, CUstream *stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    *stream = configuration.stream;
    return cudaSuccess;
}

// What both forms of a launch begin with.
static cudaError_t find_launch(const void *function, struct dim3 grid, struct dim3 block,
                               size_t shared_bytes, CUfunction *found) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > THREADS_MAX ||
        shared_bytes > UINT32_MAX)
        return cudaErrorInvalidConfiguration;
    struct entry e;
    int device;
    cudaError_t err = find(function, false, &e, &device);
    if (err == cudaSuccess)
        *found = e.functions[device];
    return err;
}

API cudaError_t cudaLaunchKernel(const void *function, struct dim3 grid, struct dim3 block,
                                 void **arguments, size_t shared_bytes, CUstream stream) {
    CUfunction found;
    cudaError_t err = find_launch(function, grid, block, shared_bytes, &found);
    if (err != cudaSuccess)
        return runtime_error(err);
    return CALL(cuLaunchKernel, found, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                (unsigned)shared_bytes, stream, arguments, NULL);
}

API cudaError_t cudaLaunchCooperativeKernel(const void *function, struct dim3 grid,
                                            struct dim3 block, void **arguments,
                                            size_t shared_bytes, CUstream stream) {
    CUfunction found;
    cudaError_t err = find_launch(function, grid, block, shared_bytes, &found);
    if (err != cudaSuccess)
        return runtime_error(err);
    return CALL(cuLaunchCooperativeKernel, found, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                (unsigned)shared_bytes, stream, arguments);
}

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    enum { THREADS, SHARED, CONSTANT, LOCAL, REGISTERS, PTX, BINARY, COUNT };
    struct entry e;
    int device, values[COUNT];
    if (!attributes)
        return runtime_error(cudaErrorInvalidValue);
    cudaError_t err = find(function, false, &e, &device);
    if (err == cudaSuccess && !driver.cuFuncGetAttribute)
        err = cudaErrorNotSupported;
    for (int k = 0; k < COUNT && err == cudaSuccess; k++)
        err = driver.cuFuncGetAttribute(&values[k], k, e.functions[device]);
    if (err != cudaSuccess)
        return runtime_error(err);
    *attributes = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)values[SHARED],
        .constSizeBytes = (size_t)values[CONSTANT],
        .localSizeBytes = (size_t)values[LOCAL],
        .maxThreadsPerBlock = values[THREADS],
        .numRegs = values[REGISTERS],
        .ptxVersion = values[PTX],
        .binaryVersion = values[BINARY],
    };
    return cudaSuccess;
}

API cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    struct entry e;
    int device;
    if (!pointer)
        return runtime_error(cudaErrorInvalidValue);
    cudaError_t err = find(symbol, true, &e, &device);
    if (err == cudaSuccess)
        *pointer = (void *)(uintptr_t)e.addresses[device];
    return runtime_error(err);
}

// The address of bytes [offset, offset + bytes) of a variable.
static cudaError_t part_of_symbol(const void *symbol, size_t bytes, size_t offset,
                                  CUdeviceptr *at) {
    struct entry e;
    int device;
    cudaError_t err = find(symbol, true, &e, &device);
    if (err == cudaSuccess && (offset > e.bytes || bytes > e.bytes - offset))
        err = cudaErrorInvalidValue;
    if (err == cudaSuccess)
        *at = e.addresses[device] + offset;
    return runtime_error(err);
}

API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                                   size_t offset, int kind) {
    CUdeviceptr at = 0;
    cudaError_t err = part_of_symbol(symbol, bytes, offset, &at);
    if (err != cudaSuccess)
        return err;
    if (kind == 3)  // device to device
        return CALL(cuMemcpyDtoD, at, (CUdeviceptr)(uintptr_t)from, bytes);
    return CALL(cuMemcpyHtoD, at, from, bytes);
}

API cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                     int kind) {
    CUdeviceptr at = 0;
    cudaError_t err = part_of_symbol(symbol, bytes, offset, &at);
    if (err != cudaSuccess)
        return err;
    if (kind == 3)
        return CALL(cuMemcpyDtoD, (CUdeviceptr)(uintptr_t)to, at, bytes);
    return CALL(cuMemcpyDtoH, to, at, bytes);
}
