// gpu.c: asks the driver for the UUID of a device, once.
#include "gpu.h"

#include <string.h>

#include "credit.h"
#include "hooks.h"

int weir_gpu_learn(struct weir_state *state, CUdevice device) {
    CUuuid uuid;
    // The second form tells MIG instances apart; drivers before 11.4 have the first only.
    if (WEIR_REAL(cuDeviceGetUuid_v2)(&uuid, device) != CUDA_SUCCESS &&
        WEIR_REAL(cuDeviceGetUuid)(&uuid, device) != CUDA_SUCCESS)
        return ENODEV;
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    struct weir_gpu *gpu = &state->gpus[device];
    if (!gpu->known) {
        memcpy(gpu->uuid, uuid.bytes, sizeof(gpu->uuid));
        uint32_t index = state->page_open ? weir_credit_index(state, gpu->uuid) : WEIR_NO_INDEX;
        __atomic_store_n(&gpu->index, index, __ATOMIC_RELAXED);
        __atomic_store_n(&gpu->known, 1, __ATOMIC_RELEASE);
    }
    weir_unlock(&state->lock);
    return 0;
}
