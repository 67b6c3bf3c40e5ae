// busymark.c: the launches that take longer in busy.h: with a key or in a stream that is new, under
// a capture, and those that are sampled.
#include "busy.h"

#include "capture.h"
#include "hooks.h"

// Launches for each of our calls: with the helper's own share that makes one in 64.
#define LAUNCHES_A_CALL 192u
#define LAUNCHES_A_MARK 64u
// With so many launches in a lane of which it is not known that they are done, less is sampled.
#define DEEP 128u
#define JITTER 64u  // so that no period of the program's is met; a power of two
// So far ahead samples of keys that are not known yet may run into debt.
#define DEBT_MAX (LAUNCHES_A_CALL * 256u)
// A kernel of at least so much is measured well enough without a hold.
#define HOLD_BELOW_NS 400000u
#define HOLD_BYTES_MAX (1u << 20)
#define HOLD_BYTES_FIRST (512u << 10)
// Work is older than a mark if it was launched so long before it: events may be seen some time
// after they came.
#define BACKLOG_NS 1000000u
// A thread waits so long at most for the end of a launch that is measured, by sleeps of so long;
// and so often for others' to end before it.
#define WAIT_OUT_NS_MAX 1000000u
#define DOZE_US 30u
#define SETTLE_WAITS 4
// Within so long all calls have been made before a hold is over.
#define IN_TIME_NS 20000u
#define HOLD_COUNT 3u  // how often a hold is measured
// So much of that while others have the GPU, too, and by launches that their family tells of.
#define DEBT_ROUGH_MAX (DEBT_MAX / 4)
#define DEBT_TOLD_MAX (DEBT_MAX / 2)
// A key with so many launches of which its family told is to be measured itself, and with so many
// of them it is looked at no more.
#define TOLD_ENOUGH 8u
#define TOLD_MAX 16u
// For so many launches a lane waits for one that is alone; and so often it waits twice as long for
// its next chance, where there was none.
#define WAITS_MAX 16u
#define OWED_MAX 48u  // calls made meanwhile
#define SHY_MAX 5u

// ---- Calls of the driver's ----

static CUresult record(struct weir_busy *busy, CUevent *event, CUstream stream) {
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
    result = record(busy, &mark->hold, lane->stream);
    return result ? result : set(busy, memory, mark->held_bytes, lane->stream);
}

// Whether an event of the context that this thread launches in has come. Three calls.
static int has_come(struct weir_busy *busy, CUevent event) {
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

static uint64_t throw_dice(struct weir_busy_lane *lane) {
    lane->dice = lane->dice * 6364136223846793005u + 1442695040888963407u;
    return lane->dice >> 40 & (JITTER - 1);
}

// The next sample is due later by as many launches as these calls are worth.
static void pay(struct weir_busy_lane *lane, uint32_t calls) {
    if (lane->due < lane->launches)
        lane->due = lane->launches;
    lane->due += calls * LAUNCHES_A_CALL + (calls ? throw_dice(lane) : 0);
}

static void doze(void) {
    static const uint32_t never = 0;
    weir_sys_futex_wait(&never, 0, DOZE_US);
}

// Whether all that was launched in a lane is done, by its newest mark. Where that is older than its
// newest launch the lane is asked to mark the next one. *calls counts ours.
static int is_done(struct weir_busy *busy, struct weir_busy_lane *lane, uint64_t launches, int ask,
                   uint32_t *calls) {
    const struct weir_busy_mark *mark =
        &lane->marks[(__atomic_load_n(&lane->head, __ATOMIC_ACQUIRE) - 1) % WEIR_BUSY_MARKS];
    CUevent end = WEIR_GET(mark->end);
    uint32_t gpu = WEIR_GET(lane->gpu);
    if (*calls >= OWED_MAX)
        return 0;
    if (!end || WEIR_GET(mark->launches) != launches) {
        *calls += 1;
        __atomic_store_n(&lane->wished, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&lane->sample_at, 0, __ATOMIC_RELAXED);
        return 0;
    }
    if (!ask)
        return 0;
    *calls += 3;
    int done = has_come(busy, end);
    if (done && WEIR_GET(lane->gpu) == gpu)  // else it has become another's, and counts anew
        weir_busy_done(lane, launches, 0);
    return done;
}

// Whether nothing is outstanding in any other lane of the GPU; *calls counts ours. *settles: it may
// soon be so.
static int is_alone(struct weir_busy *busy, const struct weir_busy_lane *lane, uint32_t *calls,
                    int *settles) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    int alone = !weir_busy_has_loose(&busy->gpus[lane->gpu]);
    *settles = alone;
    for (uint32_t i = 0; i < used; i++) {
        struct weir_busy_lane *one = &busy->lanes[i];
        uint64_t launches = __atomic_load_n(&one->launches, __ATOMIC_RELAXED);
        if (one == lane || WEIR_GET(one->gpu) != lane->gpu ||
            launches == __atomic_load_n(&one->done, __ATOMIC_RELAXED))
            continue;
        // Events of another context may be gone at any time. After a lane that is not done the rest
        // is only asked to mark.
        if (WEIR_GET(one->context) == lane->context && is_done(busy, one, launches, alone, calls))
            continue;
        alone = 0;
        *settles &= WEIR_GET(one->context) == lane->context && !WEIR_GET(one->wished);
    }
    return alone;
}

// The same; where it may soon be so, or nothing good is known of this launch, this thread waits for
// it a little, lest it keep the GPU at work itself.
static int becomes_alone(struct weir_busy *busy, struct weir_busy_lane *lane, int sure) {
    int settles, alone = is_alone(busy, lane, &lane->owed, &settles);
    for (int i = 0; i < SETTLE_WAITS && !alone && lane->owed < OWED_MAX; i++) {
        if ((!settles && sure) || weir_busy_hurries(&busy->gpus[lane->gpu]))
            break;
        doze();
        alone = is_alone(busy, lane, &lane->owed, &settles);
    }
    return alone;
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
    int alone = becomes_alone(busy, lane, told->sure || WEIR_GET(known->sure));
    int is_known = told->sure || WEIR_GET(known->expected_ns);
    int patient = is_known ? ++lane->waits < WAITS_MAX
                           : weir_busy_clock() - unknown_since(known) < WEIR_BUSY_UNKNOWN_NS;
    if (!alone && patient)
        return SAMPLE_NOT;
    lane->waits = 0;
    pay(lane, lane->owed);
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
        int better = !WEIR_GET(known->sure) || WEIR_GET(known->epoch) != WEIR_GET(gpu->epoch);
        wanted = !WEIR_GET(known->expected_ns) || (better && !shared);
        debt_max = shared ? DEBT_ROUGH_MAX : DEBT_MAX;
    }
    return wanted && WEIR_GET(known->measuring) < 2 && lane->due < lane->launches + debt_max;
}

static int is_deep(const struct weir_busy_lane *lane) {
    return lane->launches - WEIR_GET(lane->done) > DEEP;
}

static enum sample choose(struct weir_busy *busy, struct weir_busy_lane *lane,
                          struct weir_busy_key *known, const struct weir_told *told) {
    int due = lane->launches >= lane->due || WEIR_GET(lane->nudged);
    int full = lane->head - __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE) >= WEIR_BUSY_MARKS;
    if (lane->muted)
        return SAMPLE_NOT;
    if (full) {
        lane->waits = 0;
        if (due)
            pay(lane, 1);
        return SAMPLE_NOT;
    }
    WEIR_PUT(lane->nudged, 0);
    // Each of our calls takes a place in the driver's queue, which the program may count on: in a
    // backlog there is one of our events at a time.
    if (is_deep(lane) && lane->head != __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE)) {
        lane->waits = 0;
        if (due)
            pay(lane, 1);
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
    pay(lane, whole ? 3 : 1);
    if (!whole)
        return mark;
    mark->others = weir_busy_others(busy, lane, &mark->foreign_ns);  // for now, all
    mark->alone = sample == SAMPLE_ALONE;
    mark->shared = (uint32_t)weir_busy_is_shared(&busy->gpus[lane->gpu]);
    __atomic_store_n(&known->visits, 0, __ATOMIC_RELAXED);
    CUresult result = CUDA_SUCCESS;
    if (WEIR_GET(known->roughly_ns) < HOLD_BELOW_NS && !(is_deep(lane) && WEIR_GET(known->sure)))
        result = hold(busy, lane, mark);
    if (result == CUDA_SUCCESS)
        result = record(busy, &mark->start, lane->stream);
    if (result == CUDA_SUCCESS) {
        __atomic_fetch_add(&known->measuring, 1, __ATOMIC_RELAXED);
        return mark;
    }
    lane->muted = 1;
    return NULL;
}

// Takes a launch's family at its word.
static uint64_t take_told(struct weir_busy_key *known, const struct weir_told *told) {
    uint64_t none = 0;
    uint32_t launches = __atomic_add_fetch(&known->told, 1, __ATOMIC_RELAXED);
    if (!WEIR_GET(known->roughly_ns))
        WEIR_PUT(known->roughly_ns, told->ns);
    if (told->sure && launches >= TOLD_MAX)
        __atomic_compare_exchange_n(&known->expected_ns, &none, told->ns, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    return told->ns;
}

// What a launch is expected to take whose key is not known: what its family tells; nothing, to be
// made up for when it is known; as much as others in this lane, where it will not be measured.
static uint64_t guess(struct weir_busy *busy, struct weir_busy_lane *lane,
                      struct weir_busy_key *known, const struct weir_told *told,
                      const struct weir_busy_mark *mark) {
    if (told->sure || (told->ns && !mark && !WEIR_GET(known->measuring)))
        return take_told(known, told);
    if (!mark && lane->work_ns && lane->due >= lane->launches + DEBT_MAX)
        return lane->work_ns / lane->launches;
    __atomic_fetch_add(&busy->gpus[lane->gpu].blind, 1, __ATOMIC_RELAXED);
    WEIR_PUT(lane->blind, lane->launches + 1);
    if (lane->launches % LAUNCHES_A_MARK == 0 && !is_deep(lane))
        WEIR_PUT(lane->mark_at_ns, 0);  // work that is not known makes no window move
    if (__atomic_fetch_add(&known->unknown, 1, __ATOMIC_RELAXED) == 0 &&
        weir_lock(&busy->lock) == 0) {
        const struct weir_busytime *time = &busy->gpus[lane->gpu].time;
        WEIR_PUT(known->surplus_before_ns, time->surplus_ns);
        WEIR_PUT(known->idle_before_ns, time->idle_ns);
        weir_unlock(&busy->lock);
    }
    return 0;
}

struct weir_busy_launch weir_busy_begin_slow(struct weir_busy *busy, struct weir_busy_lane *lane,
                                             struct weir_busy_kind kind) {
    struct weir_busy_launch launch = {NULL, 0, NULL};
    int captures = __atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE) != 0;
    struct weir_busy_key *known = weir_busy_key_enter(busy, kind.key);
    struct weir_told told = weir_busy_family_tell(busy, known, &kind, lane->gpu);
    WEIR_PUT(lane->last, known);
    // Our calls disturb no capture: this stream is not captured, or this launch were no work.
    int mode = captures ? weir_capture_relax() : -1;
    if (!lane->launches && !lane->due && WEIR_GET(known->sure))
        pay(lane, 1);  // a stream that is new teaches nothing of a kernel that is known
    enum sample sample = choose(busy, lane, known, &told);
    if (sample != SAMPLE_NOT)
        launch.mark = begin_mark(busy, lane, known, kind.key, sample);
    weir_capture_restore(mode);
    // While it waits to be alone each launch is looked at.
    __atomic_store_n(&lane->sample_at, lane->waits ? 0 : lane->due, __ATOMIC_RELAXED);
    launch.lane = lane;
    launch.added_ns = __atomic_load_n(&known->expected_ns, __ATOMIC_RELAXED);
    if (!launch.added_ns)
        launch.added_ns = guess(busy, lane, known, &told, launch.mark);
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
    pay(lane, 3);
    return !has_come(busy, last->end);
}

// Launches on the GPU of which nothing was expected, so that their work is not known.
static uint64_t blind_of(const struct weir_busy *busy, const struct weir_busy_lane *lane) {
    return __atomic_load_n(&busy->gpus[lane->gpu].blind, __ATOMIC_RELAXED);
}

// While a hold is in force others' launches may come, and so be ahead of this one. So this thread
// waits for its end where it has others at hand, to see what they launched until then.
static void wait_out(struct weir_busy *busy, struct weir_busy_lane *lane,
                     struct weir_busy_mark *mark) {
    uint64_t work_before_ns = mark->foreign_ns;
    mark->foreign_ns = UINT64_MAX;
    if (!mark->others || WEIR_GET(mark->known->expected_ns) > WAIT_OUT_NS_MAX)
        return;
    for (uint64_t end_ns = mark->after_ns + WAIT_OUT_NS_MAX; weir_busy_clock() < end_ns;) {
        uint64_t work_ns;
        if (weir_busy_hurries(&busy->gpus[lane->gpu]))
            return;
        doze();
        pay(lane, 3);
        if (!has_come(busy, mark->end))
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
    if (good && record(busy, &mark->end, lane->stream) != CUDA_SUCCESS) {
        lane->muted = !WEIR_GET(busy->captures);
        good = 0;
    }
    weir_capture_restore(mode);
    if (!good) {
        if (mark->known && WEIR_GET(mark->known->key) == mark->key)
            __atomic_fetch_sub(&mark->known->measuring, 1, __ATOMIC_RELAXED);
        return;
    }
    mark->after_ns = weir_busy_clock();
    mark->blind = blind_of(busy, lane);  // this one included
    mark->in_time = mark->clean = 0;
    if (mark->known && mark->after_ns - mark->before_ns > IN_TIME_NS)
        mark->in_time = is_backlogged(busy, lane, mark);
    if (mark->known && mark->alone && mark->held_bytes)
        wait_out(busy, lane, mark);
    else
        mark->foreign_ns = UINT64_MAX;
    WEIR_PUT(mark->launches, lane->launches);
    mark->work_ns = lane->work_ns;
    __atomic_store_n(&lane->head, lane->head + 1, __ATOMIC_RELEASE);
}
