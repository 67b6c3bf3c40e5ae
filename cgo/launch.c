// launch.c: launches of kernels, by whatever export. What they say to the scheduler of time is
// timed.h's; the driver is called with what the program gave, in any case.
//
// Each export has two forms of itself: one that serves what nearly all launches are, in one line
// and without a call but the driver's, and one that serves all else. Which memory a launch of known
// parameters uses only the latter looks at, which is called often enough for that (used.h); of
// launches of which it cannot be told, both say that all may be used.
#include "contexts.h"
#include "hooks.h"
#include "state.h"
#include "timed.h"
#include "used.h"

// What tells one launch of a kernel from another. The driver takes no grid of more than 31 bits in
// x and 16 in y and z.
static inline uint64_t grid_word(unsigned x, unsigned y, unsigned z) {
    return (uint64_t)x ^ (uint64_t)y << 31 ^ (uint64_t)z << 47;
}

static inline uint64_t block_word(unsigned x, unsigned y, unsigned z, unsigned shared_bytes) {
    return (uint64_t)x ^ (uint64_t)y << 11 ^ (uint64_t)z << 22 ^ (uint64_t)shared_bytes << 32;
}

// The wrapper of an export with such parameters, which it is called with as `arguments`. Where
// `given` is 0 it is the driver's to say what is wrong. `uses` looks at what the launch uses, and
// `quick_uses` where all is known.
#define LAUNCH(export, given, grid, block, stream, per_thread, parameters, arguments, uses,        \
               quick_uses)                                                                         \
    static WEIR_RARE CUresult export##_slow parameters {                                           \
        if (!(given))                                                                              \
            return WEIR_REAL(export) arguments;                                                    \
        struct weir_timed op;                                                                      \
        weir_timed_begin(&op, stream, per_thread, (uint64_t)(uintptr_t)function, grid, block,      \
                         WEIR_TIMED_GATED);                                                        \
        uses;                                                                                      \
        return weir_timed_end(&op, WEIR_REAL(export) arguments);                                   \
    }                                                                                              \
    CUresult weir_##export parameters {                                                            \
        export##_fn *driver = (export##_fn *)weir_real_known(WEIR_FN_##export);                    \
        struct weir_quick quick;                                                                   \
        if (__builtin_expect(!(given) || !driver ||                                                \
                                 !weir_quick_begin(&quick, stream, per_thread,                     \
                                                   (uint64_t)(uintptr_t)function, grid, block),    \
                             0))                                                                   \
            return export##_slow arguments;                                                        \
        quick_uses;                                                                                \
        return weir_quick_end(&quick, driver arguments);                                           \
    }

#define ITS(params, extra) weir_used_kernel(op.launch.lane, function, params, extra)
#define ANY weir_used_any()
#define NOTHING

#define GRID grid_word(grid_x, grid_y, grid_z)
#define BLOCK block_word(block_x, block_y, block_z, shared_bytes)

#define KERNEL                                                                                     \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,    \
     void **extra)
#define ITS_KERNEL                                                                                 \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,    \
     extra)
LAUNCH(cuLaunchKernel, 1, GRID, BLOCK, stream, 0, KERNEL, ITS_KERNEL, ITS(params, extra), NOTHING)
LAUNCH(cuLaunchKernel_ptsz, 1, GRID, BLOCK, stream, 1, KERNEL, ITS_KERNEL, ITS(params, extra),
       NOTHING)

#define COOPERATIVE                                                                                \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params)
#define ITS_COOPERATIVE                                                                            \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params)
LAUNCH(cuLaunchCooperativeKernel, 1, GRID, BLOCK, stream, 0, COOPERATIVE, ITS_COOPERATIVE,
       ITS(params, NULL), NOTHING)
LAUNCH(cuLaunchCooperativeKernel_ptsz, 1, GRID, BLOCK, stream, 1, COOPERATIVE, ITS_COOPERATIVE,
       ITS(params, NULL), NOTHING)

#define CONFIG_GRID grid_word(config->gridDimX, config->gridDimY, config->gridDimZ)
#define CONFIG_BLOCK                                                                               \
    block_word(config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes)

#define CONFIGURED (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
#define ITS_CONFIGURED (config, function, params, extra)
LAUNCH(cuLaunchKernelEx, config, CONFIG_GRID, CONFIG_BLOCK, config->hStream, 0, CONFIGURED,
       ITS_CONFIGURED, ITS(params, extra), NOTHING)
LAUNCH(cuLaunchKernelEx_ptsz, config, CONFIG_GRID, CONFIG_BLOCK, config->hStream, 1, CONFIGURED,
       ITS_CONFIGURED, ITS(params, extra), NOTHING)

// ---- As the first versions launched: the block is a setting of the function ----

#define PLANE grid_word((unsigned)width, (unsigned)height, 1)
LAUNCH(cuLaunch, 1, 1, 0, NULL, 0, (CUfunction function), (function), ANY, ANY)
LAUNCH(cuLaunchGrid, 1, PLANE, 0, NULL, 0, (CUfunction function, int width, int height),
       (function, width, height), ANY, ANY)
LAUNCH(cuLaunchGridAsync, 1, PLANE, 0, stream, 0,
       (CUfunction function, int width, int height, CUstream stream),
       (function, width, height, stream), ANY, ANY)
