// busyloose.c: launches for which there is no lane, since all are in use: they are counted for
// their GPU by locked instructions, and done when their time has passed.
//
// Invariants: the words that all write only grow; the helper alone says what is done. Such work is
// taken for outstanding from its launch on until the helper has seen no more of it for as long as
// all that is ahead on the GPU should take: no event tells of it.
#include "busy.h"

static void begin_books(struct weir_busy *busy, struct weir_busy_gpu *gpu) {
    if (WEIR_GET(gpu->used) || weir_lock(&busy->lock))
        return;
    if (!gpu->used)
        weir_busytime_step(&gpu->time, weir_busy_clock(), 0, 0);
    WEIR_PUT(gpu->used, 1);
    weir_unlock(&busy->lock);
}

// What a launch is expected to take: by its key, by its family, or as all launches on average.
static uint64_t expected_of(struct weir_busy *busy, uint32_t ordinal,
                            const struct weir_busy_kind *kind) {
    const struct weir_busy_key *known = weir_busy_known(busy, kind->key);
    uint64_t ns = known ? WEIR_GET(known->expected_ns) : 0;
    if (ns)
        return ns;
    // Such a launch is never measured, so its key needs no place among those that may be.
    struct weir_busy_key placeless = {.key = kind->key};
    ns = weir_busy_family_tell(busy, &placeless, kind, ordinal).ns;
    return ns ? ns : WEIR_GET(busy->gpus[ordinal].mean_ns);
}

void weir_busy_loose(struct weir_busy *busy, uint32_t ordinal, struct weir_busy_kind kind) {
    if (ordinal >= WEIR_BUSY_GPUS)
        return;
    struct weir_busy_gpu *gpu = &busy->gpus[ordinal];
    begin_books(busy, gpu);
    uint64_t ns = expected_of(busy, ordinal, &kind);
    if (!ns)
        __atomic_fetch_add(&gpu->blind, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&gpu->loose_work_ns, ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&gpu->loose_launches, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&busy->unmeasured, 1, __ATOMIC_RELAXED);
}

void weir_busy_loose_look(struct weir_busy_gpu *gpu, uint64_t now_ns, uint64_t overdue_ns) {
    uint64_t launches = __atomic_load_n(&gpu->loose_launches, __ATOMIC_ACQUIRE);
    uint64_t work_ns = __atomic_load_n(&gpu->loose_work_ns, __ATOMIC_RELAXED);
    if (launches != gpu->loose_seen) {
        // What came since time was settled last is not in what is ahead.
        gpu->loose_due_ns =
            now_ns + gpu->time.ahead_ns + (work_ns - gpu->loose_seen_ns) + overdue_ns;
        gpu->loose_seen = launches;
        gpu->loose_seen_ns = work_ns;
    } else if (launches != gpu->loose_done && now_ns >= gpu->loose_due_ns) {
        WEIR_PUT(gpu->loose_done_ns, work_ns);
        WEIR_PUT(gpu->loose_done, launches);
    }
}
