// busymark.c: the launches that take longer in busy.h: with a key or in a stream that is new, under
// a capture, and those that are sampled.
#include "busy.h"

#include "capture.h"
#include "hooks.h"

#define LAUNCHES_A_CALL WEIR_BUSY_LAUNCHES_A_CALL
// So far ahead samples of keys that are not known yet may run into debt.
#define DEBT_MAX WEIR_BUSY_DEBT_MAX
// A kernel of at least so much is measured well enough without a hold.
#define HOLD_BELOW_NS 400000u
#define HOLD_BYTES_MAX (1u << 20)
#define HOLD_BYTES_FIRST (512u << 10)
// Work is older than a mark if it was launched so long before it: events may be seen some time
// after they came.
#define BACKLOG_NS 1000000u
// A thread waits so long at most for the end of a launch that is measured.
#define WAIT_OUT_NS_MAX WEIR_BUSY_STILL_NS_MAX
// Within so long all calls have been made before a hold is over.
#define IN_TIME_NS 27000u
#define HOLD_COUNT 3u  // how often a hold is measured
// Launches whose kind is sampled as often as calls allow are looked at so often; and more often as
// long as they may run into debt.
#define EAGER_LAUNCHES (LAUNCHES_A_CALL * 2)
#define EAGER_LAUNCHES_FIRST 16u
// So much of that while others have the GPU, too, and by launches that their family tells of.
#define DEBT_ROUGH_MAX (DEBT_MAX / 4)
#define DEBT_TOLD_MAX (DEBT_MAX / 2)
// A key with so many launches of which its family told is to be measured itself.
#define TOLD_ENOUGH 8u
#define TOLD_MAX WEIR_BUSY_TOLD_MAX
// For so many launches a lane waits for one that is alone; and so often it waits twice as long for
// its next chance, where there was none.
#define WAITS_MAX 16u
#define SHY_MAX 5u

// ---- Calls of the driver's ----

CUresult weir_busy_record(struct weir_busy *busy, CUevent *event, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    if (!*event) {
        __atomic_fetch_add(&busy->calls, 1, __ATOMIC_RELAXED);
        result = WEIR_REAL(cuEventCreate)(event, 0);
    }
    __atomic_fetch_add(&busy->calls, 1, __ATOMIC_RELAXED);
    return result ? result : WEIR_REAL(cuEventRecord)(*event, stream);
}

// The memory that holds set; NULL where there is none to be had.
static void *hold_memory(struct weir_busy *busy, struct weir_busy_context *context) {
    void *memory = __atomic_load_n(&context->hold, __ATOMIC_ACQUIRE), *none = NULL;
    if (memory)
        return memory;
    int mode = weir_capture_relax();
    __atomic_fetch_add(&busy->calls, 3, __ATOMIC_RELAXED);
    CUresult result = WEIR_REAL(cuMemHostAlloc)(
        &memory, HOLD_BYTES_MAX, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS &&
        !__atomic_compare_exchange_n(&context->hold, &none, memory, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        WEIR_REAL(cuMemFreeHost)(memory);  // another thread was faster
        memory = none;
    }
    weir_capture_restore(mode);
    return result == CUDA_SUCCESS ? memory : NULL;
}

static CUresult set(struct weir_busy *busy, void *memory, uint32_t bytes, CUstream stream) {
    __atomic_fetch_add(&busy->calls, 1, __ATOMIC_RELAXED);
    return WEIR_REAL(cuMemsetD8Async)((CUdeviceptr)(uintptr_t)memory, 0, bytes, stream);
}

// Puts a hold into the stream. Where it is to be measured itself, between two events, there is
// another one ahead of it.
static CUresult hold(struct weir_busy *busy, struct weir_busy_lane *lane,
                     struct weir_busy_mark *mark) {
    struct weir_busy_context *context = &busy->contexts[lane->place];
    void *memory = hold_memory(busy, context);
    if (!memory)
        return CUDA_SUCCESS;
    uint32_t bytes = __atomic_load_n(&context->hold_bytes, __ATOMIC_RELAXED);
    mark->held_bytes = bytes ? bytes : HOLD_BYTES_FIRST;
    mark->holds = __atomic_load_n(&context->hold_count, __ATOMIC_RELAXED) < HOLD_COUNT;
    CUresult result = set(busy, memory, mark->held_bytes, lane->stream);
    if (!mark->holds || result != CUDA_SUCCESS)
        return result;
    result = weir_busy_record(busy, &mark->hold, lane->stream);
    return result ? result : set(busy, memory, mark->held_bytes, lane->stream);
}

// Whether an event of the context that this thread launches in has come. Three calls.
int weir_busy_has_come(struct weir_busy *busy, CUevent event) {
    uint64_t none;
    int mode = weir_capture_relax();
    CUresult result = weir_busy_between(busy, event, event, &none);
    weir_capture_restore(mode);
    __atomic_fetch_add(&busy->calls, 2, __ATOMIC_RELAXED);
    return result == CUDA_SUCCESS;
}

int weir_busy_is_captured(struct weir_busy *busy, CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    __atomic_fetch_add(&busy->calls, 1, __ATOMIC_RELAXED);
    return WEIR_REAL(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// ---- Sampling ----

// The next sample is due later by as many launches as these calls are worth.
void weir_busy_pay(struct weir_busy_lane *lane, uint32_t calls) {
    if (lane->due < lane->launches)
        lane->due = lane->launches;
    lane->due += calls * LAUNCHES_A_CALL + (calls ? weir_busy_dice(lane) : 0);
}

// Whether the launch is to be sampled, and how.
enum sample { SAMPLE_NOT, SAMPLE_END, SAMPLE_ALONE, SAMPLE_ROUGH };

// Since when launches of this kind are not known: of those of one function each may be another one.
static uint64_t unknown_since(const struct weir_busy_key *known) {
    uint64_t since_ns = WEIR_GET(known->since_ns);
    const struct weir_busy_family *family = WEIR_GET(known->family);
    uint64_t family_ns = family ? WEIR_GET(family->since_ns) : 0;
    return family_ns && family_ns < since_ns ? family_ns : since_ns;
}

// A lane wants to measure this launch, or another one soon, when it is alone.
static enum sample wait_alone(struct weir_busy *busy, struct weir_busy_lane *lane,
                              struct weir_busy_key *known, const struct weir_told *told) {
    int alone = weir_busy_becomes_alone(busy, lane, told->sure || WEIR_GET(known->sure));
    int is_known = told->sure || WEIR_GET(known->expected_ns);
    int patient = is_known ? ++lane->waits < WAITS_MAX
                           : weir_busy_clock() - unknown_since(known) < WEIR_BUSY_UNKNOWN_NS;
    if (!alone && patient)
        return SAMPLE_NOT;
    lane->waits = 0;
    weir_busy_pay(lane, lane->owed);
    lane->owed = 0;
    if (alone) {
        lane->shy = 0;
        return SAMPLE_ALONE;
    }
    if (WEIR_GET(known->sure))
        lane->shy += lane->shy < SHY_MAX;
    return is_known ? SAMPLE_END : SAMPLE_ROUGH;
}

// Whether this launch should be measured though none is due: what is known of it is too little, or
// was learned before others came.
static int is_wanted(const struct weir_busy *busy, const struct weir_busy_lane *lane,
                     const struct weir_busy_key *known, const struct weir_told *told) {
    const struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    int shared = weir_busy_is_shared(gpu), wanted;
    uint64_t debt_max;
    if (told->sure && !WEIR_GET(known->sure)) {
        uint32_t launches = WEIR_GET(known->told);
        wanted = !shared && (told->epoch != WEIR_GET(gpu->epoch) ||
                             (launches + 1 >= TOLD_ENOUGH && launches < TOLD_MAX));
        debt_max = DEBT_TOLD_MAX;
    } else {
        int better = !WEIR_GET(known->sure) || WEIR_GET(known->eager) ||
                     WEIR_GET(known->epoch) != WEIR_GET(gpu->epoch);
        wanted = !WEIR_GET(known->expected_ns) || (better && !shared);
        debt_max = shared ? DEBT_ROUGH_MAX : DEBT_MAX;
    }
    return wanted && WEIR_GET(known->measuring) < 2 && lane->due < lane->launches + debt_max;
}

// Whether this launch is looked at only to count a guess.
static int is_early(const struct weir_busy_lane *lane, const struct weir_busy_key *known) {
    return WEIR_GET(known->expected_ns) && lane->launches < WEIR_GET(lane->choose_at) &&
           !WEIR_GET(lane->wished) && !WEIR_GET(lane->nudged);
}

static enum sample choose(struct weir_busy *busy, struct weir_busy_lane *lane,
                          struct weir_busy_key *known, const struct weir_told *told) {
    int due = lane->launches >= lane->due || WEIR_GET(lane->nudged);
    int full = lane->head - __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE) >= WEIR_BUSY_MARKS;
    if (full || lane->muted) {
        lane->waits = 0;
        if (due)
            weir_busy_pay(lane, 1);
        return SAMPLE_NOT;
    }
    WEIR_PUT(lane->nudged, 0);
    // Each of our calls takes a place in the driver's queue, which the program may count on: in a
    // backlog there is one of our events at a time.
    if (weir_busy_is_deep(lane) && lane->head != __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE)) {
        lane->waits = 0;
        if (due)
            weir_busy_pay(lane, 1);
        return SAMPLE_NOT;
    }
    if (__atomic_exchange_n(&lane->wished, 0, __ATOMIC_RELAXED))
        return SAMPLE_END;
    if (is_wanted(busy, lane, known, told))
        return wait_alone(busy, lane, known, told);
    if (lane->waits)
        return wait_alone(busy, lane, known, told);
    if (!due)
        return SAMPLE_NOT;
    // Of a family each key has its first chance only.
    if (told->sure && !WEIR_GET(known->sure) && !weir_busy_is_shared(&busy->gpus[lane->gpu]))
        return wait_alone(busy, lane, known, told);
    uint32_t visits = __atomic_add_fetch(&known->visits, 1, __ATOMIC_RELAXED);
    if (!known->expected_ns || visits < WEIR_GET(known->pause) << lane->shy)
        return SAMPLE_END;
    return wait_alone(busy, lane, known, told);
}

// Makes the calls that come before a sampled launch. NULL where the driver refuses them.
static struct weir_busy_mark *begin_mark(struct weir_busy *busy, struct weir_busy_lane *lane,
                                         struct weir_busy_key *known, uint64_t key,
                                         enum sample sample) {
    struct weir_busy_mark *mark = &lane->marks[lane->head % WEIR_BUSY_MARKS];
    int whole = sample != SAMPLE_END;
    mark->known = whole ? known : NULL;
    mark->key = key;
    mark->held_bytes = mark->holds = 0;
    mark->before_ns = weir_busy_clock();
    weir_busy_pay(lane, !whole ? 1 : WEIR_GET(known->eager) ? 2 : 3);
    if (!whole)
        return mark;
    int held = WEIR_GET(known->roughly_ns) < HOLD_BELOW_NS &&
               (WEIR_GET(lane->swift) || !weir_busy_is_deep(lane) || !WEIR_GET(known->sure));
    mark->others = weir_busy_others(busy, lane, &mark->foreign_ns);  // for now, all
    mark->alone = sample == SAMPLE_ALONE;
    mark->shared = (uint32_t)weir_busy_is_shared(&busy->gpus[lane->gpu]);
    __atomic_store_n(&known->visits, 0, __ATOMIC_RELAXED);
    CUresult result = held ? hold(busy, lane, mark) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = weir_busy_record(busy, &mark->start, lane->stream);
    if (result == CUDA_SUCCESS) {
        __atomic_fetch_add(&known->measuring, 1, __ATOMIC_RELAXED);
        return mark;
    }
    weir_busy_end_still(busy, lane);
    lane->muted = 1;
    return NULL;
}

struct weir_busy_launch weir_busy_begin_slow(struct weir_busy *busy, struct weir_busy_lane *lane,
                                             struct weir_busy_kind kind) {
    struct weir_busy_launch launch = {NULL, 0, NULL};
    weir_busy_keep_still(busy, lane);
    int captures = __atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE) != 0;
    struct weir_busy_key *known = weir_busy_key_enter(busy, kind.key);
    struct weir_told told = weir_busy_family_tell(busy, known, &kind, lane->gpu);
    WEIR_PUT(lane->last, known);
    // Our calls disturb no capture: this stream is not captured, or this launch were no work.
    int mode = captures ? weir_capture_relax() : -1;
    if (!lane->launches && !lane->due && WEIR_GET(known->sure))
        weir_busy_pay(lane, 1);  // a stream that is new teaches nothing of a kernel that is known
    enum sample sample = SAMPLE_NOT;
    if (captures || !is_early(lane, known))
        sample = choose(busy, lane, known, &told);
    if (sample != SAMPLE_NOT)
        launch.mark = begin_mark(busy, lane, known, kind.key, sample);
    weir_capture_restore(mode);
    // While it waits to be alone each launch is looked at.
    uint64_t next = lane->waits ? 0 : lane->due;
    if (WEIR_GET(known->eager) && next > lane->launches) {
        int first = lane->due < lane->launches + DEBT_MAX;
        uint64_t soon = lane->launches + (first ? EAGER_LAUNCHES_FIRST : EAGER_LAUNCHES);
        next = soon < next ? soon : next;
    }
    launch.lane = lane;
    launch.added_ns = weir_busy_expect(busy, lane, known, &told, launch.mark);
    WEIR_PUT(lane->choose_at, next);
    // And so are some of those that may have to be corrected, to be counted.
    int counts = lane->count_for && lane->count_at < next;
    weir_busy_sample_at(lane, counts ? lane->count_at : next);
    __atomic_store_n(&lane->work_ns, lane->work_ns + launch.added_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->launches, lane->launches + 1, __ATOMIC_RELEASE);
    return launch;
}

// A launch that the driver refused was none.
static void take_back(struct weir_busy_launch *launch) {
    struct weir_busy_lane *lane = launch->lane;
    __atomic_store_n(&lane->work_ns, lane->work_ns - launch->added_ns, __ATOMIC_RELAXED);
    if (!launch->added_ns && lane->last->unknown)
        __atomic_fetch_sub(&lane->last->unknown, 1, __ATOMIC_RELAXED);
}

// Whether the stream has been at older work ever since before a mark was begun: then the launch was
// in time, however long the calls took.
static int is_backlogged(struct weir_busy *busy, struct weir_busy_lane *lane,
                         const struct weir_busy_mark *mark) {
    const struct weir_busy_mark *last = &lane->marks[(lane->head - 1) % WEIR_BUSY_MARKS];
    if (!lane->head || !last->end || last->after_ns + BACKLOG_NS > mark->before_ns)
        return 0;
    weir_busy_pay(lane, 3);
    return !weir_busy_has_come(busy, last->end);
}

// Launches on the GPU of which nothing was expected, so that their work is not known.
static uint64_t blind_of(const struct weir_busy *busy, const struct weir_busy_lane *lane) {
    return __atomic_load_n(&busy->gpus[lane->gpu].blind, __ATOMIC_RELAXED);
}

// While a hold is in force others' launches may come, and so be ahead of this one; and beside a
// kernel that is long they may run. So this thread waits for its end where it has others at hand,
// to see what they launched until then.
static void wait_out(struct weir_busy *busy, struct weir_busy_lane *lane,
                     struct weir_busy_mark *mark) {
    uint64_t work_before_ns = mark->foreign_ns;
    mark->foreign_ns = UINT64_MAX;
    uint64_t roughly_ns = WEIR_GET(mark->known->roughly_ns);
    if (!mark->others || roughly_ns > WAIT_OUT_NS_MAX / 4 * 3)
        return;
    uint64_t now_ns = mark->after_ns, end_ns = now_ns + WAIT_OUT_NS_MAX;
    for (uint64_t look_ns = now_ns + roughly_ns / 4 * 3; now_ns < end_ns;) {
        uint64_t work_ns;
        if (weir_busy_hurries(&busy->gpus[lane->gpu]))
            return;
        weir_busy_doze();
        now_ns = weir_busy_clock();
        if (now_ns < look_ns)
            continue;
        look_ns = now_ns + (now_ns - mark->after_ns) / 2;  // each look is three calls
        weir_busy_pay(lane, 3);
        if (!weir_busy_has_come(busy, mark->end))
            continue;
        mark->clean = mark->others == weir_busy_others(busy, lane, &work_ns);
        if (mark->blind == blind_of(busy, lane))
            mark->foreign_ns = work_ns - work_before_ns;
        return;
    }
}

void weir_busy_end_slow(struct weir_busy *busy, struct weir_busy_launch *launch, CUresult result) {
    struct weir_busy_lane *lane = launch->lane;
    struct weir_busy_mark *mark = launch->mark;
    if (!lane)
        return;
    if (result != CUDA_SUCCESS)
        take_back(launch);
    if (!mark)
        return;
    int good = result == CUDA_SUCCESS;
    int mode = WEIR_GET(busy->captures) ? weir_capture_relax() : -1;
    if (good && weir_busy_record(busy, &mark->end, lane->stream) != CUDA_SUCCESS) {
        lane->muted = !WEIR_GET(busy->captures);
        good = 0;
    }
    weir_capture_restore(mode);
    if (!good) {
        weir_busy_end_still(busy, lane);
        if (mark->known && WEIR_GET(mark->known->key) == mark->key)
            __atomic_fetch_sub(&mark->known->measuring, 1, __ATOMIC_RELAXED);
        return;
    }
    mark->after_ns = weir_busy_clock();
    mark->blind = blind_of(busy, lane);  // this one included
    mark->in_time = mark->clean = 0;
    if (mark->known && mark->after_ns - mark->before_ns > IN_TIME_NS)
        mark->in_time = is_backlogged(busy, lane, mark);
    if (mark->known && mark->alone)
        wait_out(busy, lane, mark);
    else
        mark->foreign_ns = UINT64_MAX;
    weir_busy_end_still(busy, lane);
    WEIR_PUT(mark->launches, lane->launches);
    mark->work_ns = lane->work_ns;
    __atomic_store_n(&lane->head, lane->head + 1, __ATOMIC_RELEASE);
}
