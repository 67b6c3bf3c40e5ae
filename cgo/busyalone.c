// busyalone.c: whether a launch has its GPU to itself, so that what it is measured to take is its
// own time; and how launches of other threads are kept away from it.
//
// Other lanes' launches are known to be done by calls that waited for them, or by marks, which only
// their own threads can make: in the launch that they are asked to mark, or, where the GPU is to be
// *still*, right before the next one, which then waits; or, of a thread that launches elsewhere now
// or has ended, by the helper, which asks the stream (drain.c). Invariants:
//   - nobody waits for longer than WEIR_BUSY_STILL_NS_MAX, whatever becomes of whom he waits for,
//     nor where the GPU is to be given up;
//   - gathering others takes one part in GATHER_PART of the time at most, one in GATHER_PART_SURE
//     once a kernel is known, and less where it is in vain;
//   - who is past the look at `still_ns` launches: that is seen by what it has counted.
#include "busy.h"

#include "capture.h"
#include "sys.h"

#define OWED_MAX 48u    // calls made while a lane waits to be alone
#define SETTLE_WAITS 4  // sleeps until others' work that is marked may have ended
#define DOZE_US 30u
// So long others are waited for, which is not tried again before so many times as long have passed,
// more once the launch is known, and twice as many for each time that it was in vain.
#define GATHER_NS_MAX 600000u
#define GATHER_PART 20u
#define GATHER_PART_SURE 1000u
#define GATHER_VAIN_MAX 7u

void weir_busy_doze(void) {
    static const uint32_t never = 0;
    weir_sys_futex_wait(&never, 0, DOZE_US);
}

// Whether all that was launched in a lane is done, by its newest mark. Where that is older than its
// newest launch the lane is asked to mark the next one. *calls counts ours.
static int is_done(struct weir_busy *busy, struct weir_busy_lane *lane, uint64_t launches, int ask,
                   int still, uint32_t *calls) {
    const struct weir_busy_mark *mark =
        &lane->marks[(__atomic_load_n(&lane->head, __ATOMIC_ACQUIRE) - 1) % WEIR_BUSY_MARKS];
    CUevent end = WEIR_GET(mark->end);
    uint32_t gpu = WEIR_GET(lane->gpu);
    if (*calls >= OWED_MAX)
        return 0;
    if (!end || WEIR_GET(mark->launches) != launches) {
        if (still)
            return 0;  // it is marked when its thread comes
        *calls += 1;
        __atomic_store_n(&lane->wished, 1, __ATOMIC_RELAXED);
        weir_busy_sample_at(lane, 0);
        return 0;
    }
    if (!ask)
        return 0;
    *calls += 3;
    int done = weir_busy_has_come(busy, end);
    if (done && WEIR_GET(lane->gpu) == gpu)  // else it has become another's, and counts anew
        weir_busy_done(lane, launches, 0);
    return done;
}

// Whether this thread can mark what it has launched in another lane of its own: in its own default
// stream, which nobody can destroy meanwhile, and of which the helper cannot ask.
static int is_own(const struct weir_busy *busy, const struct weir_busy_lane *lane,
                  const struct weir_busy_lane *one) {
    uint32_t tid = WEIR_GET(lane->tid);
    return (uintptr_t)WEIR_GET(one->stream) == CU_STREAM_PER_THREAD && tid &&
           WEIR_GET(one->tid) == tid && WEIR_GET(one->thread) == WEIR_GET(lane->thread) &&
           !WEIR_GET(busy->captures);
}

// What is_alone has found of other lanes that are not done.
struct crowd {
    int settles;  // they may soon be
    int comes;    // they are other threads', which are seen when they launch next
};

// Whether nothing is outstanding in any other lane of the GPU.
static int is_alone(struct weir_busy *busy, struct weir_busy_lane *lane, struct crowd *crowd) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    int alone = !weir_busy_has_loose(&busy->gpus[lane->gpu]);
    *crowd = (struct crowd){alone, alone};
    for (uint32_t i = 0; i < used; i++) {
        struct weir_busy_lane *one = &busy->lanes[i];
        uint64_t launches = __atomic_load_n(&one->launches, __ATOMIC_RELAXED);
        if (one == lane || WEIR_GET(one->gpu) != lane->gpu ||
            launches == __atomic_load_n(&one->done, __ATOMIC_RELAXED))
            continue;
        // Events of another context may be gone at any time. After a lane that is not done the rest
        // is only asked to mark.
        int near = WEIR_GET(one->context) == lane->context;
        if (near && is_own(busy, lane, one))
            weir_busy_mark_before(busy, one);
        if (near &&
            is_done(busy, one, launches, alone || lane->still, (int)lane->still, &lane->owed))
            continue;
        alone = 0;
        crowd->settles &= near && !WEIR_GET(one->wished);
        crowd->comes &= near && WEIR_GET(one->thread) != WEIR_GET(lane->thread);
    }
    return alone;
}

// ---- Stillness ----

// Has others' launches wait, all but those whose threads are past this already: these are seen by
// what they have counted. Whether they do; not where another lane has them wait.
static int begin_still(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    uint64_t now_ns = weir_busy_clock(), until_ns = WEIR_GET(gpu->still_ns);
    if (lane->still)
        return 1;
    if (until_ns > now_ns ||
        !__atomic_compare_exchange_n(&gpu->still_ns, &until_ns, now_ns + WEIR_BUSY_STILL_NS_MAX, 0,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return 0;
    lane->still = 1;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (&busy->lanes[i] != lane && WEIR_GET(busy->lanes[i].gpu) == lane->gpu)
            weir_busy_sample_at(&busy->lanes[i], 0);
    return 1;
}

void weir_busy_end_still(struct weir_busy *busy, struct weir_busy_lane *lane) {
    if (lane->still)
        WEIR_PUT(busy->gpus[lane->gpu].still_ns, 0);
    lane->still = 0;
}

// Marks what was launched in a lane before, by its thread that is about to launch, or by who ends
// its stream.
void weir_busy_mark_before(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_busy_mark *mark = &lane->marks[lane->head % WEIR_BUSY_MARKS];
    const struct weir_busy_mark *last = &lane->marks[(lane->head - 1) % WEIR_BUSY_MARKS];
    if (lane->muted || lane->launches == WEIR_GET(lane->done) ||
        (last->end && last->launches == lane->launches) ||
        lane->head - __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE) >= WEIR_BUSY_MARKS)
        return;
    mark->known = NULL;
    weir_busy_pay(lane, 1);
    // This stream is not captured, or its launch were no work.
    int captures = WEIR_GET(busy->captures) != 0, mode = captures ? weir_capture_relax() : -1;
    CUresult result = weir_busy_record(busy, &mark->end, lane->stream);
    weir_capture_restore(mode);
    if (result != CUDA_SUCCESS) {
        lane->muted = !captures;
        return;
    }
    mark->after_ns = weir_busy_clock();
    WEIR_PUT(mark->launches, lane->launches);
    mark->work_ns = lane->work_ns;
    __atomic_store_n(&lane->head, lane->head + 1, __ATOMIC_RELEASE);
}

// This thread is about to launch: not while another lane is measured.
void weir_busy_keep_still(struct weir_busy *busy, struct weir_busy_lane *lane) {
    const struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    uint64_t now_ns = weir_busy_clock(), until_ns = now_ns + WEIR_BUSY_STILL_NS_MAX;
    if (lane->still || WEIR_GET(gpu->still_ns) <= now_ns)
        return;
    weir_busy_mark_before(busy, lane);
    while (now_ns < until_ns && now_ns < WEIR_GET(gpu->still_ns) && !weir_busy_hurries(gpu)) {
        weir_busy_doze();
        now_ns = weir_busy_clock();
    }
}

// Has other threads wait in their next launches, until all that they have launched before is done.
static int gather(struct weir_busy *busy, struct weir_busy_lane *lane, int sure) {
    struct weir_busy_gpu *gpu = &busy->gpus[lane->gpu];
    struct crowd crowd = {1, 1};
    uint64_t begun_ns = weir_busy_clock();
    int alone = 0;
    if (!begin_still(busy, lane))
        return 0;
    do {
        weir_busy_doze();
        alone = is_alone(busy, lane, &crowd);
    } while (!alone && crowd.comes && lane->owed < OWED_MAX &&
             weir_busy_clock() < begun_ns + GATHER_NS_MAX && !weir_busy_hurries(gpu));
    uint64_t now_ns = weir_busy_clock(), vain = alone ? 0 : WEIR_GET(gpu->vain) + 1;
    vain = vain < GATHER_VAIN_MAX ? vain : GATHER_VAIN_MAX;
    WEIR_PUT(gpu->vain, vain);
    uint64_t part = sure ? GATHER_PART_SURE : GATHER_PART;
    WEIR_PUT(gpu->gather_ns, now_ns + (now_ns - begun_ns) * (part << vain));
    if (alone)
        WEIR_PUT(gpu->still_ns, now_ns + WEIR_BUSY_STILL_NS_MAX);
    else
        weir_busy_end_still(busy, lane);
    return alone;
}

// Whether this launch has the GPU to itself. Where that may soon be so, or nothing good is known of
// it, this thread waits for it a little, lest it keep the GPU at work itself; or it has the others
// wait. They do in any case until it is launched, where it is alone.
int weir_busy_becomes_alone(struct weir_busy *busy, struct weir_busy_lane *lane, int sure) {
    uint64_t work_ns;
    struct crowd crowd;
    int alone = is_alone(busy, lane, &crowd);
    if (!alone && crowd.comes && WEIR_GET(busy->gpus[lane->gpu].gather_ns) <= weir_busy_clock())
        return gather(busy, lane, sure);
    for (int i = 0; i < SETTLE_WAITS && !alone && lane->owed < OWED_MAX; i++) {
        if ((!crowd.settles && sure) || weir_busy_hurries(&busy->gpus[lane->gpu]))
            break;
        weir_busy_doze();
        alone = is_alone(busy, lane, &crowd);
    }
    return alone && (!weir_busy_others(busy, lane, &work_ns) || begin_still(busy, lane));
}
