// windowall.c: what all lanes of a GPU may have in flight together (window.c). However many they
// are, and however long their operations, a drain is to be short.
//
// A launch takes a place for what its lane's last one was expected to take, as long as `taken_ns`
// is below `limit_ns`. Who finds that reached asks the lanes how far they are, and says anew how
// much more may be taken: so this needs neither the helper nor a count that a thread which dies
// would leave wrong.
#include "capture.h"
#include "timed.h"
#include "trail.h"

// Where work in flight has not gone on for long, nobody waits for that of all lanes for so long.
#define FREE_NS 1000000000u
// Others may go on for ever, and take each place before it is seen here.
#define LONGEST_NS 200000000u

// What they may have in flight together.
static uint64_t room_of_all(struct weir_time *time, uint32_t gpu) {
    uint64_t room_ns = WEIR_GET(time->gpus[gpu].room_all_ns);
    return room_ns ? room_ns
                   : weir_window_of(time, gpu) * WEIR_WINDOW_ALL_FIRST / WEIR_WINDOW_ALL_PARTS;
}

// Of what nothing is known is taken to be so long that few are in flight.
uint64_t weir_window_guess(struct weir_time *time, uint32_t gpu, const struct weir_busy_key *last) {
    uint64_t expected_ns = last ? WEIR_GET(last->expected_ns) : 0;
    return expected_ns ? expected_ns : room_of_all(time, gpu) / WEIR_WINDOW_BLIND;
}

int weir_window_is_on(const struct weir_time *time, const struct weir_busy_lane *lane,
                      uint32_t gpu) {
    return WEIR_GET(lane->thread) && WEIR_GET(time->numbers[WEIR_GET(lane->gpu)]) == gpu + 1;
}

// What a lane has in flight, launches of which nothing was expected included.
static uint64_t flight_of(struct weir_time *time, uint32_t gpu, const struct weir_busy_lane *lane) {
    uint64_t done = WEIR_GET(lane->done), blind = WEIR_GET(lane->blind);
    uint64_t launches = WEIR_GET(lane->launches);
    if (done >= launches)
        return 0;
    blind = blind < launches ? blind : launches;  // it may be ahead of what was launched
    return weir_window_in_flight(lane) +
           (blind > done ? (blind - done) * weir_window_guess(time, gpu, WEIR_GET(lane->last)) : 0);
}

// Whether a lane's work has stood still for so long, as far as it was asked: it may wait for what a
// thread that waits here is to launch. Whatever is done changes `done`.
static int stands_still(struct weir_busy_lane *lane, uint64_t now_ns, uint64_t patience_ns) {
    uint64_t done = WEIR_GET(lane->done);
    if (WEIR_GET(lane->moved_ns) && WEIR_GET(lane->moved_done) == done)
        return now_ns > WEIR_GET(lane->moved_ns) + patience_ns;
    WEIR_PUT(lane->moved_done, done);
    WEIR_PUT(lane->moved_ns, now_ns);
    return 0;
}

// What all launches on a GPU have come to.
struct sum {
    uint64_t flight_ns, done;
};

// Of all lanes, and of launches that have none. Lanes are asked how far they are until it is known
// that there is no room. What stands still has its place no more.
static struct sum sum_of_all(struct weir_time *time, uint32_t gpu, uint64_t room_ns,
                             const struct weir_busy_lane *mine) {
    struct weir_busy *busy = &time->busy;
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    struct sum all = {0, 0};
    uint64_t now_ns = weir_busy_clock();
    int mode = weir_capture_relax();
    for (uint32_t i = 0; i < used; i++) {
        struct weir_busy_lane *lane = &busy->lanes[i];
        if (!weir_window_is_on(time, lane, gpu))
            continue;
        int asked = all.flight_ns < room_ns && WEIR_GET(lane->done) < WEIR_GET(lane->launches);
        if (asked)
            weir_trail_see(busy, lane);
        uint64_t flight_ns = flight_of(time, gpu, lane);
        if (!asked || !flight_ns ||
            !stands_still(lane, now_ns, room_ns + flight_ns + WEIR_WINDOW_PATIENCE_NS))
            all.flight_ns += flight_ns;
        all.done += WEIR_GET(lane->done);
    }
    weir_capture_restore(mode);
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++) {
        const struct weir_busy_gpu *books = &busy->gpus[i];
        if (WEIR_GET(time->numbers[i]) != gpu + 1)
            continue;
        all.done += WEIR_GET(books->loose_done);
        if (weir_busy_has_loose(books))
            all.flight_ns += __atomic_load_n(&books->loose_work_ns, __ATOMIC_RELAXED) -
                             WEIR_GET(books->loose_done_ns);
    }
    uint64_t passed_ns = mine ? weir_window_passed(time, gpu, mine) : 0;
    if (mine && all.flight_ns && all.flight_ns == flight_of(time, gpu, mine))
        all.flight_ns -= passed_ns < all.flight_ns ? passed_ns : all.flight_ns;
    return all;
}

static int has_place(const struct weir_time_gpu *g) {
    return __atomic_load_n(&g->taken_ns, __ATOMIC_RELAXED) < WEIR_GET(g->limit_ns);
}

// Whether what all lanes have in flight is not waited for now.
static int is_free(const struct weir_time_gpu *g) {
    uint64_t free_ns = WEIR_GET(g->free_ns);
    return free_ns && weir_busy_clock() < free_ns;
}

int weir_window_take(struct weir_time *time, uint32_t gpu, uint64_t ns) {
    struct weir_time_gpu *g = &time->gpus[gpu];
    int64_t taken = __atomic_fetch_add(&g->taken_ns, (int64_t)ns, __ATOMIC_RELAXED);
    if (taken < WEIR_GET(g->limit_ns))
        return 1;
    __atomic_fetch_sub(&g->taken_ns, (int64_t)ns, __ATOMIC_RELAXED);
    return is_free(g);
}

void weir_window_wait(struct weir_time *time, uint32_t gpu, const struct weir_busy_lane *lane,
                      struct weir_hope *hope) {
    struct weir_time_gpu *g = &time->gpus[gpu];
    while (!has_place(g) && !is_free(g) && !weir_window_is_closed(time, gpu)) {
        uint64_t room_ns = room_of_all(time, gpu);
        int64_t taken = __atomic_load_n(&g->taken_ns, __ATOMIC_RELAXED);
        struct sum all = sum_of_all(time, gpu, room_ns, lane);
        WEIR_PUT(g->limit_ns, taken + (int64_t)room_ns - (int64_t)all.flight_ns);
        if (all.flight_ns < room_ns)
            continue;
        uint64_t now_ns = weir_busy_clock();
        if (!hope->until_ns || all.done != hope->done) {
            hope->done = all.done;
            hope->until_ns = now_ns + 2 * all.flight_ns + WEIR_WINDOW_PATIENCE_NS;
        }
        if (now_ns >= hope->until_ns)
            WEIR_PUT(g->free_ns, now_ns + FREE_NS);
        if (!hope->last_ns)
            hope->last_ns = now_ns + LONGEST_NS;
        hope->over = now_ns >= hope->last_ns;
        if (hope->over)
            return;
        WEIR_PUT(g->met, 1);
        weir_window_doze((all.flight_ns - room_ns + room_ns / WEIR_WINDOW_STEPS) / 2);
    }
}
