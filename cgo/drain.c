// drain.c: see drain.h. What is outstanding on a GPU, whether a drain is over, whether there is
// rest.
#include "drain.h"

#include "trail.h"
#include "used.h"

// The longest that one look waits for launches that are under way.
#define REVOKE_MS 1u
// How long nothing is to be outstanding before that is said.
#define REST_RIVALS_NS 2000000u
#define REST_ALONE_NS 100000000u
// How often to look while the gate is open.
#define LOOK_RIVALS_NS 1000000u
#define LOOK_ALONE_NS 5000000u
// The same once all is drained, and threads wait for their turn.
#define LOOK_WAITING_NS 10000000u
// Alone, a stream is asked only where it is soon to be said to be at rest: it is a call of the
// driver.
#define STILL_ALONE_NS 50000000u
#define STILL_WISHED_NS 4000000u
// In a drain; see until_look.
#define AWAKE_NS 100000u
#define SAME_NS 200000u
#define DRAIN_NS_MIN 20000u
#define DRAIN_NS_MAX 1000000u
#define DRAIN_NS_LATE 100000u
#define DRAIN_PART 4u
#define PASSED_PART 32u
#define OVERDUE_PART 8u
#define PROGRESS_NS 5000000u
// How often to look once a gate has opened again, for what that brings.
#define OPENED_NS 200000u
// Work of which no event tells counts as done so long after its expected end.
#define OVERDUE_NS 2000000u
#define BLIND_OVERDUE_NS 1000000000u
// A drain is not taken to stand still before its expected end, nor so early where that is not
// known.
#define BLIND_HOPE_NS 250000000u
// What work of which nothing is known is taken to be, at least.
#define BLIND_NS 1000u

// What all lanes of a GPU have come to.
struct tally {
    uint64_t submitted, completed, work_ns, busy_ns;
    uint64_t flight_ns;  // expected of what is not done
    uint64_t blind;      // launches that are not done, and of which nothing was expected
    uint64_t owed_done;  // what is done of that for which the drain waits
    uint32_t owing;      // lanes whose part of the drain is not done
    uint32_t active;  // lanes with anything outstanding, or that have launched since the last look
};

static int is_on(const struct weir_time *time, const struct weir_busy_lane *lane, uint32_t gpu) {
    return WEIR_GET(lane->thread) && WEIR_GET(time->numbers[WEIR_GET(lane->gpu)]) == gpu + 1;
}

static uint64_t done_of(const struct weir_busy_lane *lane) {
    return __atomic_load_n(&lane->done, __ATOMIC_RELAXED);
}

// How many launches of a lane, of which nothing was expected, may not be done.
static uint64_t blind_of(const struct weir_busy_lane *lane) {
    uint64_t blind = WEIR_GET(lane->blind), done = done_of(lane);
    uint64_t launches = WEIR_GET(lane->launches);
    blind = blind < launches ? blind : launches;  // it may be ahead of what was launched
    return blind > done ? blind - done : 0;
}

// What a lane is expected to take for what is not done.
static uint64_t flight_of(const struct weir_busy_lane *lane) {
    uint64_t work_ns = WEIR_GET(lane->work_ns), done_ns = WEIR_GET(lane->done_work_ns);
    const struct weir_busy_key *last = WEIR_GET(lane->last);
    if (done_of(lane) >= WEIR_GET(lane->launches))
        return 0;
    return (work_ns > done_ns ? work_ns - done_ns : 0) +
           (last ? blind_of(lane) * WEIR_GET(last->expected_ns) : 0);
}

// How long after its expected end work counts as done of which nothing tells.
static uint64_t patience_with(const struct weir_busy_lane *lane) {
    return blind_of(lane) ? BLIND_OVERDUE_NS : OVERDUE_NS;
}

// Launches of which no event can tell count as done after their time.
static void give_up(struct weir_busy_lane *lane, uint64_t now_ns) {
    if (now_ns >= WEIR_GET(lane->trail.overdue_ns))
        weir_busy_done(lane, WEIR_GET(lane->trail.seen), 0);
}

// Whether its stream is to be asked since another lane waits to have the GPU to itself. It need not
// be where nothing is outstanding, nor while the thread seems to go on: that marks its launches.
static int is_wished(struct weir_busy *busy, const struct weir_busy_lane *lane, uint64_t since_ns) {
    return since_ns >= STILL_WISHED_NS && done_of(lane) < WEIR_GET(lane->launches) &&
           weir_trail_can(busy, lane) && weir_busy_may_ask(busy, lane);
}

// Asks for events of all lanes, and those streams that have been still for so long.
static void look(struct weir_time *time, uint32_t gpu, uint64_t still_ns, uint64_t now_ns) {
    struct weir_busy *busy = &time->busy;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        if (WEIR_GET(time->numbers[i]) == gpu + 1)
            weir_busy_loose_look(&busy->gpus[i], now_ns, OVERDUE_NS);
    // Of threads without a word it is not known which of them are in the driver.
    int crowd = WEIR_GET(time->gate.crowd[gpu]) != 0;
    for (uint32_t i = 0; i < used; i++) {
        struct weir_busy_lane *lane = &busy->lanes[i];
        struct weir_trail *trail = &lane->trail;
        if (!is_on(time, lane, gpu))
            continue;
        uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
        if (launches != WEIR_GET(trail->seen)) {
            WEIR_PUT(trail->overdue_ns,
                     now_ns + busy->gpus[WEIR_GET(lane->gpu)].time.ahead_ns + patience_with(lane));
            WEIR_PUT(trail->seen, launches);
            WEIR_PUT(trail->still_ns, now_ns);
        }
        uint64_t since_ns = now_ns - WEIR_GET(trail->still_ns);
        int ask = !crowd && (since_ns >= still_ns || is_wished(busy, lane, since_ns));
        if (!weir_trail_look(busy, lane, ask) && (crowd || !weir_trail_can(busy, lane)))
            give_up(lane, now_ns);
        // A stream that is given copies all the time never comes to its end.
        if (launches > WEIR_GET(trail->owed) && now_ns >= WEIR_GET(trail->owed_ns))
            weir_busy_done(lane, WEIR_GET(trail->owed), 0);
    }
}

static void add_lane(struct tally *all, const struct weir_busy_lane *lane) {
    const struct weir_trail *trail = &lane->trail;
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE), done = done_of(lane);
    done = done < launches ? done : launches;
    all->submitted += launches;
    all->completed += done;
    all->work_ns += WEIR_GET(lane->work_ns);
    all->flight_ns += flight_of(lane);
    all->blind += blind_of(lane);
    uint64_t owed = WEIR_GET(trail->owed);
    all->owing += done < owed;
    all->owed_done += done < owed ? done : owed;
    all->active += done < launches || launches != WEIR_GET(trail->seen);
}

// The same for launches that have no lane.
static void add_loose(struct tally *all, const struct weir_busy_gpu *books) {
    uint64_t launches = __atomic_load_n(&books->loose_launches, __ATOMIC_ACQUIRE);
    uint64_t work_ns = __atomic_load_n(&books->loose_work_ns, __ATOMIC_RELAXED);
    int outstanding = launches != books->loose_done;
    all->submitted += launches;
    all->completed += books->loose_done;
    all->work_ns += work_ns;
    all->flight_ns += outstanding ? work_ns - books->loose_done_ns : 0;
    all->owing += books->loose_done < books->loose_owed;
    all->owed_done += books->loose_done < books->loose_owed ? books->loose_done : books->loose_owed;
    all->active += (uint32_t)outstanding;
}

static struct tally tally(struct weir_time *time, uint32_t gpu) {
    struct weir_busy *busy = &time->busy;
    struct tally all = {0};
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++) {
        if (__atomic_load_n(&time->numbers[i], __ATOMIC_RELAXED) != gpu + 1)
            continue;
        const struct weir_busy_gpu *books = &busy->gpus[i];
        all.submitted += books->gone_launches;
        all.completed += books->gone_launches;
        all.work_ns += books->gone_work_ns + BLIND_NS * WEIR_GET(books->blind);
        all.busy_ns += books->time.busy_ns;
        add_loose(&all, books);
    }
    for (uint32_t i = 0; i < busy->lanes_used; i++)
        if (is_on(time, &busy->lanes[i], gpu))
            add_lane(&all, &busy->lanes[i]);
    return all;
}

int weir_drain_is_outstanding(struct weir_time *time, uint32_t gpu) {
    const struct weir_busy *busy = &time->busy;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        if (WEIR_GET(time->numbers[i]) == gpu + 1 && weir_busy_has_loose(&busy->gpus[i]))
            return 1;
    for (uint32_t i = 0; i < used; i++)
        if (is_on(time, &busy->lanes[i], gpu) &&
            done_of(&busy->lanes[i]) < WEIR_GET(busy->lanes[i].launches))
            return 1;
    return 0;
}

// Counts what there is, and writes the words of the usage page.
static struct tally publish(struct weir_time *time, uint32_t gpu, uint32_t waiting) {
    struct weir_attended *a = &time->attended[gpu];
    struct weir_gpu_usage *page = &time->state->usage->gpus[gpu];
    struct tally all = {0};
    if (weir_lock(&time->busy.lock))
        return all;
    all = tally(time, gpu);
    weir_unlock(&time->busy.lock);
    a->submitted = all.submitted > a->submitted ? all.submitted : a->submitted;
    a->completed = all.completed > a->completed ? all.completed : a->completed;
    a->work_ns = all.work_ns > a->work_ns ? all.work_ns : a->work_ns;
    __atomic_store_n(&page->waiting, waiting, __ATOMIC_RELAXED);
    __atomic_store_n(&page->submitted, a->submitted, __ATOMIC_RELAXED);
    __atomic_store_n(&page->completed, a->completed, __ATOMIC_RELAXED);
    __atomic_store_n(&page->work_ns, a->work_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&page->busy_ns, all.busy_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&page->ungated,
                     __atomic_load_n(&time->gate.passed_closed[gpu], __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
    return all;
}

// Settles busy time, often enough for it to be even.
static void settle_busy(struct weir_time *time, uint64_t now_ns) {
    uint64_t next_ns = weir_busy_poll(&time->busy);
    time->poll_ns = now_ns + (next_ns < LOOK_ALONE_NS ? next_ns : LOOK_ALONE_NS);
}

static void owe(struct weir_busy_lane *lane, uint64_t now_ns) {
    WEIR_PUT(lane->trail.owed, __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE));
    WEIR_PUT(lane->trail.owed_ns, now_ns + flight_of(lane) + patience_with(lane));
}

// No launch is under way: what was submitted by now is what the drain waits for.
static void begin_drain(struct weir_time *time, uint32_t gpu, uint64_t now_ns) {
    struct weir_attended *a = &time->attended[gpu];
    struct weir_busy *busy = &time->busy;
    settle_busy(time, now_ns);
    a->revoked_ns = now_ns;
    a->told = a->done = a->completed;
    a->expected_ns = 0;
    a->told_ns = now_ns;
    a->quiet = 1;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        if (WEIR_GET(time->numbers[i]) == gpu + 1)
            busy->gpus[i].loose_owed =
                __atomic_load_n(&busy->gpus[i].loose_launches, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (is_on(time, &busy->lanes[i], gpu))
            owe(&busy->lanes[i], now_ns);
}

// Others come and go: what launches take is learned while they are away.
static void look_at_sharing(struct weir_time *time, uint32_t gpu) {
    struct weir_attended *a = &time->attended[gpu];
    const struct weir_gpu_control *page = &time->state->control->gpus[gpu];
    uint32_t turns = WEIR_GET(page->turns), rivals = turns != WEIR_TURNS_ALONE;
    uint32_t shared = rivals && (turns == WEIR_TURNS_BESIDE || !WEIR_GET(page->lease));
    int come = (rivals && !a->rivals) || (shared && !a->shared);
    int away = !shared && (a->shared || (rivals && !a->rivals));
    a->rivals = rivals;
    a->shared = shared;
    for (uint32_t i = 0; (come || away) && i < WEIR_ORDINALS_MAX; i++) {
        if (WEIR_GET(time->numbers[i]) != gpu + 1)
            continue;
        if (come)
            weir_busy_shared(&time->busy, i);
        if (away)
            weir_busy_unshared(&time->busy, i);
    }
}

// Looks at the lease's word. Whether it is closed.
static int look_at_lease(struct weir_time *time, uint32_t gpu, uint64_t now_ns) {
    struct weir_attended *a = &time->attended[gpu];
    uint32_t lease = weir_gate_lease(&time->gate, gpu);
    int closed = lease & WEIR_LEASE_CLOSED;
    if (lease != a->lease) {
        a->opened = !closed && (a->lease & WEIR_LEASE_CLOSED) && lease >> 1 == a->lease >> 1;
        // Closed as it was, and drained: that need not be said again.
        a->drained &= closed && (a->lease & WEIR_LEASE_CLOSED);
        a->quiet = 0;
        a->lease = lease;
    }
    look_at_sharing(time, gpu);
    if (closed && !a->quiet && weir_gate_revoke(&time->gate, gpu, REVOKE_MS) == 0)
        begin_drain(time, gpu, now_ns);
    return closed;
}

// Nothing is outstanding. Says so, unless a launch has come between.
static void say_idle(struct weir_time *time, uint32_t gpu) {
    struct weir_attended *a = &time->attended[gpu];
    struct weir_gpu_usage *page = &time->state->usage->gpus[gpu];
    __atomic_store_n(&page->active, 0, __ATOMIC_SEQ_CST);
    weir_gate_settle(&time->gate);
    uint32_t waiting = weir_gate_waiting(&time->gate, gpu);
    struct tally all = publish(time, gpu, waiting);
    if (all.submitted != a->rested || all.active || waiting || weir_gate_inside(&time->gate, gpu) ||
        weir_gate_lease(&time->gate, gpu) != a->lease) {
        __atomic_store_n(&page->active, 1, __ATOMIC_SEQ_CST);
        a->rest_ns = 0;
        return;
    }
    // A thread that comes to wait now says WANT itself, or is seen here.
    __atomic_store_n(&time->gpus[gpu].wanted, 0, __ATOMIC_SEQ_CST);
    weir_used_tell(time->state, gpu, 0);
    if (weir_attend_say(time, WEIR_MSG_IDLE, gpu, a->lease, 0) < 0) {
        __atomic_store_n(&page->active, 1, __ATOMIC_SEQ_CST);
        return;
    }
    a->on = 0;
    if (weir_gate_waiting(&time->gate, gpu) && (a->lease & WEIR_LEASE_CLOSED))
        weir_attend_say(time, WEIR_MSG_WANT, gpu, a->lease, 0);
}

static uint64_t clamp(uint64_t ns, uint64_t least, uint64_t most) {
    return ns < least ? least : ns > most ? most : ns;
}

// How long until the next look: a part of what is left of the expected time, or of what it is
// overdue. The next flow waits for the end, and what is expected may be wrong: so no large part of
// what has passed, and without sleep where the end is near.
static uint64_t until_look(const struct weir_attended *a, uint64_t now_ns) {
    uint64_t most_ns = clamp((now_ns - a->revoked_ns) / PASSED_PART, DRAIN_NS_LATE, DRAIN_NS_MAX);
    if (now_ns + AWAKE_NS > a->expected_ns && now_ns < a->expected_ns + AWAKE_NS)
        return 0;
    if (now_ns < a->expected_ns)
        return clamp((a->expected_ns - now_ns) / DRAIN_PART, DRAIN_NS_MIN, most_ns);
    return clamp((now_ns - a->expected_ns) / OVERDUE_PART, DRAIN_NS_MIN, most_ns);
}

// A drain goes on, or is over. How long until the next look.
static uint64_t go_on(struct weir_time *time, uint32_t gpu, const struct tally *all,
                      uint32_t waiting, uint64_t now_ns) {
    struct weir_attended *a = &time->attended[gpu];
    if (a->quiet && !all->owing) {
        weir_used_tell(time->state, gpu, 1);
        a->drained = weir_attend_say(time, WEIR_MSG_DRAINED, gpu, a->lease, waiting) == 0;
        if (!a->drained)
            return DRAIN_NS_MAX;
        weir_window_drained(time, gpu, now_ns - a->revoked_ns);
        return LOOK_RIVALS_NS;
    }
    int moves = a->completed != a->told || now_ns < a->expected_ns ||
                (all->blind && now_ns - a->revoked_ns < BLIND_HOPE_NS);
    if (moves && now_ns - a->told_ns >= PROGRESS_NS &&
        weir_attend_say(time, WEIR_MSG_PROGRESS, gpu, a->lease, waiting) == 0) {
        a->told = a->completed;
        a->told_ns = now_ns;
    }
    if (!a->quiet)
        return DRAIN_NS_MIN;
    // Each launch that is seen to be done makes the expectation better. It is seen late, though, so
    // the earlier one of two that are about the same is the right one.
    uint64_t expected_ns = now_ns + all->flight_ns;
    if (!a->expected_ns || (a->completed != a->done && (expected_ns < a->expected_ns ||
                                                        expected_ns - a->expected_ns > SAME_NS)))
        a->expected_ns = expected_ns;
    a->done = a->completed;
    return until_look(a, now_ns);
}

// The gate has opened again in a drain that stood still: what that brings is said at once. Only
// what the drain waits for counts: launches that came through the open gate get done beside a
// kernel that never ends, too.
static void watch_opened(struct weir_time *time, uint32_t gpu, const struct tally *all,
                         uint32_t waiting, uint64_t now_ns) {
    struct weir_attended *a = &time->attended[gpu];
    if (all->owed_done == a->owed_done || (a->opened > 1 && now_ns - a->told_ns < PROGRESS_NS) ||
        weir_attend_say(time, WEIR_MSG_PROGRESS, gpu, a->lease, waiting) < 0)
        return;
    a->opened = 2;
    a->owed_done = all->owed_done;
    a->told = a->completed;
    a->told_ns = now_ns;
}

uint64_t weir_drain_step(struct weir_time *time, uint32_t gpu, uint64_t now_ns) {
    struct weir_attended *a = &time->attended[gpu];
    const struct weir_gpu_control *page = &time->state->control->gpus[gpu];
    int rivals = __atomic_load_n(&page->turns, __ATOMIC_RELAXED) != WEIR_TURNS_ALONE;
    int closed = look_at_lease(time, gpu, now_ns);
    if (now_ns >= time->poll_ns)
        settle_busy(time, now_ns);
    look(time, gpu, a->quiet ? 0 : rivals ? LOOK_RIVALS_NS : STILL_ALONE_NS, now_ns);
    uint32_t waiting = weir_gate_waiting(&time->gate, gpu);
    struct tally all = publish(time, gpu, waiting);
    weir_window_set(time, gpu, all.active, now_ns);
    if (closed)
        a->owed_done = all.owed_done;
    if (closed && !a->drained)
        return now_ns + go_on(time, gpu, &all, waiting, now_ns);
    if (a->opened)
        watch_opened(time, gpu, &all, waiting, now_ns);
    if (all.active || waiting || !a->rest_ns || all.submitted != a->rested) {
        a->rest_ns = all.active || waiting ? 0 : now_ns;
        a->rested = all.submitted;
    } else if (now_ns - a->rest_ns >= (rivals ? REST_RIVALS_NS : REST_ALONE_NS)) {
        say_idle(time, gpu);
    }
    if (closed && waiting)
        return now_ns + LOOK_WAITING_NS;
    return now_ns + (a->opened ? OPENED_NS : rivals ? LOOK_RIVALS_NS : LOOK_ALONE_NS);
}
