// gpu.h: what the demo programs share: the driver, found at run time as CUDA programs do, and
// the kernels, as PTX that the driver compiles.
//
// They are plain driver API programs: they run the same on a real GPU and on the simulated one, and
// know nothing of weir.
#ifndef WEIR_DEMO_GPU_H
#define WEIR_DEMO_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_ERROR_OUT_OF_MEMORY = 2 };

// The driver's functions, by the names under which it exports them.
struct driver {
    int (*cuInit)(unsigned flags);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int bytes, int device);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxSynchronize)(void);
    int (*cuMemGetInfo_v2)(size_t *free_bytes, size_t *total_bytes);
    int (*cuMemAlloc_v2)(uint64_t *address, size_t bytes);
    int (*cuMemFree_v2)(uint64_t address);
    int (*cuMemcpyHtoD_v2)(uint64_t to, const void *from, size_t bytes);
    int (*cuMemcpyDtoH_v2)(void *to, uint64_t from, size_t bytes);
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void *stream, void **parameters, void **extra);
};

extern struct driver cu;

// Loads the driver and takes device 0. Ends the program with a message where that fails.
void gpu_open(const char *program);

// A kernel of the PTX that the program carries.
void *gpu_kernel(const char *ptx, const char *name);

// Ends the program unless `code` is success.
void must(const char *what, int code);

// One line of output, at once, with the program's name before it.
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

// Whether standard input has ended, which asks the program to finish; waits so long for it.
bool asked_to_finish(int wait_ms);

// An argument that is a number of at least 1; ends the program with `usage` where it is not.
long positive(const char *argument, const char *usage);

// Puts a text file into the program as a zero-terminated string.
#define CARRY(symbol, path)                                                                        \
    __asm__(".section .rodata\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.previous");           \
    extern const char symbol[]

#endif
