// busypoll.c: the helper's part of busy.h: asks for the times of marks, learns from them what
// launches take, and settles each GPU's time.
//
// A time between two events of one context comes from the driver, exactly. When an event came by
// the clock of the host is known within bounds, which each further one makes narrower: it came
// after it was recorded and before it was seen. Cover is taken by the lower bound.
#include "busy.h"
#include "capture.h"
#include "hooks.h"

// Launches that allow the helper one call; see LAUNCHES_A_CALL in busymark.c.
#define LAUNCHES_A_POLL 96u
#define POLLS_MAX 64u
#define ASKS_LEAVE 16u  // so many calls are left for marks
// A launch is taken to be outstanding from so long after it on: it takes some time to reach the
// GPU, and its event some more to be seen, which is no time that the GPU worked.
#define BEGIN_NS 2000000u
// How much longer than the calls a hold has to take, for the launch to be there in time.
#define HOLD_MARGIN_NS 4000u
#define HOLD_NS_MIN 32000u
#define HOLD_BYTES_MAX (1u << 20)
#define HOLD_COUNT 3u
// Without a hold, or after one that was too short: by this factor longer than the calls took.
#define LONG_ENOUGH 50u
#define FAIR 8u  // the same, for the least of several samples
// So many samples in a row that were too short: the least is taken for what it is worth.
#define USELESS_MAX 16u
// By a base that is older the driver's answer is not exact enough.
#define BASE_NS_MAX 1000000000u
#define SOON_NS 5000000u
#define LATER_NS 20000000u
#define IDLE_NS 200000000u
#define NUDGE_NS 5000000000u

// ---- The driver ----

CUresult weir_busy_between(struct weir_busy *busy, CUevent start, CUevent end, uint64_t *ns) {
    float milliseconds = 0;
    __atomic_fetch_add(&busy->polls, 1, __ATOMIC_RELAXED);
    CUresult result = WEIR_REAL(cuEventElapsedTime)(&milliseconds, start, end);
    *ns = result == CUDA_SUCCESS && milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6 + 0.5)
                                                     : 0;
    return result;
}

// ---- What samples teach ----

// Makes up for launches of which nothing was expected. They were done as soon as there was time for
// them, so the time since that was taken for idle was theirs; what is left they have still to do.
static void make_up(struct weir_busy_gpu *gpu, struct weir_busy_key *known, uint64_t expected_ns) {
    const struct weir_busytime *time = &gpu->time;
    uint32_t unknown = __atomic_exchange_n(&known->unknown, 0, __ATOMIC_RELAXED);
    uint64_t missing = unknown * expected_ns;
    uint64_t before_ns = WEIR_GET(known->surplus_before_ns);
    uint64_t from = before_ns > gpu->surplus_used_ns ? before_ns : gpu->surplus_used_ns;
    uint64_t counted = time->surplus_ns > from ? time->surplus_ns - from : 0;
    counted = counted < missing ? counted : missing;
    gpu->surplus_used_ns = from + counted;
    missing -= counted;
    uint64_t known_idle_ns = WEIR_GET(known->idle_before_ns) + gpu->late_ns;
    uint64_t idle = time->idle_ns > known_idle_ns ? time->idle_ns - known_idle_ns : 0;
    uint64_t done = missing < idle ? missing : idle;
    gpu->late_ns += done;
    gpu->coming_ns += missing - done;
    if (WEIR_GET(known->clean) || !unknown)
        return;
    if (__atomic_fetch_add(&known->guesses, unknown, __ATOMIC_RELAXED) == 0)
        weir_busy_guess_first(gpu, known);
    __atomic_fetch_add(&known->guessed_ns, missing, __ATOMIC_RELAXED);
    WEIR_PUT(known->guess_work_ns, WEIR_GET(known->guess_work_ns) - done);
}

// What launches take is known now that were counted by a rough expectation, which is seldom too
// short. At most so much was counted too much as was busy beyond the work that there was: no step
// has more time than it has.
static void correct(struct weir_busy_gpu *gpu, struct weir_busy_key *known, uint64_t expected_ns) {
    uint64_t guesses = __atomic_exchange_n(&known->guesses, 0, __ATOMIC_RELAXED);
    uint64_t guessed_ns = __atomic_exchange_n(&known->guessed_ns, 0, __ATOMIC_RELAXED);
    uint64_t right_ns = guesses * expected_ns;
    uint64_t over_ns = guessed_ns > right_ns ? guessed_ns - right_ns : 0;
    uint64_t busy_ns = gpu->time.busy_ns + gpu->late_ns - WEIR_GET(known->guess_busy_ns);
    uint64_t work_ns = gpu->time.work_ns - WEIR_GET(known->guess_work_ns);
    work_ns = work_ns > over_ns ? work_ns - over_ns : 0;
    uint64_t excess_ns = busy_ns > work_ns ? busy_ns - work_ns : 0;
    gpu->excess_ns += excess_ns < over_ns ? excess_ns : over_ns;
}

// Takes one sample in.
static void learn(struct weir_busy_gpu *gpu, struct weir_busy_key *known,
                  const struct weir_sample *sample) {
    weir_learn(&known->learned, sample->ns, sample->sort, sample->foreign_ns);
    uint64_t expected_ns = weir_learned_ns(&known->learned);
    uint64_t roughly_ns = weir_learned_roughly_ns(&known->learned);
    struct weir_told told = weir_busy_family_told(known);
    if (weir_learned_is_rough(&known->learned) && told.sure)
        expected_ns = told.ns;
    if (!expected_ns && weir_busy_clock() - WEIR_GET(known->since_ns) > WEIR_BUSY_UNKNOWN_NS)
        expected_ns = roughly_ns;
    WEIR_PUT(known->roughly_ns, roughly_ns);
    WEIR_PUT(known->sure, !weir_learned_is_rough(&known->learned));
    WEIR_PUT(known->eager, (uint32_t)weir_learned_is_eager(&known->learned));
    WEIR_PUT(known->pause, (uint32_t)weir_learn_pause(&known->learned));
    __atomic_store_n(&known->expected_ns, expected_ns, __ATOMIC_RELAXED);
    if (expected_ns > gpu->longest_ns)
        gpu->longest_ns = expected_ns;
    WEIR_PUT(known->clean, known->learned.clean > 0);
    if (known->learned.clean || told.sure)
        correct(gpu, known, expected_ns);
    if (expected_ns)
        make_up(gpu, known, expected_ns);
}

// The line of a family is known, or another one now: so is what is expected of its keys that were
// not measured themselves.
static void tell_keys(struct weir_busy *busy, struct weir_busy_gpu *gpu,
                      const struct weir_busy_family *family) {
    uint64_t longest_ns = weir_line_ns(&family->line, family->line.most * 2);
    if (longest_ns > gpu->longest_ns)
        gpu->longest_ns = longest_ns;
    for (uint32_t i = 0; i < WEIR_BUSY_KEYS; i++) {
        struct weir_busy_key *known = &busy->keys[i];
        if (WEIR_GET(known->family) != family || WEIR_GET(known->sure) ||
            WEIR_GET(known->measuring))
            continue;
        struct weir_told told = weir_busy_family_told(known);
        if (!told.sure)
            continue;
        correct(gpu, known, told.ns);
        if (WEIR_GET(known->unknown))
            make_up(gpu, known, told.ns);
        if (WEIR_GET(known->expected_ns))
            WEIR_PUT(known->expected_ns, told.ns);
    }
}

// A hold was measured: it has to be long enough, and the shortest time is the right one.
static void learn_hold(struct weir_busy_context *context, uint32_t bytes, uint64_t ns) {
    uint32_t now = context->hold_bytes ? context->hold_bytes : bytes;
    if (bytes != now)
        return;
    if (ns < HOLD_NS_MIN && bytes < HOLD_BYTES_MAX) {
        __atomic_store_n(&context->hold_bytes, bytes * 2, __ATOMIC_RELAXED);
        context->hold_ns = 0;
        return;
    }
    WEIR_PUT(context->hold_bytes, bytes);
    if (!context->hold_ns || ns < context->hold_ns)
        context->hold_ns = ns;
    __atomic_fetch_add(&context->hold_count, 1, __ATOMIC_RELAXED);
}

// A measured launch has come to its end.
static void measured(struct weir_busy *busy, struct weir_busy_lane *lane,
                     const struct weir_busy_mark *mark) {
    struct weir_busy_context *context = &busy->contexts[WEIR_GET(lane->place)];
    struct weir_busy_gpu *gpu = &busy->gpus[WEIR_GET(lane->gpu)];
    struct weir_busy_key *known = mark->known;
    uint64_t ns, held_ns = 0, took_ns = mark->after_ns - mark->before_ns + HOLD_MARGIN_NS;
    if (mark->holds && weir_busy_between(busy, mark->hold, mark->start, &held_ns) == CUDA_SUCCESS)
        learn_hold(context, mark->held_bytes, held_ns);
    else if (mark->held_bytes && mark->held_bytes == context->hold_bytes)
        held_ns = context->hold_ns;
    uint64_t hold_ns = context->hold_ns ? context->hold_ns : held_ns;
    gpu->coming_ns += mark->holds ? 2 * hold_ns : hold_ns;  // work as any other
    CUresult result = weir_busy_between(busy, mark->start, mark->end, &ns);
    if (WEIR_GET(known->key) != mark->key)
        return;  // its place is another's by now
    __atomic_fetch_sub(&known->measuring, 1, __ATOMIC_RELAXED);
    if (result != CUDA_SUCCESS)
        return;
    uint64_t work_ns;
    int clean =
        mark->alone && (mark->clean || mark->others == weir_busy_others(busy, lane, &work_ns));
    int good = mark->in_time || took_ns <= held_ns || ns / LONG_ENOUGH > took_ns;
    int fair = ns / FAIR > took_ns;
    known->useless = good || fair ? 0 : known->useless + 1;
    if (!good && !fair && known->useless < USELESS_MAX)
        return;
    enum weir_sort sort = WEIR_SORT_ROUGH;
    int shared = mark->shared || weir_busy_is_shared(gpu);
    if (shared)
        clean = good = fair = 0;
    if (good && clean)
        sort = WEIR_SORT_CLEAN;
    else if (clean || (!shared && mark->alone &&
                       !mark->held_bytes))  // behind a hold others may have come first
        sort = WEIR_SORT_MIXED;
    if (!shared && known->epoch != gpu->epoch &&
        (sort == WEIR_SORT_CLEAN || !known->learned.clean)) {
        weir_learn_renew(&known->learned);
        WEIR_PUT(known->epoch, gpu->epoch);
    }
    struct weir_sample sample = {ns, shared ? UINT64_MAX : mark->foreign_ns, sort, shared,
                                 gpu->epoch};
    struct weir_busy_family *family = WEIR_GET(known->family);
    int news = family && weir_busy_family_learn(family, known, &sample);
    learn(gpu, known, &sample);
    if (news)
        tell_keys(busy, gpu, family);
}

// ---- Marks ----

// When a mark's end came: the earliest time that is possible. `seen_ns`: it was there by then.
static uint64_t earliest(struct weir_busy_context *context, struct weir_busy_mark *mark,
                         uint64_t since_base_ns, uint64_t seen_ns) {
    uint64_t low = mark->after_ns - since_base_ns, high = seen_ns - since_base_ns;
    context->low_ns = low > context->low_ns ? low : context->low_ns;
    context->high_ns = high < context->high_ns ? high : context->high_ns;
    if (context->low_ns > context->high_ns) {  // the two clocks have drifted apart
        context->low_ns = low;
        context->high_ns = high;
    }
    return context->low_ns + since_base_ns;
}

// Makes the end of a mark the event that others are timed by.
static void rebase(struct weir_busy_context *context, struct weir_busy_mark *mark,
                   uint64_t since_base_ns) {
    CUevent old = context->base;
    context->base = mark->end;
    mark->end = old;
    context->low_ns += since_base_ns;
    context->high_ns += since_base_ns;
}

// Looks at the oldest mark of a lane. Whether it is done with, and the next one's turn.
static int look(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_busy_context *context = &busy->contexts[WEIR_GET(lane->place)];
    struct weir_busy_gpu *gpu = &busy->gpus[WEIR_GET(lane->gpu)];
    struct weir_busy_mark *mark = &lane->marks[lane->tail % WEIR_BUSY_MARKS];
    uint64_t asked_ns = weir_busy_clock(), since_ns;
    uint64_t begun_ns = mark->after_ns + BEGIN_NS;
    CUresult result =
        weir_busy_between(busy, context->base ? context->base : mark->end, mark->end, &since_ns);
    if (result == CUDA_ERROR_NOT_READY) {
        weir_busytime_cover(&gpu->time, begun_ns, asked_ns);
        return 0;
    }
    if (result == CUDA_SUCCESS) {
        if (!context->base)
            context->high_ns = UINT64_MAX;
        uint64_t came_ns = earliest(context, mark, since_ns, weir_busy_clock());
        weir_busytime_cover(&gpu->time, begun_ns, came_ns);
        WEIR_PUT(lane->swift, came_ns < begun_ns);
        weir_busy_done(lane, mark->launches, mark->work_ns);
    }
    if (mark->known)
        measured(busy, lane, mark);
    if (result == CUDA_SUCCESS && (!context->base || since_ns > BASE_NS_MAX))
        rebase(context, mark, since_ns);
    __atomic_store_n(&lane->tail, lane->tail + 1, __ATOMIC_RELEASE);
    return 1;
}

// Looks at a lane's marks as far as calls are allowed. Whether some are left.
static int look_at_all(struct weir_busy *busy, struct weir_busy_lane *lane) {
    struct weir_busy_gpu *gpu = &busy->gpus[WEIR_GET(lane->gpu)];
    while (WEIR_GET(lane->tail) != __atomic_load_n(&lane->head, __ATOMIC_ACQUIRE)) {
        uint64_t before = WEIR_GET(busy->polls);
        if (__atomic_load_n(&lane->dead, __ATOMIC_SEQ_CST))
            return 0;
        if (gpu->calls < LAUNCHES_A_POLL)
            return 1;
        if (!busy->relaxed) {
            busy->relaxed = 1;
            weir_capture_relax();
        }
        int next = look(busy, lane);
        uint64_t cost = (WEIR_GET(busy->polls) - before) * LAUNCHES_A_POLL;
        gpu->calls = gpu->calls > cost ? gpu->calls - cost : 0;
        if (!next)
            return 1;
    }
    return 0;
}

int weir_busy_may_ask(struct weir_busy *busy, const struct weir_busy_lane *lane) {
    struct weir_busy_gpu *gpu = &busy->gpus[WEIR_GET(lane->gpu)];
    if (!WEIR_GET(lane->wished) || gpu->calls < ASKS_LEAVE * LAUNCHES_A_POLL)
        return 0;
    gpu->calls -= LAUNCHES_A_POLL;
    return 1;
}

// ---- Settling ----

// What all lanes of a GPU have launched.
struct launched {
    uint64_t work_ns, launches, outstanding;
};

static struct launched launched_on(struct weir_busy *busy, uint32_t ordinal) {
    const struct weir_busy_gpu *gpu = &busy->gpus[ordinal];
    uint64_t loose = __atomic_load_n(&gpu->loose_launches, __ATOMIC_RELAXED);
    struct launched all = {gpu->gone_work_ns, gpu->gone_launches, loose - gpu->loose_done};
    all.work_ns += __atomic_load_n(&gpu->loose_work_ns, __ATOMIC_RELAXED);
    all.launches += loose;
    for (uint32_t i = 0; i < busy->lanes_used; i++) {
        const struct weir_busy_lane *lane = &busy->lanes[i];
        if (!WEIR_GET(lane->thread) || WEIR_GET(lane->gpu) != ordinal)
            continue;
        uint64_t done = __atomic_load_n(&lane->done, __ATOMIC_RELAXED);
        uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_RELAXED);
        all.work_ns += __atomic_load_n(&lane->work_ns, __ATOMIC_RELAXED);
        all.launches += launches;
        all.outstanding += launches > done ? launches - done : 0;
    }
    return all;
}

// What the helper may do: so much for launches, or for the time where that is more.
static void allow_calls(struct weir_busy_gpu *gpu, uint64_t launches, uint64_t now_ns) {
    uint64_t passed = gpu->paid_ns && now_ns > gpu->paid_ns ? now_ns - gpu->paid_ns : 0;
    passed = passed < 1000000000u ? passed : 1000000000u;
    uint64_t made = launches > gpu->paid_launches ? launches - gpu->paid_launches : 0;
    uint64_t spare = passed * WEIR_BUSY_SPARE * LAUNCHES_A_POLL / 1000000000u;
    gpu->calls += made > spare ? made : spare;
    if (gpu->calls > POLLS_MAX * LAUNCHES_A_POLL || !gpu->paid_ns)
        gpu->calls = POLLS_MAX * LAUNCHES_A_POLL;
    gpu->paid_launches = launches;
    gpu->paid_ns = now_ns;
}

// Whether it has anything to do.
static int settle(struct weir_busy *busy, uint32_t ordinal, uint64_t now_ns) {
    struct weir_busy_gpu *gpu = &busy->gpus[ordinal];
    struct launched all = launched_on(busy, ordinal);
    uint64_t outstanding_ns = all.outstanding * gpu->longest_ns;
    WEIR_PUT(gpu->mean_ns, all.launches ? all.work_ns / all.launches : 0);
    weir_busytime_late(&gpu->time, gpu->late_ns);
    gpu->gone_work_ns += gpu->coming_ns;
    all.work_ns += gpu->coming_ns;
    gpu->late_ns = gpu->coming_ns = 0;
    // What was counted too much is taken from what is launched now, for busy time never shrinks.
    uint64_t fresh_ns = all.work_ns > gpu->time.work_ns ? all.work_ns - gpu->time.work_ns : 0;
    uint64_t cut_ns = gpu->excess_ns < fresh_ns ? gpu->excess_ns : fresh_ns;
    gpu->excess_ns -= cut_ns;
    gpu->gone_work_ns -= cut_ns;
    all.work_ns -= cut_ns;
    int active = all.launches != gpu->paid_launches || gpu->time.ahead_ns;
    weir_busytime_step(&gpu->time, now_ns, all.work_ns, outstanding_ns);
    allow_calls(gpu, all.launches, now_ns);
    return active;
}

// Has one lane sample its next launch, where launches are so few that they would not come to it.
static void nudge(struct weir_busy *busy, uint64_t now_ns) {
    struct weir_busy_lane *lane = &busy->lanes[busy->turn % busy->lanes_used];
    struct weir_busy_gpu *gpu = &busy->gpus[WEIR_GET(lane->gpu)];
    if (now_ns - gpu->nudged_ns < NUDGE_NS)
        return;
    gpu->nudged_ns = now_ns;
    __atomic_store_n(&lane->nudged, 1, __ATOMIC_RELAXED);
    weir_busy_sample_at(lane, 0);
}

uint64_t weir_busy_poll(struct weir_busy *busy) {
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    int waiting = 0, active = 0;
    __atomic_store_n(&busy->polling, 1, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < used; i++)
        waiting |= look_at_all(busy, &busy->lanes[(busy->turn + i) % used]);
    busy->turn++;
    __atomic_store_n(&busy->polling, 0, __ATOMIC_SEQ_CST);
    weir_sys_futex_wake(&busy->polling, 64);
    if (weir_lock(&busy->lock))
        return SOON_NS;
    uint64_t now_ns = weir_busy_clock();
    for (uint32_t i = 0; i < WEIR_BUSY_GPUS; i++)
        if (busy->gpus[i].used)
            active |= settle(busy, i, now_ns);
    if (busy->lanes_used)
        nudge(busy, now_ns);
    weir_unlock(&busy->lock);
    return waiting ? SOON_NS : active ? LATER_NS : IDLE_NS;
}

uint64_t weir_busy_ns(struct weir_busy *busy, uint32_t gpu) {
    if (gpu >= WEIR_BUSY_GPUS || weir_lock(&busy->lock))
        return 0;
    uint64_t ns = busy->gpus[gpu].time.busy_ns;
    weir_unlock(&busy->lock);
    return ns;
}
