// context.c: the ends of contexts. What a context holds is freed with it, and so is what it was
// charged.
//
// Which allocations are meant is settled before the driver is called, by the stamp of the latest
// one: the driver may give the same handle to a new context while we still look for those of the
// old.
#include "charge.h"
#include "hooks.h"

// The stamp of the latest allocation, or 0 where nothing can have been charged.
static uint64_t latest_stamp(struct weir_state **state) {
    return weir_enforced(state) ? __atomic_load_n(&(*state)->stamp, __ATOMIC_ACQUIRE) : 0;
}

CUresult weir_cuCtxDestroy_v2(CUcontext context) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuCtxDestroy_v2)(context);
    if (result == CUDA_SUCCESS && stamp)
        weir_discharge_context(state, (uint64_t)(uintptr_t)context, stamp);
    return result;
}

CUresult weir_cuCtxDestroy(CUcontext context) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuCtxDestroy)(context);
    if (result == CUDA_SUCCESS && stamp)
        weir_discharge_context(state, (uint64_t)(uintptr_t)context, stamp);
    return result;
}

// Counts the attachments of a context beyond its first, `change` being +1 or -1. Returns whether it
// had one to lose; 1 also where there are too many contexts to tell, since then none may count as
// ended.
static int count_attached(struct weir_state *state, uint64_t context, int change) {
    struct weir_attached *room = NULL;
    if (weir_lock(&state->lock))
        return 1;
    int had = (int)state->attached_lost;
    for (uint32_t i = 0; i < WEIR_ATTACHED_MAX; i++) {
        struct weir_attached *attached = &state->attached[i];
        if (attached->count && attached->context == context) {
            attached->count += (uint64_t)(int64_t)change;
            weir_unlock(&state->lock);
            return 1;
        }
        if (!attached->count)
            room = attached;
    }
    if (change > 0 && room)
        *room = (struct weir_attached){context, 1};
    else if (change > 0)
        state->attached_lost = 1;
    weir_unlock(&state->lock);
    return had;
}

CUresult weir_cuCtxAttach(CUcontext *context, unsigned flags) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS && context && weir_enforced(&state))
        count_attached(state, (uint64_t)(uintptr_t)*context, 1);
    return result;
}

CUresult weir_cuCtxDetach(CUcontext context) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuCtxDetach)(context);
    if (result == CUDA_SUCCESS && weir_enforced(&state) &&
        !count_attached(state, (uint64_t)(uintptr_t)context, -1))
        weir_discharge_context(state, (uint64_t)(uintptr_t)context, stamp);
    return result;
}

CUresult weir_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result != CUDA_SUCCESS || !context || (unsigned)device >= WEIR_ORDINALS_MAX ||
        weir_passing() || weir_enter(&state) != WEIR_MODE_ENFORCED)
        return result;
    __atomic_store_n(&state->gpus[device].primary, (uint64_t)(uintptr_t)*context, __ATOMIC_RELAXED);
    return result;
}

// Takes the charges of a device's primary context back, if that has ended.
static void end_primary(struct weir_state *state, CUdevice device, uint64_t stamp) {
    uint64_t context = __atomic_load_n(&state->gpus[device].primary, __ATOMIC_RELAXED);
    if (context)
        weir_discharge_context(state, context, stamp);
}

// The last release ends the primary context, a reset does in any case. Where another thread retains
// it anew between the release and our look, its charges stay until their addresses are used again.
static void after_release(struct weir_state *state, CUdevice device, uint64_t stamp,
                          CUresult result) {
    unsigned flags;
    int active = 1;
    if (result != CUDA_SUCCESS || !stamp || (unsigned)device >= WEIR_ORDINALS_MAX)
        return;
    if (WEIR_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active)
        end_primary(state, device, stamp);
}

static void after_reset(struct weir_state *state, CUdevice device, uint64_t stamp,
                        CUresult result) {
    if (result == CUDA_SUCCESS && stamp && (unsigned)device < WEIR_ORDINALS_MAX)
        end_primary(state, device, stamp);
}

CUresult weir_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    after_release(state, device, stamp, result);
    return result;
}

CUresult weir_cuDevicePrimaryCtxRelease(CUdevice device) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease)(device);
    after_release(state, device, stamp, result);
    return result;
}

CUresult weir_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset_v2)(device);
    after_reset(state, device, stamp, result);
    return result;
}

CUresult weir_cuDevicePrimaryCtxReset(CUdevice device) {
    struct weir_state *state;
    uint64_t stamp = latest_stamp(&state);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset)(device);
    after_reset(state, device, stamp, result);
    return result;
}
