// timed.h: what goes around each call of the driver that takes GPU time: it waits at the gate while
// the GPU is another container's turn, is counted, and now and then measured.
//
// A hook calls weir_timed_begin right before the driver and weir_timed_end right after it, in one
// thread. Invariants:
//   - while the gate is open this is a few loads and stores, and one call of the driver that looks
//   up
//     the current context: no lock, no system call, no clock;
//   - a process that is none of weir's, a thread without a context, a captured launch and a GPU
//   that
//     the agent does not list pass as if this were not here;
//   - a launch is counted before `active` of the usage page is looked at, and both happen inside
//   the
//     gate: so whoever clears `active`, settles the gate, and finds all counters as they were, has
//     overlooked nothing;
//   - what there is no lane for (more than 1024 pairs of a thread and a stream that have work in
//   flight) is held back and counted as any other, but not measured, and done after its time;
//   - all that is kept lies in memory which a forked child finds wiped. It is made at the first
//     launch, lest each process that only starts pay for it.
#ifndef WEIR_TIMED_H
#define WEIR_TIMED_H

#include "busy.h"
#include "gate.h"
#include "hooks.h"
#include "state.h"
#include "window.h"

// What the helper remembers of a GPU that it attends to; see attend.h.
struct weir_attended {
    uint32_t on;           // it attends
    uint32_t lease;        // word of the page, as last seen
    uint32_t quiet;        // closed, and no launch of that lease is under way any more
    uint32_t drained;      // DRAINED was said of it
    uint32_t rivals;       // others wanted the GPU when last seen
    uint64_t rivals_ns;    // when there was last a window
    uint32_t shared;       // others had the GPU, too, when last seen
    uint32_t opened;       // opened again after it had been closed, and nothing was done since
    uint32_t less;         // of the window so much is not used, in 1/256
    int32_t more;          // all lanes may have so much more in flight than at first; see window.c
    uint32_t asked;        // the lane of which it was last asked whether it is left
    uint64_t told;         // `completed` when PROGRESS was last said
    uint64_t told_ns;      // and when that was
    uint64_t owed_done;    // of what a drain waits for, before its gate opened, or as last said
    uint64_t done;         // `completed` when the end of the drain was last estimated
    uint64_t rest_ns;      // since when nothing is outstanding and nobody waits; 0: not so
    uint64_t rested;       // `submitted` then
    uint64_t revoked_ns;   // when the drain began
    uint64_t expected_ns;  // when it is expected to end; 0: not known yet
    uint64_t due_ns;       // when to look again
    // As last written to the usage page, where nothing goes backwards.
    uint64_t submitted, completed, work_ns;
};

// Of a GPU, by its number in the control page.
struct weir_time_gpu {
    uint64_t room_ns;      // expected work in flight in a lane, at most; 0: there is no window
    uint64_t room_all_ns;  // the same in all lanes together
    uint64_t step_ns;      // with a window a lane is looked at after so much work
    uint64_t free_ns;      // what all lanes have in flight is not waited for until then
    uint32_t lanes;        // at work when the helper last looked
    uint32_t met;          // a thread has waited for that
    uint32_t wanted;       // the lease word of which WANT was said; 0: of none
    // Written by all at each look: in a line of their own, lest these cost whoever only reads.
    int64_t taken_ns __attribute__((aligned(64)));  // work that was let through, all in all
    int64_t limit_ns;  // so much of that may be, until it is looked again
} __attribute__((aligned(64)));

struct weir_time {
    struct weir_state *state;
    struct weir_usage_page *usage;  // the state's; not NULL once a GPU has a number
    // The only context that there has ever been; NULL: the driver is asked which is current.
    CUcontext sole;
    uint32_t numbers[WEIR_ORDINALS_MAX];  // of the control page, plus 1; 0: not known or not listed
    struct weir_time_gpu gpus[WEIR_GPUS_MAX];
    struct weir_attended attended[WEIR_GPUS_MAX];
    uint64_t poll_ns;     // when weir_busy_poll is due
    uint32_t registered;  // the helper has tried to register membarrier
    struct weir_gate gate;
    struct weir_busy busy;
};

enum weir_timed_how {
    WEIR_TIMED_GATED = 0,
    WEIR_TIMED_CHARGED = 1,  // counted, never held back: copies between host and device
};

// One call between its begin and its end, on the caller's stack.
struct weir_timed {
    struct weir_time *time;  // NULL: it is not looked at
    struct weir_busy_launch launch;
    struct weir_pass pass;
    uint32_t gpu;     // number of the control page
    uint32_t gated;   // it has gone through the gate
    uint32_t marked;  // an event is to be recorded behind it
};

// ---- For hooks ----

// `stream` as the program gave it; `per_thread`: the form of the call whose default stream is each
// thread's own. `what`, `size` and `shape` make the key (weir_busy_key): a function and its grid.
static inline void weir_timed_begin(struct weir_timed *op, CUstream stream, int per_thread,
                                    uint64_t what, uint64_t size, uint64_t shape,
                                    enum weir_timed_how how);

// Returns `result`, what the driver has said.
static inline CUresult weir_timed_end(struct weir_timed *op, CUresult result);

// Of a call that is for several devices, by ordinals: goes through the gate of one, where that
// needs no wait, with what the call has waited for so far. Whether it has. Where not, the caller
// ends those that it has gone through with CUDA_SUCCESS, waits for this one, and begins anew.
// Nothing of it is counted but by weir_timed_count.
int weir_timed_try(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                   const struct weir_gate_tries *tries);
void weir_timed_await(const struct weir_timed *op, struct weir_gate_tries *tries);
void weir_timed_count(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                      uint64_t what, uint64_t size, uint64_t shape);

// A call has returned with success that waited for a stream, or found it done; for all streams of
// the current context where `whole_context`.
void weir_timed_synced(CUstream stream, int per_thread, int whole_context);

// A capture is about to begin in a stream; it has ended, or did not begin.
void weir_timed_capture_begin(CUstream stream, int per_thread);
void weir_timed_capture_end(CUstream stream, int per_thread);

// Before the driver's call that destroys a stream, or ends or resets a context.
void weir_timed_stream_ending(CUstream stream);
void weir_timed_context_ending(CUcontext context);

// ---- Below that ----

// How calls pass that the lines below do not serve. Nobody is told the address of `op`: what has
// one cannot be kept in registers.
struct weir_timed weir_timed_begin_slow(CUstream stream, uint64_t what, uint64_t size,
                                        uint64_t shape, enum weir_timed_how how) WEIR_RARE;
void weir_timed_end_slow(struct weir_time *time, struct weir_busy_lane *lane, uint64_t added_ns,
                         struct weir_busy_mark *mark, uint32_t marked, CUresult result) WEIR_RARE;

// Sets `active` of a GPU in the usage page.
static inline void weir_timed_set_active(struct weir_time *time, uint32_t gpu) {
    uint32_t *active = &WEIR_GET(time->usage)->gpus[gpu].active;
    if (__builtin_expect(!WEIR_GET(*active), 0))
        WEIR_PUT(*active, 1);
}

// This thread's lane, if there is one, which is remembered as its last.
struct weir_busy_lane *weir_timed_lane(struct weir_time *time, CUcontext context,
                                       CUstream stream) WEIR_RARE;

// The current context, as the driver has it; NULL where there is none.
CUcontext weir_timed_context(void);

static inline CUstream weir_timed_stream(CUstream stream, int per_thread) {
    if (stream)
        return stream;
    return (CUstream)(uintptr_t)(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
}

// What is known of this process's time; NULL where nothing is.
static inline struct weir_time *weir_time_known(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    if (!state || __atomic_load_n(&state->mode, __ATOMIC_ACQUIRE) != WEIR_MODE_ENFORCED)
        return NULL;
    return __atomic_load_n(&state->time, __ATOMIC_ACQUIRE);
}

// `word`: the thread's at the gate, if that is known to be there.
static inline struct weir_timed weir_timed_go(struct weir_time *time, uint32_t gpu,
                                              struct weir_busy_lane *lane,
                                              struct weir_gate_word *word,
                                              struct weir_busy_kind kind, enum weir_timed_how how) {
    struct weir_timed op = {.time = time, .gpu = gpu, .gated = how == WEIR_TIMED_GATED};
    if (how == WEIR_TIMED_GATED) {
        // Who waits at the gate looks at the window that there is then.
        if (__builtin_expect(lane->work_ns >= WEIR_GET(lane->mark_at_ns) ||
                                 (weir_gate_lease(&time->gate, gpu) & WEIR_LEASE_CLOSED),
                             0)) {
            struct weir_window_pass to = weir_window_enter(time, gpu, lane);
            op.pass = to.pass;
            op.marked = to.marked;
        } else {
            op.pass = word ? weir_gate_enter_with(&time->gate, gpu, word)
                           : weir_gate_enter(&time->gate, gpu);
        }
    }
    op.launch = weir_busy_begin_in(&time->busy, lane, kind);
    weir_timed_set_active(time, gpu);
    return op;
}

static inline void weir_timed_begin(struct weir_timed *op, CUstream stream, int per_thread,
                                    uint64_t what, uint64_t size, uint64_t shape,
                                    enum weir_timed_how how) {
    struct weir_time *time = weir_time_known();
    stream = weir_timed_stream(stream, per_thread);
    if (__builtin_expect(time != NULL, 1)) {
        CUcontext context = WEIR_GET(time->sole);
        if (__builtin_expect(!context, 0))
            context = weir_timed_context();
        // Where its last lane is remembered, the word is this thread's.
        struct weir_gate_word *word = weir_gate_mine;
        struct weir_busy_lane *lane = word ? WEIR_GET(word->last) : NULL;
        if (__builtin_expect(!lane || !weir_busy_is(lane, weir_sys_self(), context, stream), 0)) {
            lane = weir_timed_lane(time, context, stream);
            word = NULL;
        }
        uint32_t number = lane ? WEIR_GET(time->numbers[WEIR_GET(lane->gpu)]) : 0;
        if (__builtin_expect(number && !WEIR_GET(time->busy.captures), 1)) {
            struct weir_busy_kind kind = weir_busy_kind(what, size, shape, lane->gpu);
            *op = weir_timed_go(time, number - 1, lane, word, kind, how);
            weir_busy_remember(lane, kind);
            return;
        }
    }
    *op = weir_timed_begin_slow(stream, what, size, shape, how);
}

static inline CUresult weir_timed_end(struct weir_timed *op, CUresult result) {
    if (__builtin_expect(!op->time, 0))
        return result;
    if (__builtin_expect(op->launch.mark || op->marked || result != CUDA_SUCCESS, 0))
        weir_timed_end_slow(op->time, op->launch.lane, op->launch.added_ns, op->launch.mark,
                            op->marked, result);
    if (op->gated)
        weir_gate_leave(&op->time->gate, op->gpu, op->pass);
    return result;
}

// ---- Launches of kernels ----

// A launch as nearly all are: its kernel is known, it is not sampled, its thread launches where it
// did last, and the gate is open. All is looked at before anything is written, so whoever is told
// no (0) begins with weir_timed_begin as if this had not been.
struct weir_quick {
    uint64_t entered;  // what the thread's word became
    struct weir_time *time;
    struct weir_busy_lane *lane;
    uint64_t added_ns;
    struct weir_pass pass;
    uint32_t gpu;
};

// No call is made, nor is one made by its caller ahead of the driver's: what the program gave stays
// in its registers until then.
__attribute__((always_inline)) static inline int weir_quick_begin(struct weir_quick *quick,
                                                                  CUstream stream, int per_thread,
                                                                  uint64_t what, uint64_t size,
                                                                  uint64_t shape) {
    struct weir_gate_word *word = weir_gate_mine;
    struct weir_busy_lane *lane = word ? WEIR_GET(word->last) : NULL;
    if (__builtin_expect(!lane, 0))
        return 0;
    // Where there is a lane, there are these.
    const struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_RELAXED);
    struct weir_time *time = WEIR_GET(state->time);
    struct weir_busy *busy = &time->busy;
    if (__builtin_expect(WEIR_GET(state->mode) != WEIR_MODE_ENFORCED ||
                             !weir_busy_is(lane, weir_sys_self(), WEIR_GET(time->sole),
                                           weir_timed_stream(stream, per_thread)) ||
                             WEIR_GET(busy->captures) ||
                             lane->work_ns >= WEIR_GET(lane->mark_at_ns) ||
                             lane->launches >= WEIR_GET(lane->look_at),
                         0))
        return 0;
    const struct weir_busy_recent *recent = weir_busy_recent(lane, what, size);
    struct weir_busy_key *known = recent->known;
    if (__builtin_expect(recent->what != what || recent->size != size || recent->shape != shape ||
                             !known || WEIR_GET(known->key) != recent->key,
                         0))
        return 0;
    uint64_t expected_ns = WEIR_GET(known->expected_ns);
    uint32_t number = WEIR_GET(time->numbers[WEIR_GET(lane->gpu)]);
    if (__builtin_expect(!number || !expected_ns, 0))
        return 0;
    uint32_t gpu = number - 1;
    quick->entered = weir_gate_enter_open(&time->gate, gpu, word, &quick->pass);
    if (__builtin_expect(!quick->entered, 0))
        return 0;
    WEIR_PUT(lane->last, known);
    WEIR_PUT(lane->work_ns, lane->work_ns + expected_ns);
    __atomic_store_n(&lane->launches, lane->launches + 1, __ATOMIC_RELEASE);
    weir_timed_set_active(time, gpu);
    quick->time = time;
    quick->lane = lane;
    quick->added_ns = expected_ns;
    quick->gpu = gpu;
    return 1;
}

static inline CUresult weir_quick_end(const struct weir_quick *quick, CUresult result) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        weir_timed_end_slow(quick->time, quick->lane, quick->added_ns, NULL, 0, result);
    weir_gate_leave_open(&quick->time->gate, quick->gpu, quick->pass, quick->entered);
    return result;
}

#endif
