// trail.c: see trail.h.
#include "trail.h"

#include "capture.h"
#include "gate.h"

#define WITHOUT_TIMES 2u  // flag of an event

// ---- The lane's thread ----

// Counted in the lane: a counter of all threads would cost each of them more than its calls.
static void count(struct weir_trail *trail, uint64_t calls) {
    WEIR_PUT(trail->calls, trail->calls + calls);
}

static CUresult record(struct weir_trail *trail, CUevent *event, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    if (!*event) {
        count(trail, 1);
        result = WEIR_REAL(cuEventCreate)(event, WITHOUT_TIMES);
    }
    count(trail, 1);
    return result ? result : WEIR_REAL(cuEventRecord)(*event, stream);
}

static int has_come(CUevent event) {
    return WEIR_REAL(cuEventQuery)(event) != CUDA_ERROR_NOT_READY;
}

// While something is captured elsewhere the call is made so that it does not disturb that; this
// stream is not, since its launch was none of a capture.
void weir_trail_mark(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_trail *trail = &lane->trail;
    uint32_t at = trail->head % WEIR_TRAIL_EVENTS;
    int captures = __atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE) != 0;
    if (WEIR_GET(trail->refused))
        return;
    int mode = captures ? weir_capture_relax() : -1;
    CUresult result = record(trail, &trail->events[at], lane->stream);
    weir_capture_restore(mode);
    if (result != CUDA_SUCCESS) {
        WEIR_PUT(trail->refused, !captures);
        return;
    }
    WEIR_PUT(trail->work_ns[at], lane->work_ns);
    __atomic_store_n(&trail->launches[at], lane->launches, __ATOMIC_RELEASE);
    __atomic_store_n(&trail->head, trail->head + 1, __ATOMIC_RELEASE);
    // What is older than the events is forgotten.
    if (trail->head - trail->tail > WEIR_TRAIL_EVENTS)
        trail->tail = trail->head - WEIR_TRAIL_EVENTS;
}

void weir_trail_ask(struct weir_busy *busy, struct weir_busy_lane *lane) {
    if (__atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE))
        return;
    int mode = weir_capture_relax();
    count(&lane->trail, 3);
    if (WEIR_REAL(cuStreamQuery)(lane->stream) == CUDA_SUCCESS)
        weir_busy_done(lane, lane->launches, lane->work_ns);
    weir_capture_restore(mode);
}

uint32_t weir_trail_left(struct weir_busy_lane *lane) {
    struct weir_trail *trail = &lane->trail;
    int mode = trail->tail == trail->head ? -1 : weir_capture_relax();
    while (trail->tail != trail->head) {
        uint32_t at = trail->tail % WEIR_TRAIL_EVENTS;
        if (WEIR_GET(lane->done) < trail->launches[at]) {
            count(trail, 1);
            if (!has_come(trail->events[at]))
                break;
        }
        weir_busy_done(lane, trail->launches[at], trail->work_ns[at]);
        trail->tail++;
    }
    weir_capture_restore(mode);
    return trail->head - trail->tail;
}

// ---- The helper ----

int weir_trail_can(const struct weir_busy *busy, const struct weir_busy_lane *lane) {
    return !__atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE) &&
           !__atomic_load_n(&lane->dead, __ATOMIC_ACQUIRE) && !WEIR_GET(lane->ended) &&
           WEIR_GET(lane->context) && WEIR_GET(lane->entry) &&
           (uintptr_t)WEIR_GET(lane->stream) != CU_STREAM_PER_THREAD;
}

// Whether the lane's thread may be in the driver.
static int is_under_way(const struct weir_busy_lane *lane) {
    const uint64_t *entry = __atomic_load_n(&lane->entry, __ATOMIC_ACQUIRE);
    return !entry || weir_gate_is_inside(__atomic_load_n(entry, __ATOMIC_ACQUIRE));
}

static int is_current(struct weir_busy *busy, CUcontext context) {
    if (busy->current == context)
        return 1;
    int good = WEIR_REAL(cuCtxSetCurrent)(context) == CUDA_SUCCESS;
    busy->current = good ? context : NULL;
    return good;
}

// Asks the stream whether it has come to its end. Nothing is recorded behind it: that would wait
// for a place where the driver's queue is full, and in the default stream make an order between all
// others.
static void look_behind(struct weir_busy *busy, struct weir_busy_lane *lane) {
    CUstream stream = WEIR_GET(lane->stream);
    uint64_t work_ns = WEIR_GET(lane->work_ns);
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
    if (is_under_way(lane) ||
        ((uintptr_t)stream <= CU_STREAM_PER_THREAD && !is_current(busy, WEIR_GET(lane->context))))
        return;
    __atomic_fetch_add(&busy->polls, 1, __ATOMIC_RELAXED);
    if (WEIR_REAL(cuStreamQuery)(stream) == CUDA_SUCCESS)
        weir_busy_done(lane, launches, work_ns);
}

// Asks for the thread's events, from the oldest on, until one has not come. Driving. A newer one
// may have taken the place of one that is asked for, which is not told too much.
static void look_at_marks(struct weir_busy *busy, struct weir_busy_lane *lane) {
    const struct weir_trail *trail = &lane->trail;
    uint32_t head = __atomic_load_n(&trail->head, __ATOMIC_ACQUIRE);
    uint32_t at = head < WEIR_TRAIL_EVENTS ? 0 : head - WEIR_TRAIL_EVENTS;
    for (; at != head; at++) {
        uint32_t place = at % WEIR_TRAIL_EVENTS;
        uint64_t launches = __atomic_load_n(&trail->launches[place], __ATOMIC_ACQUIRE);
        uint64_t work_ns = WEIR_GET(trail->work_ns[place]);
        if (launches <= WEIR_GET(lane->done))
            continue;
        __atomic_fetch_add(&busy->polls, 1, __ATOMIC_RELAXED);
        if (!has_come(WEIR_GET(trail->events[place])))
            return;
        weir_busy_done(lane, launches, work_ns);
    }
}

void weir_trail_see(struct weir_busy *busy, struct weir_busy_lane *lane) {
    if (!weir_lock_try(&busy->driving))
        return;
    if (WEIR_GET(lane->thread) && !__atomic_load_n(&lane->dead, __ATOMIC_SEQ_CST))
        look_at_marks(busy, lane);
    weir_unlock(&busy->driving);
}

// Driving.
static void look(struct weir_busy *busy, struct weir_busy_lane *lane, int may_ask) {
    const struct weir_trail *trail = &lane->trail;
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
    uint32_t head = __atomic_load_n(&trail->head, __ATOMIC_ACQUIRE);
    uint64_t marked = head ? WEIR_GET(trail->launches[(head - 1) % WEIR_TRAIL_EVENTS]) : 0;
    look_at_marks(busy, lane);
    if (may_ask && WEIR_GET(lane->done) < launches && marked < launches &&
        weir_trail_can(busy, lane))
        look_behind(busy, lane);
}

int weir_trail_look(struct weir_busy *busy, struct weir_busy_lane *lane, int may_ask) {
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&lane->done, __ATOMIC_RELAXED) >= launches)
        return 1;
    if (weir_lock(&busy->driving))
        return 0;
    if (!busy->relaxed) {
        busy->relaxed = 1;
        weir_capture_relax();
    }
    if (WEIR_GET(lane->thread) && !__atomic_load_n(&lane->dead, __ATOMIC_SEQ_CST))
        look(busy, lane, may_ask);
    weir_unlock(&busy->driving);
    return __atomic_load_n(&lane->done, __ATOMIC_RELAXED) >= launches;
}
