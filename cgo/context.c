// context.c: contexts that a program makes and ends by itself. What a context takes is charged
// before it is made (making.h); what it holds is freed with it, and so is what that was charged.
// owner.h says why its owners are retired before the driver is called.
#include "gpu.h"
#include "hooks.h"
#include "making.h"
#include "timed.h"

static uint64_t handle_of(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

static CUresult destroy(uint64_t handle) {
    return WEIR_REAL(cuCtxDestroy_v2)((CUcontext)(uintptr_t)handle);
}

static CUresult settle(struct weir_making *making, CUresult result, CUcontext *context) {
    uint64_t handle = result ? 0 : handle_of(*context);
    return making->state ? weir_making_end(making, result, handle, destroy, handle) : result;
}

// Makes a context by one of the driver's calls; `call` is evaluated between charge and settlement.
// Without a place for the handle none is made.
#define MAKE(context, device, call)                                                                \
    ({                                                                                             \
        struct weir_making making = {.state = NULL};                                               \
        CUresult result = context ? weir_making_begin(&making, device) : CUDA_SUCCESS;             \
        if (result == CUDA_SUCCESS)                                                                \
            result = settle(&making, call, context);                                               \
        result;                                                                                    \
    })

CUresult weir_cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    return MAKE(context, device, WEIR_REAL(cuCtxCreate)(context, flags, device));
}

CUresult weir_cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    return MAKE(context, device, WEIR_REAL(cuCtxCreate_v2)(context, flags, device));
}

CUresult weir_cuCtxCreate_v3(CUcontext *context, void *affinity, int affinities, unsigned flags,
                             CUdevice device) {
    return MAKE(context, device,
                WEIR_REAL(cuCtxCreate_v3)(context, affinity, affinities, flags, device));
}

CUresult weir_cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
    return MAKE(context, device, WEIR_REAL(cuCtxCreate_v4)(context, params, flags, device));
}

CUresult weir_cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    return MAKE(context, device, WEIR_REAL(cuGLCtxCreate)(context, flags, device));
}

CUresult weir_cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    return MAKE(context, device, WEIR_REAL(cuGLCtxCreate_v2)(context, flags, device));
}

CUresult weir_cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device,
                               uint32_t vdp_device, void *vdp_get_proc_address) {
    return MAKE(
        context, device,
        WEIR_REAL(cuVDPAUCtxCreate)(context, flags, device, vdp_device, vdp_get_proc_address));
}

CUresult weir_cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device,
                                  uint32_t vdp_device, void *vdp_get_proc_address) {
    return MAKE(
        context, device,
        WEIR_REAL(cuVDPAUCtxCreate_v2)(context, flags, device, vdp_device, vdp_get_proc_address));
}

CUresult weir_cuCtxDestroy_v2(CUcontext context) {
    struct weir_state *state;
    uint32_t ticket = weir_ending_begin(&state, handle_of(context));
    weir_timed_context_ending(context);
    CUresult result = WEIR_REAL(cuCtxDestroy_v2)(context);
    weir_ending_end(state, ticket, result == CUDA_SUCCESS);
    return result;
}

CUresult weir_cuCtxDestroy(CUcontext context) {
    struct weir_state *state;
    uint32_t ticket = weir_ending_begin(&state, handle_of(context));
    weir_timed_context_ending(context);
    CUresult result = WEIR_REAL(cuCtxDestroy)(context);
    weir_ending_end(state, ticket, result == CUDA_SUCCESS);
    return result;
}

// Counts the attachments of a context beyond its first, `change` being +1 or -1. Returns whether it
// had one to lose.
static int count_attached(struct weir_state *state, uint64_t handle, int change) {
    if (weir_lock(&state->lock))
        return 1;
    struct weir_context *context = weir_contexts_find(state, handle);
    int had = context && context->attached;
    if (context && (change > 0 || had))
        context->attached += (uint64_t)(int64_t)change;
    weir_unlock(&state->lock);
    return had;
}

// One that was not seen to begin gets a record now.
CUresult weir_cuCtxAttach(CUcontext *context, unsigned flags) {
    struct weir_state *state;
    CUdevice device;
    CUresult result = WEIR_REAL(cuCtxAttach)(context, flags);
    if (result != CUDA_SUCCESS || !context || !weir_enforced(&state) ||
        WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || weir_gpu_know(state, device) != 0)
        return result;
    struct weir_context record = {.handle = handle_of(*context), .gpu = (uint32_t)device};
    uint32_t place;
    weir_contexts_enter(state, &record, &place);
    count_attached(state, record.handle, 1);
    return result;
}

CUresult weir_cuCtxDetach(CUcontext context) {
    struct weir_state *state;
    struct weir_context record = {.handle = 0};
    if (!weir_enforced(&state) || weir_contexts_look(state, handle_of(context), &record) != 0 ||
        !record.attached)
        weir_timed_context_ending(context);
    uint32_t ticket = weir_ending_begin(&state, handle_of(context));
    CUresult result = WEIR_REAL(cuCtxDetach)(context);
    weir_ending_end(state, ticket,
                    result == CUDA_SUCCESS && ticket &&
                        !count_attached(state, handle_of(context), -1));
    return result;
}
