// primary.c: the primary context of each device, which is made at the first of several retains and
// ends with the last release, and green contexts, each of which retains it.
//
// A green context counts as a context, though it may take less: what it takes, no driver tells.
// Memory allocated under it belongs to it, as to any context.
#include "hooks.h"
#include "making.h"
#include "timed.h"

static uint64_t handle_of(const void *context) {
    return (uint64_t)(uintptr_t)context;
}

// The handle of a primary context, as it was last retained; 0 where none is known.
static uint64_t primary_of(CUdevice device) {
    struct weir_state *state;
    if ((unsigned)device >= WEIR_ORDINALS_MAX || !weir_enforced(&state))
        return 0;
    return __atomic_load_n(&state->gpus[device].primary, __ATOMIC_RELAXED);
}

// Where the driver does not tell, it is taken to be there still.
static int is_active(CUdevice device) {
    unsigned flags;
    int active;
    return WEIR_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || active;
}

// CUDA_SUCCESS only if that ended it: it may have been retained before this library looked.
static CUresult release(uint64_t device) {
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease_v2)((CUdevice)device);
    if (result == CUDA_SUCCESS && is_active((CUdevice)device))
        return CUDA_ERROR_INVALID_CONTEXT;
    return result;
}

CUresult weir_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct weir_making making;
    struct weir_state *state;
    CUresult result = context ? weir_making_begin_primary(&making, device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (!context)
        return result;
    uint64_t handle = result ? 0 : handle_of(*context);
    int known = handle && (unsigned)device < WEIR_ORDINALS_MAX && weir_enforced(&state);
    if (known)
        __atomic_store_n(&state->gpus[device].primary, handle, __ATOMIC_RELAXED);
    result = weir_making_end(&making, result, handle, release, (uint64_t)device);
    if (known && result == CUDA_SUCCESS)
        __atomic_fetch_add(&state->gpus[device].retained, 1, __ATOMIC_RELAXED);
    return result;
}

// Whether a release of a primary context, or another end of what holds it, cannot be its last one:
// more than `own` retains were seen that are not released. Others may hold it too, unseen.
static int is_held(const struct weir_state *state, uint32_t gpu, uint32_t own) {
    return __atomic_load_n(&state->gpus[gpu].retained, __ATOMIC_RELAXED) > own;
}

// An end of the primary context, or what may be one: a release, a reset.
struct end {
    struct weir_state *state;
    uint32_t ticket;  // 0: nothing is known of it
    uint32_t gpu;
};

// The scheduler of time hears of it unless it cannot be the end: `own` of the retains that were
// seen end with it.
static void begin_end(struct end *end, CUdevice device, uint32_t own) {
    uint64_t primary = primary_of(device);
    *end = (struct end){.gpu = (uint32_t)device};
    if (!primary || !weir_enforced(&end->state))
        return;
    weir_turn_take(end->state, end->gpu);
    if (!is_held(end->state, end->gpu, own))
        weir_timed_context_ending((CUcontext)(uintptr_t)primary);
    end->ticket = weir_ending_begin(&end->state, primary_of(device));
    if (!end->ticket)
        weir_turn_end(end->state, end->gpu);
}

// The last release ends it.
static void settle(struct end *end) {
    if (!end->ticket)
        return;
    weir_ending_end(end->state, end->ticket, !is_active((CUdevice)end->gpu));
    weir_turn_end(end->state, end->gpu);
}

// Retains have been released.
static void count_released(const struct end *end, CUresult result, uint32_t count) {
    if (result != CUDA_SUCCESS || !end->state)
        return;
    uint32_t *retained = &end->state->gpus[end->gpu].retained;
    uint32_t seen = __atomic_load_n(retained, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(retained, &seen, seen > count ? seen - count : 0, 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

// A reset frees all that is in it in any case; itself it may outlive.
static void settle_reset(struct end *end, CUresult result) {
    if (!end->ticket || result != CUDA_SUCCESS || !is_active((CUdevice)end->gpu)) {
        settle(end);
        return;
    }
    weir_ending_emptied(end->state, end->ticket);
    weir_turn_end(end->state, end->gpu);
}

CUresult weir_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    struct end end;
    begin_end(&end, device, 1);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    count_released(&end, result, 1);
    settle(&end);
    return result;
}

CUresult weir_cuDevicePrimaryCtxRelease(CUdevice device) {
    struct end end;
    begin_end(&end, device, 1);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxRelease)(device);
    count_released(&end, result, 1);
    settle(&end);
    return result;
}

CUresult weir_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    struct end end;
    begin_end(&end, device, UINT32_MAX);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset_v2)(device);
    count_released(&end, result, UINT32_MAX);
    settle_reset(&end, result);
    return result;
}

CUresult weir_cuDevicePrimaryCtxReset(CUdevice device) {
    struct end end;
    begin_end(&end, device, UINT32_MAX);
    CUresult result = WEIR_REAL(cuDevicePrimaryCtxReset)(device);
    count_released(&end, result, UINT32_MAX);
    settle_reset(&end, result);
    return result;
}

// ---- Green contexts ----

static CUresult destroy_green(uint64_t green) {
    return WEIR_REAL(cuGreenCtxDestroy)((CUgreenCtx)(uintptr_t)green);
}

static CUresult make_green(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                           unsigned flags) {
    struct weir_making making;
    CUresult result = weir_making_begin(&making, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuGreenCtxCreate)(green, resources, device, flags);
    uint64_t handle = result ? 0 : handle_of(*green);
    return weir_making_end(&making, result, handle, destroy_green, handle);
}

// The primary context is retained for the time of the call, so that it is charged by the usual way
// if the green one is the first to need it.
CUresult weir_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                               unsigned flags) {
    CUcontext primary;
    if (!green || !resources || weir_passing())
        return WEIR_REAL(cuGreenCtxCreate)(green, resources, device, flags);
    CUresult result = weir_cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = make_green(green, resources, device, flags);
    weir_cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

// The context that a green one is current as: what is allocated under it ends with the green one.
CUresult weir_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuCtxFromGreenCtx)(context, green);
    if (result != CUDA_SUCCESS || !context || !weir_enforced(&state) || weir_lock(&state->lock))
        return result;
    struct weir_context *record = weir_contexts_find(state, handle_of(green));
    if (record)
        record->other = handle_of(*context);
    weir_unlock(&state->lock);
    return result;
}

CUresult weir_cuGreenCtxDestroy(CUgreenCtx green) {
    struct weir_state *state;
    struct weir_context record = {.handle = 0};
    if (!weir_enforced(&state) || weir_contexts_look(state, handle_of(green), &record) != 0)
        return WEIR_REAL(cuGreenCtxDestroy)(green);
    struct end primary;
    begin_end(&primary, (CUdevice)record.gpu, 0);
    if (record.other)
        weir_timed_context_ending((CUcontext)(uintptr_t)record.other);
    uint32_t ticket = weir_ending_begin(&state, handle_of(green));
    uint32_t other = weir_ending_begin(&state, record.other);
    CUresult result = WEIR_REAL(cuGreenCtxDestroy)(green);
    weir_ending_end(state, ticket, result == CUDA_SUCCESS);
    weir_ending_end(state, other, result == CUDA_SUCCESS);
    settle(&primary);
    return result;
}
