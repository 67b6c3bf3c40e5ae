// busylane.c: the lanes of busy.h, and what ends them: streams, contexts, captures.
//
// A lane is found without the lock by the index, a table of lane numbers that only gets fuller
// until it is made anew; an entry whose lane has another owner by now is passed over.
#include "busy.h"

#include <string.h>
#include <time.h>

#include "gate.h"
#include "hooks.h"

// The longest that the end of a context waits for the helper. Its calls wait for nothing, so only a
// stopped one takes so long.
#define END_WAIT_US 1000000u
#define END_LOOK_US 50u
// What a lane has in place of a stream that is gone: its handle may come again.
#define NO_STREAM ((CUstream)UINTPTR_MAX)

struct weir_busy *weir_busy_open(void) {
    struct weir_busy *busy = weir_sys_map(sizeof(*busy));
    if (busy)
        weir_sys_madvise(busy, sizeof(*busy), WEIR_MADV_WIPEONFORK);
    return busy;
}

typedef int clock_fn(int clock, struct timespec *now);

static int system_clock(int clock, struct timespec *now) {
    return (int)weir_syscall(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
}

uint64_t weir_busy_clock(void) {
    static clock_fn *found;
    clock_fn *clock = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
    if (!clock) {
        clock = (clock_fn *)weir_host_function("clock_gettime");
        clock = clock ? clock : system_clock;
        __atomic_store_n(&found, clock, __ATOMIC_RELEASE);
    }
    struct timespec now = {0, 0};
    clock(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// ---- Lock held ----

// The place of a context; WEIR_BUSY_CONTEXTS where there is none left.
static uint32_t context_place(struct weir_busy *busy, CUcontext context, uint32_t gpu) {
    uint32_t place = WEIR_BUSY_CONTEXTS;
    for (uint32_t i = 0; i < busy->contexts_used; i++) {
        if (busy->contexts[i].handle == context)
            return i;
        if (!busy->contexts[i].handle)
            place = i;
    }
    if (place == WEIR_BUSY_CONTEXTS && busy->contexts_used < WEIR_BUSY_CONTEXTS)
        place = busy->contexts_used++;
    if (place < WEIR_BUSY_CONTEXTS)
        busy->contexts[place] = (struct weir_busy_context){.handle = context, .gpu = gpu};
    return place;
}

static int enter_index(struct weir_busy *busy, uint32_t number) {
    const struct weir_busy_lane *lane = &busy->lanes[number];
    uint32_t home = weir_busy_home(lane->thread, lane->context, lane->stream);
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        uint16_t *at = &busy->index[(home + i) & (WEIR_BUSY_INDEX - 1)];
        if (*at)
            continue;
        __atomic_store_n(at, (uint16_t)(number + 1), __ATOMIC_RELEASE);
        busy->index_used++;
        return 1;
    }
    return 0;
}

// Enters all lanes anew. Who looks meanwhile finds none, and then looks under the lock.
static void remake_index(struct weir_busy *busy) {
    for (uint32_t i = 0; i < WEIR_BUSY_INDEX; i++)
        __atomic_store_n(&busy->index[i], 0, __ATOMIC_RELEASE);
    busy->index_used = 0;
    for (uint32_t i = 0; i < busy->lanes_used; i++)
        if (busy->lanes[i].thread && !busy->lanes[i].ended)
            enter_index(busy, i);
}

// Takes what a lane has counted over into its GPU's books.
static void close_lane(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    gpu->gone_work_ns += lane->work_ns;
    WEIR_PUT(gpu->closed_ns, gpu->closed_ns + lane->work_ns);
    WEIR_PUT(gpu->gone_launches, gpu->gone_launches + lane->launches);
    WEIR_PUT(lane->thread, 0);
    WEIR_PUT(lane->work_ns, 0);
    WEIR_PUT(lane->launches, 0);
    WEIR_PUT(lane->done, 0);
    WEIR_PUT(lane->done_work_ns, 0);
    WEIR_PUT(lane->used_at, 0);
    WEIR_PUT(lane->choose_at, 0);
    lane->count_for = lane->count_vain = 0;
    weir_busy_sample_at(lane, 0);
    WEIR_PUT(lane->mark_at_ns, 0);
    WEIR_PUT(lane->blind, 0);
    WEIR_PUT(lane->moved_ns, 0);
    lane->begun_done = UINT64_MAX;
    lane->due = 0;
    weir_trail_forget(&lane->trail);
}

// A lane that nobody has; NULL where there is none.
static struct weir_busy_lane *free_lane(struct weir_busy *busy) {
    for (uint32_t i = 0; i < busy->lanes_used; i++)
        if (!busy->lanes[i].thread)
            return &busy->lanes[i];
    return busy->lanes_used < WEIR_BUSY_LANES ? &busy->lanes[busy->lanes_used] : NULL;
}

// The calling thread's word at the gate, as far as it has one.
static const uint64_t *own_entry(void) {
    return weir_gate_mine ? &weir_gate_mine->state : NULL;
}

static uint32_t own_tid(void) {
    return weir_gate_mine ? WEIR_GET(weir_gate_mine->tid) : 0;
}

// Says whose a lane is, which is nobody's.
static void give_lane(struct weir_busy *busy, struct weir_busy_lane *lane, uintptr_t thread,
                      CUcontext context, CUstream stream) {
    uint32_t number = (uint32_t)(lane - busy->lanes), gpu = lane->gpu;
    WEIR_PUT(lane->context, context);
    WEIR_PUT(lane->stream, stream);
    WEIR_PUT(lane->entry, own_entry());
    WEIR_PUT(lane->tid, own_tid());
    WEIR_PUT(lane->ended, 0);
    __atomic_store_n(&lane->dead, 0, __ATOMIC_RELEASE);
    WEIR_PUT(lane->wished, 0);
    WEIR_PUT(lane->nudged, 0);
    WEIR_PUT(lane->mark_at_ns, 0);
    lane->place_ns = 0;
    lane->begun_done = UINT64_MAX;
    lane->muted = 0;
    memset(lane->recent, 0, sizeof(lane->recent));
    lane->waits = lane->shy = lane->owed = 0;
    WEIR_PUT(lane->swift, 0);
    lane->still = 0;
    lane->dice = thread ^ (uintptr_t)stream ^ number * 0x9e3779b97f4a7c15u;
    __atomic_store_n(&lane->thread, thread, __ATOMIC_RELEASE);
    if (number == busy->lanes_used)
        __atomic_store_n(&busy->lanes_used, number + 1, __ATOMIC_RELEASE);
    if (!busy->gpus[gpu].used) {
        busy->gpus[gpu].used = 1;
        weir_busytime_step(&busy->gpus[gpu].time, weir_busy_clock(), 0, 0);
    }
    if (busy->index_used > WEIR_BUSY_INDEX / 4 * 3 || !enter_index(busy, number))
        remake_index(busy);
}

// `driving`: that is held, too, so the helper is at no lane.
static struct weir_busy_lane *make_lane(struct weir_busy *busy, uintptr_t thread, CUcontext context,
                                        uint32_t gpu, CUstream stream, int driving) {
    uint32_t place = context_place(busy, context, gpu);
    if (place == WEIR_BUSY_CONTEXTS)
        return NULL;
    struct weir_busy_lane *lane = driving ? weir_busy_take(busy, place) : NULL;
    if (lane && lane->gpu != gpu)
        close_lane(busy, lane);
    lane = lane ? lane : free_lane(busy);
    if (!lane)
        return NULL;
    WEIR_PUT(lane->gpu, gpu);
    WEIR_PUT(lane->place, place);
    give_lane(busy, lane, thread, context, stream);
    return lane;
}

// ---- Lanes ----

// Where the thread that launches has the thread pointer of one that has ended, that one's lanes are
// its own, unless somebody takes them. Whether this one still is.
static int adopt(struct weir_busy *busy, struct weir_busy_lane *lane, uintptr_t thread,
                 CUcontext context, CUstream stream) {
    if (WEIR_GET(lane->tid) == own_tid() && WEIR_GET(lane->entry) == own_entry())
        return 1;
    if (weir_lock(&busy->lock))
        return 0;
    int is = weir_busy_is(lane, thread, context, stream);
    if (is) {
        WEIR_PUT(lane->tid, own_tid());
        __atomic_store_n(&lane->entry, own_entry(), __ATOMIC_RELEASE);
        // All that its thread has written in it is seen from here on.
        (void)__atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
        (void)__atomic_load_n(&lane->head, __ATOMIC_ACQUIRE);
    }
    weir_unlock(&busy->lock);
    return is;
}

// The same, without the index, which may be full here and there.
static struct weir_busy_lane *search(struct weir_busy *busy, uintptr_t thread, CUcontext context,
                                     CUstream stream) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (weir_busy_is(&busy->lanes[i], thread, context, stream))
            return &busy->lanes[i];
    return NULL;
}

// So many launches look for no lane after one that has found none: that takes a while.
#define FULL_LAUNCHES 64u

struct weir_busy_lane *weir_busy_lane_find(struct weir_busy *busy, uintptr_t thread,
                                           CUcontext context, uint32_t gpu, CUstream stream) {
    struct weir_busy_lane *lane = weir_busy_lane(busy, thread, context, stream);
    if (lane && adopt(busy, lane, thread, context, stream))
        return lane;
    uint32_t full = WEIR_GET(busy->full);
    if (full) {
        WEIR_PUT(busy->full, full - 1);
        return NULL;
    }
    lane = search(busy, thread, context, stream);
    if (lane && adopt(busy, lane, thread, context, stream))
        return lane;
    // The helper is not waited for, which may be in the driver, and that may wait for this thread.
    int driving = weir_lock_try(&busy->driving);
    lane = NULL;
    if (gpu < WEIR_BUSY_GPUS && weir_lock(&busy->lock) == 0) {
        lane = make_lane(busy, thread, context, gpu, stream, driving);
        weir_unlock(&busy->lock);
    }
    if (driving)
        weir_unlock(&busy->driving);
    if (!lane && driving)
        WEIR_PUT(busy->full, FULL_LAUNCHES);
    return lane;
}

uint64_t weir_busy_others(const struct weir_busy *busy, const struct weir_busy_lane *lane,
                          uint64_t *work_ns) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    uint64_t launches = WEIR_GET(busy->gpus[lane->gpu].gone_launches);
    const struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    launches += __atomic_load_n(&gpu->loose_launches, __ATOMIC_RELAXED);
    *work_ns = WEIR_GET(gpu->closed_ns) + __atomic_load_n(&gpu->loose_work_ns, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < used; i++) {
        const struct weir_busy_lane *one = &busy->lanes[i];
        if (one == lane || WEIR_GET(one->gpu) != lane->gpu)
            continue;
        launches += __atomic_load_n(&one->launches, __ATOMIC_RELAXED);
        *work_ns += __atomic_load_n(&one->work_ns, __ATOMIC_RELAXED);
    }
    return launches;
}

void weir_busy_shared(struct weir_busy *busy, uint32_t gpu) {
    WEIR_PUT(busy->gpus[gpu].epoch, busy->gpus[gpu].epoch + 1);
}

void weir_busy_unshared(struct weir_busy *busy, uint32_t gpu) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (WEIR_GET(busy->lanes[i].gpu) == gpu) {
            WEIR_PUT(busy->lanes[i].choose_at, 0);
            weir_busy_sample_at(&busy->lanes[i], 0);
        }
}

void weir_busy_synced(struct weir_busy *busy, CUcontext context, CUstream stream) {
    uintptr_t thread = weir_sys_self();
    struct weir_busy_lane *lane = stream ? weir_busy_lane(busy, thread, context, stream) : NULL;
    if (lane) {
        weir_busy_done(lane, lane->launches, lane->work_ns);
        return;
    }
    // A stream of a context that is not current is found by its handle.
    int any = (uintptr_t)stream > CU_STREAM_PER_THREAD;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        lane = &busy->lanes[i];
        if (WEIR_GET(lane->thread) == thread && (any || WEIR_GET(lane->context) == context) &&
            (!stream || WEIR_GET(lane->stream) == stream))
            weir_busy_done(lane, lane->launches, lane->work_ns);
    }
}

// Takes `driving` within a bounded time: a call of the helper's that does not come back must not
// keep the program from what it would end it with.
static int take_driving(struct weir_busy *busy) {
    static const uint32_t never = 0;
    uintptr_t self = weir_sys_self();
    for (uint32_t us = 0; us < WEIR_BUSY_DRIVING_US; us += END_LOOK_US) {
        uintptr_t none = 0;
        if (__atomic_compare_exchange_n(&busy->driving.owner, &none, self, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return 1;
        if (none == self)
            return 0;
        weir_sys_futex_wait(&never, 0, END_LOOK_US);
    }
    return 0;
}

// ---- Captures ----

static void enter_capture(struct weir_busy *busy, CUcontext context, CUstream stream) {
    if (weir_lock(&busy->lock))
        return;
    uint32_t i = 0;
    while (i < WEIR_BUSY_CAPTURES && busy->capture[i].context)
        i++;
    if (i < WEIR_BUSY_CAPTURES) {
        busy->capture[i].context = context;
        busy->capture[i].stream = stream;
    } else {
        busy->unplaced++;
    }
    __atomic_fetch_add(&busy->captures, 1, __ATOMIC_RELEASE);
    weir_unlock(&busy->lock);
}

void weir_busy_capture_begin(struct weir_busy *busy, CUcontext context, CUstream stream) {
    int driving = take_driving(busy);
    enter_capture(busy, context, stream);
    if (driving)
        weir_unlock(&busy->driving);
}

// Lock held. Whether there were any. Those of a stream, or of a whole context where that is NULL;
// of whatever context where that is.
static int forget_captures(struct weir_busy *busy, CUcontext context, CUstream stream) {
    int found = 0;
    for (uint32_t i = 0; i < WEIR_BUSY_CAPTURES; i++)
        if (busy->capture[i].context && (!context || busy->capture[i].context == context) &&
            (!stream || busy->capture[i].stream == stream)) {
            busy->capture[i].context = NULL;
            __atomic_fetch_sub(&busy->captures, 1, __ATOMIC_RELEASE);
            found = 1;
            if (stream)
                break;
        }
    return found;
}

void weir_busy_capture_end(struct weir_busy *busy, CUcontext context, CUstream stream) {
    if (weir_lock(&busy->lock))
        return;
    if (!forget_captures(busy, context, stream) && busy->unplaced) {
        busy->unplaced--;
        __atomic_fetch_sub(&busy->captures, 1, __ATOMIC_RELEASE);
    }
    weir_unlock(&busy->lock);
}

// ---- Ends ----

static void end_stream(struct weir_busy *busy, CUstream stream) {
    if (weir_lock(&busy->lock))
        return;
    forget_captures(busy, NULL, stream);
    for (uint32_t i = 0; i < busy->lanes_used; i++)
        if (busy->lanes[i].thread && busy->lanes[i].stream == stream) {
            WEIR_PUT(busy->lanes[i].stream, NO_STREAM);
            WEIR_PUT(busy->lanes[i].ended, 1);
        }
    weir_unlock(&busy->lock);
}

// What was launched in the stream goes on without it, and nothing else would ever tell that it is
// done: until its context ends, no lane of the GPU would have it to itself.
static void mark_last(struct weir_busy *busy, CUstream stream) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    CUcontext current = NULL;
    for (uint32_t i = 0; i < used; i++) {
        struct weir_busy_lane *lane = &busy->lanes[i];
        if (!__atomic_load_n(&lane->thread, __ATOMIC_ACQUIRE) || WEIR_GET(lane->stream) != stream ||
            WEIR_GET(lane->dead))
            continue;
        if (!current && WEIR_REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS)
            return;
        // An event that is made now is one of the current context.
        if (WEIR_GET(lane->context) == current &&
            !(WEIR_GET(busy->captures) && weir_busy_is_captured(busy, stream)))
            weir_busy_mark_before(busy, lane);
    }
}

void weir_busy_stream_end(struct weir_busy *busy, CUstream stream) {
    mark_last(busy, stream);
    int driving = take_driving(busy);
    end_stream(busy, stream);
    if (driving)
        weir_unlock(&busy->driving);
}

void weir_busy_drop_marks(struct weir_busy_lane *lane) {
    while (lane->tail != __atomic_load_n(&lane->head, __ATOMIC_ACQUIRE)) {
        const struct weir_busy_mark *mark = &lane->marks[lane->tail % WEIR_BUSY_MARKS];
        if (mark->known && WEIR_GET(mark->known->key) == mark->key)
            __atomic_fetch_sub(&mark->known->measuring, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&lane->tail, lane->tail + 1, __ATOMIC_RELEASE);
    }
}

void weir_busy_leave_events(struct weir_busy_lane *lane) {
    for (uint32_t i = 0; i < WEIR_BUSY_MARKS; i++) {
        struct weir_busy_mark *mark = &lane->marks[i];
        mark->hold = mark->start = NULL;
        WEIR_PUT(mark->end, NULL);
    }
    for (uint32_t i = 0; i < WEIR_TRAIL_EVENTS; i++)
        WEIR_PUT(lane->trail.events[i], NULL);
}

void weir_busy_context_end(struct weir_busy *busy, CUcontext context) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    int driving = take_driving(busy);
    for (uint32_t i = 0; i < used; i++)
        if (WEIR_GET(busy->lanes[i].context) == context)
            __atomic_store_n(&busy->lanes[i].dead, 1, __ATOMIC_SEQ_CST);
    if (busy->current == context)
        busy->current = NULL;
    if (driving)
        weir_unlock(&busy->driving);
    for (uint32_t us = 0; us < END_WAIT_US; us += END_LOOK_US) {
        if (!__atomic_load_n(&busy->polling, __ATOMIC_SEQ_CST))
            break;
        weir_sys_futex_wait(&busy->polling, 1, END_LOOK_US);
    }
    if (weir_lock(&busy->lock))
        return;
    forget_captures(busy, context, NULL);
    for (uint32_t i = 0; i < busy->lanes_used; i++) {
        struct weir_busy_lane *lane = &busy->lanes[i];
        if (lane->context != context || !lane->thread)
            continue;
        weir_busy_drop_marks(lane);
        weir_busy_leave_events(lane);
        close_lane(busy, lane);
        WEIR_PUT(lane->context, NULL);
    }
    for (uint32_t i = 0; i < busy->contexts_used; i++)
        if (busy->contexts[i].handle == context)
            busy->contexts[i] = (struct weir_busy_context){.handle = NULL};
    weir_unlock(&busy->lock);
}
