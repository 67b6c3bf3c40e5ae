// timed.c: see timed.h. What is not the common case: the first launch of a process, of a thread in
// a stream, or on a GPU; launches while something is captured; those that are measured.
#include "timed.h"

#include "attend.h"
#include "gpu.h"
#include "helper.h"
#include "trail.h"

struct weir_time *weir_time_make(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_ACQUIRE);
    if (time)
        return time;
    struct weir_time *mine = weir_sys_map(sizeof(*mine));
    if (!mine)
        return NULL;
    weir_sys_madvise(mine, sizeof(*mine), WEIR_MADV_WIPEONFORK);
    mine->state = state;
    mine->gate.agent_alive = weir_attend_agent_alive;
    mine->gate.want = weir_attend_want;
    mine->gate.argument = mine;
    if (!__atomic_compare_exchange_n(&state->time, &time, mine, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_ACQUIRE)) {
        weir_sys_unmap(mine, sizeof(*mine));  // another thread was faster
        return time;
    }
    weir_time_bind(state);
    return mine;
}

void weir_time_bind(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_SEQ_CST);
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_SEQ_CST);
    if (!time || !page || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++) {
        const struct weir_gpu *gpu = &state->gpus[i];
        uint32_t number = gpu->known && gpu->index < WEIR_GPUS_MAX ? gpu->index + 1 : 0;
        __atomic_store_n(&time->numbers[i], number, __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < WEIR_GPUS_MAX; i++)
        weir_gate_bind(&time->gate, i, &page->gpus[i].lease);
    weir_unlock(&state->lock);
}

void weir_time_wipe(struct weir_time *time) {
    weir_sys_madvise(time, sizeof(*time), MADV_DONTNEED);
}

// The number of a GPU in the control page, plus 1; 0 where it is not known or not listed.
static uint32_t number_of(struct weir_time *time, uint32_t ordinal) {
    struct weir_state *state = time->state;
    if (ordinal >= WEIR_ORDINALS_MAX)
        return 0;
    uint32_t number = __atomic_load_n(&time->numbers[ordinal], __ATOMIC_RELAXED);
    if (number)
        return number;
    weir_helper_begin(state);
    weir_helper_start(state);
    if (weir_gpu_know(state, (CUdevice)ordinal) != 0 || weir_lock(&state->lock))
        return 0;
    uint32_t index = state->gpus[ordinal].index;
    number = state->control && index < WEIR_GPUS_MAX ? index + 1 : 0;
    __atomic_store_n(&time->numbers[ordinal], number, __ATOMIC_RELAXED);
    weir_unlock(&state->lock);
    return number;
}

static CUcontext current_context(void) {
    CUcontext context = NULL;
    return WEIR_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

// Without a lane the work is gated, and not counted.
static void go_uncounted(struct weir_timed *op, struct weir_time *time, uint32_t gpu,
                         enum weir_timed_how how) {
    op->time = time;
    op->gpu = gpu;
    op->marked = 0;
    op->launch = (struct weir_busy_launch){NULL, 0, NULL};
    op->gated = how == WEIR_TIMED_GATED;
    if (op->gated)
        op->pass = weir_gate_enter(&time->gate, gpu);
    weir_timed_set_active(time, gpu);
}

// Work in a stream of a context, for a device by its ordinal.
static void go(struct weir_timed *op, struct weir_time *time, CUcontext context, uint32_t ordinal,
               CUstream stream, uint64_t what, uint64_t size, uint64_t shape,
               enum weir_timed_how how) {
    if (__atomic_load_n(&time->busy.captures, __ATOMIC_ACQUIRE) &&
        weir_busy_is_captured(&time->busy, stream))
        return;
    uint32_t number = number_of(time, ordinal);
    if (!number)
        return;
    struct weir_busy_lane *lane =
        weir_busy_lane_find(&time->busy, weir_sys_self(), context, ordinal, stream);
    if (!lane || lane->gpu != ordinal) {
        go_uncounted(op, time, number - 1, how);
        return;
    }
    uint64_t key = weir_busy_key((void *)(uintptr_t)what, size, shape, ordinal);
    weir_timed_go(op, time, number - 1, lane, key, how);
}

// Where this process's launches are counted; NULL: they are none of weir's.
static struct weir_time *time_of(void) {
    struct weir_state *state;
    return weir_enforced(&state) ? weir_time_make(state) : NULL;
}

void weir_timed_begin_slow(struct weir_timed *op, CUcontext context, CUstream stream, uint64_t what,
                           uint64_t size, uint64_t shape, enum weir_timed_how how) {
    CUdevice device;
    op->time = NULL;
    struct weir_time *time = time_of();
    if (!time)
        return;
    context = context ? context : current_context();
    if (!context || WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || device < 0)
        return;
    go(op, time, context, (uint32_t)device, stream, what, size, shape, how);
}

void weir_timed_begin_on(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                         uint64_t what, uint64_t size, uint64_t shape, enum weir_timed_how how) {
    op->time = NULL;
    struct weir_time *time = time_of();
    CUcontext context = NULL;
    if (!time)
        return;
    if ((uintptr_t)stream <= CU_STREAM_PER_THREAD ||
        WEIR_REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS)
        context = current_context();
    if (context)
        go(op, time, context, ordinal, weir_timed_stream(stream, per_thread), what, size, shape,
           how);
}

void weir_timed_end_slow(struct weir_timed *op, CUresult result) {
    weir_busy_end(&op->time->busy, &op->launch, result);
    if (op->marked && op->launch.lane)
        weir_trail_mark(&op->time->busy, op->launch.lane);
}

void weir_timed_synced(CUstream stream, int per_thread, int whole_context) {
    struct weir_time *time = weir_time_known();
    CUcontext context = time ? current_context() : NULL;
    if (context)
        weir_busy_synced(&time->busy, context,
                         whole_context ? NULL : weir_timed_stream(stream, per_thread));
}

void weir_timed_capture_begin(CUstream stream, int per_thread) {
    struct weir_time *time = time_of();
    if (time)
        weir_busy_capture_begin(&time->busy, current_context(),
                                weir_timed_stream(stream, per_thread));
}

void weir_timed_capture_end(CUstream stream, int per_thread) {
    struct weir_time *time = weir_time_known();
    if (time)
        weir_busy_capture_end(&time->busy, current_context(),
                              weir_timed_stream(stream, per_thread));
}

void weir_timed_stream_ending(CUstream stream) {
    struct weir_time *time = weir_time_known();
    if (time && (uintptr_t)stream > CU_STREAM_PER_THREAD)
        weir_busy_stream_end(&time->busy, stream);
}

void weir_timed_context_ending(CUcontext context) {
    struct weir_time *time = weir_time_known();
    if (time && context)
        weir_busy_context_end(&time->busy, context);
}
