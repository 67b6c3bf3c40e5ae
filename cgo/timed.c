// timed.c: see timed.h. What is not the common case: the first launch of a process, of a thread in
// a stream, or on a GPU; launches while something is captured; those that are measured.
#include "timed.h"

#include "attend.h"
#include "gpu.h"
#include "helper.h"
#include "streams.h"
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

// Lock held; there are pages.
static void set_number(struct weir_time *time, uint32_t ordinal, uint32_t index) {
    struct weir_busy_gpu *gpu = &time->busy.gpus[ordinal];
    int listed = index < WEIR_GPUS_MAX;
    const struct weir_gpu_control *page = listed ? &time->state->control->gpus[index] : NULL;
    WEIR_PUT(time->usage, time->state->usage);
    WEIR_PUT(gpu->rivals, listed ? &page->turns : NULL);
    WEIR_PUT(gpu->lease, listed ? &page->lease : NULL);
    WEIR_PUT(time->numbers[ordinal], listed ? index + 1 : 0);
}

void weir_time_bind(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_SEQ_CST);
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_SEQ_CST);
    if (!time || !page || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++) {
        const struct weir_gpu *gpu = &state->gpus[i];
        set_number(time, i, gpu->known ? gpu->index : WEIR_NO_INDEX);
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
    if (state->control)
        set_number(time, ordinal, state->gpus[ordinal].index);
    weir_unlock(&state->lock);
    return WEIR_GET(time->numbers[ordinal]);
}

CUcontext weir_timed_context(void) {
    CUcontext context = NULL;
    return WEIR_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

// Without a word, or where the lane is that of a thread that has ended and had the same place in
// memory, the lane becomes this one's first.
struct weir_busy_lane *weir_timed_lane(struct weir_time *time, CUcontext context, CUstream stream) {
    struct weir_gate_word *word = weir_gate_mine;
    struct weir_busy_lane *lane =
        word ? weir_busy_lane(&time->busy, weir_sys_self(), context, stream) : NULL;
    if (lane &&
        (WEIR_GET(lane->tid) != WEIR_GET(word->tid) || WEIR_GET(lane->entry) != &word->state))
        lane =
            weir_busy_lane_find(&time->busy, weir_sys_self(), context, WEIR_GET(lane->gpu), stream);
    if (lane)
        WEIR_PUT(word->last, lane);
    return lane;
}

// What a call is, as its hook has said it.
struct call {
    CUstream stream;
    uint64_t what, size, shape;
    enum weir_timed_how how;
};

// Work that has no lane.
static struct weir_timed go_uncounted(struct weir_time *time, uint32_t gpu, uint32_t ordinal,
                                      const struct call *call) {
    struct weir_timed op = {.time = time, .gpu = gpu, .gated = call->how == WEIR_TIMED_GATED};
    if (op.gated)
        op.pass = weir_window_enter_loose(time, gpu, ordinal);
    weir_timed_set_active(time, gpu);
    return op;
}

static int is_captured(struct weir_time *time, CUstream stream) {
    return WEIR_GET(time->busy.captures) && weir_busy_is_captured(&time->busy, stream);
}

// This thread's lane for work on a device, made if need be; NULL where there is none.
static struct weir_busy_lane *lane_on(struct weir_time *time, CUcontext context, uint32_t ordinal,
                                      CUstream stream) {
    weir_gate_know(&time->gate);  // by which it is seen that its lanes are nobody's any more
    struct weir_busy_lane *lane =
        weir_busy_lane_find(&time->busy, weir_sys_self(), context, ordinal, stream);
    lane = lane && lane->gpu == ordinal ? lane : NULL;
    if (lane && WEIR_GET(time->busy.captures))
        WEIR_PUT(lane->mark_at_ns, 0);
    return lane;
}

// Work in a stream of a context, for a device by its ordinal.
static struct weir_timed go(struct weir_time *time, CUcontext context, uint32_t ordinal,
                            const struct call *call) {
    const struct weir_timed nothing = {.time = NULL};
    uint32_t number = is_captured(time, call->stream) ? 0 : number_of(time, ordinal);
    if (!number)
        return nothing;
    struct weir_busy_lane *lane = lane_on(time, context, ordinal, call->stream);
    struct weir_busy_kind kind = weir_busy_kind(call->what, call->size, call->shape, ordinal);
    if (lane)
        return weir_timed_go(time, number - 1, lane, NULL, kind, call->how);
    struct weir_timed op = go_uncounted(time, number - 1, ordinal, call);
    weir_busy_loose(&time->busy, ordinal, kind);
    return op;
}

// Where this process's launches are counted; NULL: they are none of weir's.
static struct weir_time *time_of(void) {
    struct weir_state *state;
    return weir_enforced(&state) ? weir_time_make(state) : NULL;
}

// Remembers the current context if there has been no other, so that it need not be asked for.
static void keep_sole(struct weir_time *time, CUcontext context) {
    struct weir_state *state = time->state;
    uint64_t handle = (uint64_t)(uintptr_t)context;
    if (__atomic_load_n(&time->sole, __ATOMIC_RELAXED) || weir_lock(&state->lock))
        return;
    if (state->contexts_used == 1 && state->contexts[0].handle == handle)
        __atomic_store_n(&time->sole, context, __ATOMIC_RELAXED);
    weir_unlock(&state->lock);
}

void weir_time_several(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_ACQUIRE);
    if (time)
        __atomic_store_n(&time->sole, NULL, __ATOMIC_RELAXED);
}

// The context and device of a stream, which need not be the current ones: a thread may launch in a
// stream of another context, or without one. Whether they can be told.
static int owner_of(CUstream stream, CUcontext *context, CUdevice *device) {
    int own = (uintptr_t)stream > CU_STREAM_PER_THREAD;
    if (!own || WEIR_REAL(cuStreamGetCtx)(stream, context) != CUDA_SUCCESS)
        *context = weir_timed_context();
    return *context && weir_stream_device(own ? stream : NULL, device) == CUDA_SUCCESS &&
           *device >= 0;
}

struct weir_timed weir_timed_begin_slow(CUstream stream, uint64_t what, uint64_t size,
                                        uint64_t shape, enum weir_timed_how how) {
    const struct call call = {stream, what, size, shape, how};
    struct weir_time *time = time_of();
    CUcontext context;
    CUdevice device;
    if (!time)
        return (struct weir_timed){.time = NULL};
    context = WEIR_GET(time->sole) ? WEIR_GET(time->sole) : weir_timed_context();
    const struct weir_busy_lane *lane = weir_timed_lane(time, context, stream);
    if (lane)
        return go(time, context, WEIR_GET(lane->gpu), &call);
    if (!owner_of(stream, &context, &device))
        return (struct weir_timed){.time = NULL};
    keep_sole(time, context);
    return go(time, context, (uint32_t)device, &call);
}

int weir_timed_try(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                   const struct weir_gate_tries *tries) {
    struct weir_time *time = time_of();
    int passes = !time || is_captured(time, weir_timed_stream(stream, per_thread));
    uint32_t number = passes ? 0 : number_of(time, ordinal);
    *op = (struct weir_timed){.time = NULL};
    if (!number)
        return 1;
    *op = (struct weir_timed){.time = time, .gpu = number - 1, .gated = 1};
    return weir_gate_enter_now(&time->gate, op->gpu, tries, &op->pass);
}

void weir_timed_await(const struct weir_timed *op, struct weir_gate_tries *tries) {
    weir_gate_await(&op->time->gate, op->gpu, tries);
}

void weir_timed_count(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                      uint64_t what, uint64_t size, uint64_t shape) {
    struct weir_time *time = op->time;
    CUcontext context = NULL;
    CUdevice device;
    stream = weir_timed_stream(stream, per_thread);
    if (!time)
        return;
    int known = owner_of(stream, &context, &device);
    struct weir_busy_lane *lane = known ? lane_on(time, context, ordinal, stream) : NULL;
    struct weir_busy_kind kind = weir_busy_kind(what, size, shape, ordinal);
    if (lane)
        op->launch = weir_busy_begin_in(&time->busy, lane, kind);
    else
        weir_busy_loose(&time->busy, ordinal, kind);
    weir_timed_set_active(time, op->gpu);
}

void weir_timed_end_slow(struct weir_time *time, struct weir_busy_lane *lane, uint64_t added_ns,
                         struct weir_busy_mark *mark, uint32_t marked, CUresult result) {
    struct weir_busy_launch launch = {lane, added_ns, mark};
    weir_busy_end(&time->busy, &launch, result);
    if (marked && lane)
        weir_trail_mark(&time->busy, lane);
}

void weir_timed_synced(CUstream stream, int per_thread, int whole_context) {
    struct weir_time *time = weir_time_known();
    CUcontext context = time ? WEIR_GET(time->sole) : NULL;
    if (time && !context)
        context = weir_timed_context();
    if (time)
        weir_busy_synced(&time->busy, context,
                         whole_context ? NULL : weir_timed_stream(stream, per_thread));
}

void weir_timed_capture_begin(CUstream stream, int per_thread) {
    struct weir_time *time = time_of();
    CUcontext context;
    CUdevice device;
    stream = weir_timed_stream(stream, per_thread);
    if (time && owner_of(stream, &context, &device))
        weir_busy_capture_begin(&time->busy, context, stream);
}

// A stream is known by its handle, whichever context is current.
void weir_timed_capture_end(CUstream stream, int per_thread) {
    struct weir_time *time = weir_time_known();
    if (time)
        weir_busy_capture_end(&time->busy, stream ? NULL : weir_timed_context(),
                              weir_timed_stream(stream, per_thread));
}

void weir_timed_stream_ending(CUstream stream) {
    struct weir_time *time = weir_time_known();
    if (time && (uintptr_t)stream > CU_STREAM_PER_THREAD)
        weir_busy_stream_end(&time->busy, stream);
}

void weir_timed_context_ending(CUcontext context) {
    struct weir_time *time = weir_time_known();
    if (!time || !context)
        return;
    weir_time_several(time->state);
    weir_busy_context_end(&time->busy, context);
}
