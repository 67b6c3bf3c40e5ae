// launch.c: launches of kernels, by whatever export. What they say to the scheduler of time is
// timed.h's; the driver is called with what the program gave, in any case.
#include "contexts.h"
#include "hooks.h"
#include "state.h"
#include "timed.h"

// What tells one launch of a kernel from another. The driver takes no grid of more than 31 bits in
// x and 16 in y and z.
static inline uint64_t grid_word(unsigned x, unsigned y, unsigned z) {
    return (uint64_t)x ^ (uint64_t)y << 31 ^ (uint64_t)z << 47;
}

static inline uint64_t block_word(unsigned x, unsigned y, unsigned z, unsigned shared_bytes) {
    return (uint64_t)x ^ (uint64_t)y << 11 ^ (uint64_t)z << 22 ^ (uint64_t)shared_bytes << 32;
}

// `call` is evaluated between begin and end; its result is that of all this.
#define LAUNCH(function, grid, block, stream, per_thread, call)                                    \
    ({                                                                                             \
        struct weir_timed op;                                                                      \
        weir_timed_begin(&op, stream, per_thread, (uint64_t)(uintptr_t)(function), grid, block,    \
                         WEIR_TIMED_GATED);                                                        \
        weir_timed_end(&op, call);                                                                 \
    })

#define GRID grid_word(grid_x, grid_y, grid_z)
#define BLOCK block_word(block_x, block_y, block_z, shared_bytes)

CUresult weir_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream, void **params, void **extra) {
    return LAUNCH(function, GRID, BLOCK, stream, 0,
                  WEIR_REAL(cuLaunchKernel)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                            block_z, shared_bytes, stream, params, extra));
}

CUresult weir_cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, CUstream stream,
                                  void **params, void **extra) {
    return LAUNCH(function, GRID, BLOCK, stream, 1,
                  WEIR_REAL(cuLaunchKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                                 block_z, shared_bytes, stream, params, extra));
}

CUresult weir_cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes, CUstream stream,
                                        void **params) {
    return LAUNCH(function, GRID, BLOCK, stream, 0,
                  WEIR_REAL(cuLaunchCooperativeKernel)(function, grid_x, grid_y, grid_z, block_x,
                                                       block_y, block_z, shared_bytes, stream,
                                                       params));
}

CUresult weir_cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                             unsigned grid_z, unsigned block_x, unsigned block_y,
                                             unsigned block_z, unsigned shared_bytes,
                                             CUstream stream, void **params) {
    return LAUNCH(function, GRID, BLOCK, stream, 1,
                  WEIR_REAL(cuLaunchCooperativeKernel_ptsz)(function, grid_x, grid_y, grid_z,
                                                            block_x, block_y, block_z, shared_bytes,
                                                            stream, params));
}

#define CONFIG_GRID grid_word(config->gridDimX, config->gridDimY, config->gridDimZ)
#define CONFIG_BLOCK                                                                               \
    block_word(config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes)

// Without a configuration it is the driver's to say what is wrong.
CUresult weir_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra) {
    if (!config)
        return WEIR_REAL(cuLaunchKernelEx)(config, function, params, extra);
    return LAUNCH(function, CONFIG_GRID, CONFIG_BLOCK, config->hStream, 0,
                  WEIR_REAL(cuLaunchKernelEx)(config, function, params, extra));
}

CUresult weir_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                    void **params, void **extra) {
    if (!config)
        return WEIR_REAL(cuLaunchKernelEx_ptsz)(config, function, params, extra);
    return LAUNCH(function, CONFIG_GRID, CONFIG_BLOCK, config->hStream, 1,
                  WEIR_REAL(cuLaunchKernelEx_ptsz)(config, function, params, extra));
}

// ---- As the first versions launched: the block is a setting of the function ----

CUresult weir_cuLaunch(CUfunction function) {
    return LAUNCH(function, 1, 0, NULL, 0, WEIR_REAL(cuLaunch)(function));
}

CUresult weir_cuLaunchGrid(CUfunction function, int width, int height) {
    return LAUNCH(function, grid_word((unsigned)width, (unsigned)height, 1), 0, NULL, 0,
                  WEIR_REAL(cuLaunchGrid)(function, width, height));
}

CUresult weir_cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return LAUNCH(function, grid_word((unsigned)width, (unsigned)height, 1), 0, stream, 0,
                  WEIR_REAL(cuLaunchGridAsync)(function, width, height, stream));
}
