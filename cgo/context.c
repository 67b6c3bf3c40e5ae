// context.c: the ends of contexts. What a context holds is freed with it, and so is what it was
// charged. owner.h says why its owners are retired before the driver is called.
#include "charge.h"
#include "hooks.h"

static uint64_t handle_of(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

// After the driver was asked to end a context.
static void settle(struct weir_state *state, uint32_t ticket, int ended) {
    if (ended)
        weir_context_ended(state, ticket);
    else
        weir_context_restore(state, ticket);
}

CUresult weir_cuCtxDestroy_v2(CUcontext context) {
    struct weir_state *state;
    uint32_t ticket = weir_context_retire(&state, handle_of(context));
    CUresult result = WEIR_REAL(cuCtxDestroy_v2)(context);
    settle(state, ticket, result == CUDA_SUCCESS);
    return result;
}

CUresult weir_cuCtxDestroy(CUcontext context) {
    struct weir_state *state;
    uint32_t ticket = weir_context_retire(&state, handle_of(context));
    CUresult result = WEIR_REAL(cuCtxDestroy)(context);
    settle(state, ticket, result == CUDA_SUCCESS);
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
        count_attached(state, handle_of(*context), 1);
    return result;
}

CUresult weir_cuCtxDetach(CUcontext context) {
    struct weir_state *state;
    uint32_t ticket = weir_context_retire(&state, handle_of(context));
    CUresult result = WEIR_REAL(cuCtxDetach)(context);
    settle(state, ticket,
           result == CUDA_SUCCESS && ticket && !count_attached(state, handle_of(context), -1));
    return result;
}

CUresult weir_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result != CUDA_SUCCESS || !context || (unsigned)device >= WEIR_ORDINALS_MAX ||
        weir_passing() || weir_enter(&state) != WEIR_MODE_ENFORCED)
        return result;
    __atomic_store_n(&state->gpus[device].primary, handle_of(*context), __ATOMIC_RELAXED);
    return result;
}

// Retires the owners of a device's primary context; 0 where none is known.
static uint32_t retire_primary(struct weir_state **state, CUdevice device) {
    if ((unsigned)device >= WEIR_ORDINALS_MAX || !weir_enforced(state))
        return 0;
    uint64_t context = __atomic_load_n(&(*state)->gpus[device].primary, __ATOMIC_RELAXED);
    return context ? weir_context_retire(state, context) : 0;
}

// The last release ends the primary context. Where another thread retains it anew between the
// release and our look, its charges stay until their addresses are used again.
static int primary_ended(CUdevice device) {
    unsigned flags;
    int active;
    return WEIR_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS &&
           !active;
}

CUresult weir_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    struct weir_state *state;
    uint32_t ticket = retire_primary(&state, device);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    settle(state, ticket, ticket && result == CUDA_SUCCESS && primary_ended(device));
    return result;
}

CUresult weir_cuDevicePrimaryCtxRelease(CUdevice device) {
    struct weir_state *state;
    uint32_t ticket = retire_primary(&state, device);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease)(device);
    settle(state, ticket, ticket && result == CUDA_SUCCESS && primary_ended(device));
    return result;
}

// A reset ends it in any case.
CUresult weir_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    struct weir_state *state;
    uint32_t ticket = retire_primary(&state, device);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset_v2)(device);
    settle(state, ticket, result == CUDA_SUCCESS);
    return result;
}

CUresult weir_cuDevicePrimaryCtxReset(CUdevice device) {
    struct weir_state *state;
    uint32_t ticket = retire_primary(&state, device);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset)(device);
    settle(state, ticket, result == CUDA_SUCCESS);
    return result;
}
