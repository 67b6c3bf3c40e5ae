// gpu.c: see gpu.h. The driver is asked for the UUID of a device once.
#include "gpu.h"

#include <string.h>

#include "credit.h"
#include "hooks.h"

// Fills in a place of the state. Lock held.
static void enter(struct weir_state *state, struct weir_gpu *gpu, const uint8_t uuid[16]) {
    memcpy(gpu->uuid, uuid, sizeof(gpu->uuid));
    uint32_t index = state->page_open ? weir_credit_index(state, gpu->uuid) : WEIR_NO_INDEX;
    __atomic_store_n(&gpu->index, index, __ATOMIC_RELAXED);
    __atomic_store_n(&gpu->known, 1, __ATOMIC_RELEASE);
    uint32_t used = (uint32_t)(gpu - state->gpus) + 1;
    if (used > state->gpus_used)
        __atomic_store_n(&state->gpus_used, used, __ATOMIC_RELAXED);
}

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
    if (!gpu->known)
        enter(state, gpu, uuid.bytes);
    weir_unlock(&state->lock);
    return 0;
}

uint32_t weir_gpu_number(struct weir_state *state, const uint8_t uuid[16]) {
    if (weir_lock(&state->lock))
        return WEIR_NO_INDEX;
    uint32_t number = 0, room = WEIR_NO_INDEX;
    for (; number < WEIR_NUMBERS_MAX; number++) {
        const struct weir_gpu *gpu = &state->gpus[number];
        if (gpu->known && memcmp(gpu->uuid, uuid, sizeof(gpu->uuid)) == 0)
            break;
        if (!gpu->known && number >= WEIR_ORDINALS_MAX && room == WEIR_NO_INDEX)
            room = number;
    }
    if (number == WEIR_NUMBERS_MAX) {
        number = room;
        if (room != WEIR_NO_INDEX)
            enter(state, &state->gpus[room], uuid);
    }
    weir_unlock(&state->lock);
    return number;
}
