// launchmany.c: the launch of one kernel on several devices at once, of which each counts for its
// own device. It goes through all their gates or none: who waits for one device is inside no
// other's gate.
#include "hooks.h"
#include "state.h"
#include "streams.h"
#include "timed.h"
#include "used.h"

struct part {
    const CUDA_LAUNCH_PARAMS *launch;
    uint32_t ordinal;
};

// The parts whose devices can be told, in ascending order. How many those are.
static unsigned sort_parts(struct part *parts, const CUDA_LAUNCH_PARAMS *launches,
                           unsigned devices) {
    unsigned count = 0;
    for (unsigned i = 0; i < devices; i++) {
        CUdevice device;
        if (weir_stream_device(launches[i].hStream, &device) != CUDA_SUCCESS || device < 0)
            continue;
        unsigned at = count++;
        for (; at && parts[at - 1].ordinal > (uint32_t)device; at--)
            parts[at] = parts[at - 1];
        parts[at] = (struct part){&launches[i], (uint32_t)device};
    }
    return count;
}

static void count_part(struct weir_timed *op, const struct part *part) {
    const CUDA_LAUNCH_PARAMS *launch = part->launch;
    uint64_t grid = (uint64_t)launch->gridDimX ^ (uint64_t)launch->gridDimY << 31 ^
                    (uint64_t)launch->gridDimZ << 47;
    uint64_t block = (uint64_t)launch->blockDimX ^ (uint64_t)launch->blockDimY << 11 ^
                     (uint64_t)launch->blockDimZ << 22 ^ (uint64_t)launch->sharedMemBytes << 32;
    weir_timed_count(op, part->ordinal, launch->hStream, 0, (uint64_t)(uintptr_t)launch->function,
                     grid, block);
}

static void begin(struct weir_timed *ops, const struct part *parts, unsigned count) {
    struct weir_gate_tries tries = {0, 0};
    for (unsigned i = 0; i < count;) {
        if (weir_timed_try(&ops[i], parts[i].ordinal, parts[i].launch->hStream, 0, &tries)) {
            i++;
            continue;
        }
        const struct weir_timed closed = ops[i];
        while (i)
            weir_timed_end(&ops[--i], CUDA_SUCCESS);
        weir_timed_await(&closed, &tries);
    }
    for (unsigned i = 0; i < count; i++)
        count_part(&ops[i], &parts[i]);
}

// More devices than there are, or none, the driver refuses.
CUresult weir_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned devices,
                                                   unsigned flags) {
    struct part parts[WEIR_ORDINALS_MAX];
    struct weir_timed ops[WEIR_ORDINALS_MAX];
    unsigned count = 0;
    if (launches && devices <= WEIR_ORDINALS_MAX && !weir_passing())
        count = sort_parts(parts, launches, devices);
    begin(ops, parts, count);
    weir_used_any();
    CUresult result = WEIR_REAL(cuLaunchCooperativeKernelMultiDevice)(launches, devices, flags);
    while (count)
        weir_timed_end(&ops[--count], result);
    return result;
}
