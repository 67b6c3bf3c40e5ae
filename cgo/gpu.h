// gpu.h: which GPU of the control page a device of the driver is: they are matched by UUID, since
// ordinals differ (CUDA_VISIBLE_DEVICES, containers that see some GPUs only).
#ifndef WEIR_GPU_H
#define WEIR_GPU_H

#include "cuda.h"
#include "state.h"

int weir_gpu_learn(struct weir_state *state, CUdevice device);

// Makes gpus[device] known. 0; or EINVAL for an ordinal out of range, ENODEV where the driver does
// not tell its UUID, EDEADLK where this thread holds the lock.
static inline int weir_gpu_know(struct weir_state *state, CUdevice device) {
    if ((unsigned)device >= WEIR_ORDINALS_MAX)
        return EINVAL;
    if (__atomic_load_n(&state->gpus[device].known, __ATOMIC_ACQUIRE))
        return 0;
    return weir_gpu_learn(state, device);
}

// The number by which the state knows the GPU with this UUID: its ordinal where that is known, else
// a place of its own. WEIR_NO_INDEX where there is none left, or this thread holds the lock.
uint32_t weir_gpu_number(struct weir_state *state, const uint8_t uuid[16]);

#endif
