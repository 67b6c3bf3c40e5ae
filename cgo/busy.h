// busy.h: how long this process keeps each GPU busy, measured with few calls of the driver.
//
// Busy is the union of the stretches in which the GPU works for the process. The hot path only adds
// up what launches are expected to take: a *key* stands for one kernel and its grid (or one graph,
// or one size of copy), and has an expectation learned from samples; its *family*, all grids of
// that kernel, tells what is expected until then. Every so many launches one is *sampled*: an event
// is recorded behind it (a *mark*), from which the helper learns that work was outstanding until it
// came; or the launch is *measured*, between two events. A launch by itself reaches the GPU some
// microseconds after the event before it; so where a kernel is short, a *hold* goes ahead of the
// first event: a set of a little pinned memory, behind which the launch is in time.
//
// Each thread has a *lane* for each stream that it launches in, so counting needs neither a lock
// nor a locked instruction. Invariants:
//   - on a program's stream calls are made only within the program's own launch call on that
//   stream,
//     by that thread: so the stream is alive, and no capture can begin that the launch itself would
//     not have been in the way of. While any capture is open nothing is recorded at all, and each
//     launch asks whether it is captured: then it is no work;
//   - the helper only asks for times of events, in relaxed capture mode; the end of a context waits
//     for it and makes it forget the context's events before the driver is called;
//   - a lane's counters are written by its thread alone, its marks are handed over in a ring. They
//   only grow as long as its GPU is the same, whoever has it: so what is late told of an earlier
//   owner's launches is true of the next one's, too;
//   - a lane is taken again (busytake.c) by the thread whose own it is, or when that thread has
//   ended or its stream is gone, and only once all that was launched in it is done: nobody else can
//   be counting in it. What finds no lane is counted in its GPU's books (busyloose.c);
//   - of a launch rate of n a second at most n/64 calls a second are made, or n/192 and
//     WEIR_BUSY_SPARE where that is more, once the program's kernels are known;
//   - a launch that is measured may take up to a millisecond longer, where several threads or
//   streams
//     are at work, and so may others that come meanwhile: their threads then sleep, holding
//     nothing;
//   - the lock is held for bookkeeping only, never across a call of the driver.
#ifndef WEIR_BUSY_H
#define WEIR_BUSY_H

#include "abi/weir_abi.h"
#include "busyfit.h"
#include "busylearn.h"
#include "busytime.h"
#include "cuda.h"
#include "lock.h"

#define WEIR_BUSY_GPUS 64u
#define WEIR_BUSY_CONTEXTS 512u  // as many as the library knows
#define WEIR_BUSY_LANES 1024u
#define WEIR_BUSY_INDEX 4096u       // places in the index of lanes; a power of two
#define WEIR_BUSY_KEYS 4096u        // a power of two
#define WEIR_BUSY_FAMILIES 1024u    // a power of two
#define WEIR_BUSY_PROBES 8u         // places of the index or of keys that are looked at
#define WEIR_BUSY_RECENT 16u        // keys that a lane remembers; a power of two
#define WEIR_BUSY_RECENT_SHIFT 28u  // of a hash's 32 bits to those that say a place
#define WEIR_BUSY_MARKS 4u          // of a lane, that wait to be seen; a power of two
#define WEIR_BUSY_CAPTURES 64u
#define WEIR_BUSY_DRIVING_US 20000u
// Calls a second that the helper may make where launches allow fewer.
#define WEIR_BUSY_SPARE 10u

// Words that another thread may look at or write meanwhile.
#define WEIR_GET(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define WEIR_PUT(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELAXED)

// Launches for each of our calls: with the helper's own share that makes one in 64. So far ahead
// samples of keys that are not known yet may run into debt.
#define WEIR_BUSY_LAUNCHES_A_CALL 192u
#define WEIR_BUSY_DEBT_MAX (WEIR_BUSY_LAUNCHES_A_CALL * 256u)
// With so many launches in a lane of which it is not known that they are done, less is sampled.
#define WEIR_BUSY_DEEP 128u
#define WEIR_BUSY_JITTER 64u  // so that no period of the program's is met; a power of two
// After so many launches that its family told of, a key is known by that.
#define WEIR_BUSY_TOLD_MAX 16u

// For so long better samples of a new key are hoped for than those with others' work in them.
#define WEIR_BUSY_UNKNOWN_NS 200000000u

// What is known of launches with one key. Written by the helper, but for what says otherwise.
struct weir_busy_key {
    uint64_t key;          // 0: free; written once, by whoever comes first
    uint64_t expected_ns;  // 0: not known yet
    uint64_t since_ns;     // when it was first launched
    // Of what was learned, for launching threads: roughly what it takes, whether that is known by
    // more than rough samples, and how many chances to sample go by for each.
    uint64_t roughly_ns;
    uint32_t sure, pause;
    uint32_t epoch;    // its GPU's, when it was learned
    uint32_t eager;    // more samples are worth their calls, since they differ
    uint32_t useless;  // samples in a row that came to nothing
    uint32_t clean;    // it is known by samples that hold nothing of others
    // Where it belongs, and its place there; by all.
    struct weir_busy_family *family;
    uint64_t family_key, amount;
    struct weir_learned learned;
    // Not in the line that each launch reads: launches that were made before it was known, samples
    // on their way, sampled launches since one was measured, launches of which its family told; and
    // its GPU's times when the first of the unknown was launched. By all.
    uint32_t unknown, measuring, visits, told;
    uint64_t idle_before_ns, surplus_before_ns;
    // Launches that were counted by a rough expectation, as far as can be told from those that were
    // looked at, and by how much in all; by all. What was
    // busy, and what had been launched, before the first of them.
    uint64_t guesses, guessed_ns, guess_busy_ns, guess_work_ns;
} __attribute__((aligned(64)));

// What is known of all launches of one function, or all copies of a kind: it tells of those whose
// keys are not known. Written by the helper, but for the first two.
struct weir_busy_family {
    uint64_t key;           // 0: free
    uint64_t since_ns;      // when one was first launched
    uint64_t owner;         // the key of the family that the rest is about
    struct weir_line line;  // for launching threads
    uint32_t epoch;         // its GPU's, when it was learned
    struct weir_fit fit;
    struct weir_learned learned;  // of launches that had not the GPU to themselves
    uint32_t learned_epoch;
};

// What a family says of a launch.
struct weir_told {
    uint64_t ns;     // 0: nothing
    int sure;        // it is known by others that are about as large
    uint32_t epoch;  // when that was learned
};

// What kind of launch one is: what its key is made of (weir_busy_key), and the key.
struct weir_busy_kind {
    uint64_t what, size, shape, key;
};

// A sample of one.
struct weir_sample {
    uint64_t ns, foreign_ns;
    enum weir_sort sort;
    int shared;      // others had the GPU, too
    uint32_t epoch;  // the GPU's
};

// A sampled launch.
struct weir_busy_mark {
    CUevent hold, start, end;     // of the lane's context; NULL until needed
    struct weir_busy_key *known;  // what is measured; NULL: only the end is looked at
    uint64_t key;
    uint64_t before_ns;   // before our first call
    uint64_t after_ns;    // after our last one
    uint64_t launches;    // the lane's, this one included
    uint64_t work_ns;     // the same
    uint64_t others;      // launches in all other lanes of the GPU, before
    uint32_t held_bytes;  // by what set; 0: none
    uint32_t holds;       // `hold` was recorded: the hold itself is measured
    uint32_t in_time;     // the stream was at older work when all was launched
    uint32_t clean;       // nobody else launched until the end had come
    uint64_t blind;       // of the GPU, before
    uint64_t foreign_ns;  // what others launched until then, or UINT64_MAX
    uint32_t shared;      // other processes had the GPU, too, when it was begun
    uint32_t alone;       // nothing else was outstanding before
};

// Events behind a lane's launches, by which it is known how far its stream has come (trail.h).
#define WEIR_TRAIL_EVENTS 32u  // a power of two
struct weir_trail {
    // Recorded by the lane's thread in its launches, in turn. The newest is the one before `head`.
    CUevent events[WEIR_TRAIL_EVENTS];
    uint64_t launches[WEIR_TRAIL_EVENTS];  // the lane's, that one included
    uint64_t work_ns[WEIR_TRAIL_EVENTS];
    uint32_t head, tail;  // recorded, and seen to have come, by the thread
    uint32_t refused;     // events of this stream are refused
    uint64_t calls;       // of the driver, by the thread; for figures
    // Of the helper.
    uint64_t seen;        // launches when it last looked
    uint64_t still_ns;    // since when these are all
    uint64_t owed;        // so many must be done for a drain to be over
    uint64_t owed_ns;     // by then that is expected
    uint64_t overdue_ns;  // when work counts as done of which no event tells
};

// A key that a lane has launched with, by what makes it: so that it need be neither made nor
// searched for again.
struct weir_busy_recent {
    uint64_t what, size, shape;
    struct weir_busy_key *known;  // NULL: this place is free
    uint64_t key;
} __attribute__((aligned(64)));

// One thread's launches in one stream.
struct weir_busy_lane {
    // Of the hot path, all in one line.
    uintptr_t thread;  // 0: this lane is free
    CUcontext context;
    CUstream stream;
    struct weir_busy_key *last;  // of the last launch
    uint64_t work_ns;            // expected of all launches
    uint64_t launches;
    uint64_t look_at;     // the lesser of `sample_at` and `used_at`
    uint64_t mark_at_ns;  // `work_ns` at which the window is; others may set it to 0
    // Of the rest.
    uint32_t gpu, place;    // ordinal; of the context
    uint64_t sample_at;     // `launches` at which the next one is measured; others may set it to 0
    uint64_t used_at;       // at which it is looked what the next one uses (used.h); 0: it is not
    uint64_t used_ns;       // what was not looked at since then may be made up for
    uint64_t done_work_ns;  // of the work, so much is done for certain; by helper and thread
    uint64_t place_ns;      // in the window, taken in advance; by its thread alone
    uint64_t blind;         // `launches` with the last one of which nothing was expected
    // Its thread's word at the gate (gate.h); NULL: it has none, or that is not known now.
    const uint64_t *entry;
    uint64_t done;  // of the launches, so many are done for certain; by helper and thread
    uint64_t due;   // `launches` at which the next sample is due
    uint64_t dice;
    uint32_t tid;         // its thread's; 0: that has no word
    uint32_t ended;       // the stream is destroyed
    uint32_t dead;        // the context is ending
    uint32_t muted;       // its events are refused
    uint32_t wished;      // another lane wants to know when all here is done; by all
    uint32_t nudged;      // the helper wants the next launch sampled
    uint32_t waits;       // launches since this one wants to measure one that is alone
    uint32_t shy;         // how often that was in vain
    uint32_t still;       // others' launches wait for this one's, by its thread alone
    uint32_t swift;       // its last mark came soon: no backlog, however little is known to be done
    uint64_t choose_at;   // `sample_at` where that is only to count guesses
    uint64_t count_at;    // `launches` at which it is looked whether the next one is a guess,
    uint32_t count_for;   // and counts for so many; 0: that is not looked at
    uint32_t count_vain;  // so often in a row it was none
    uint32_t owed;        // calls made meanwhile
    uint32_t head, tail;  // marks made, by the thread, and seen, by the helper
    struct weir_busy_recent recent[WEIR_BUSY_RECENT];  // by its thread alone
    struct weir_busy_mark marks[WEIR_BUSY_MARKS];
    struct weir_trail trail;
    uint64_t moved_done, moved_ns;  // `done` as threads that wait for room last saw it, and when
    uint64_t begun_done, begun_ns;  // since when what came next is at work; by its thread alone
} __attribute__((aligned(64)));

struct weir_busy_context {
    CUcontext handle;  // NULL: this place is free
    uint32_t gpu;
    uint32_t dead;
    CUevent base;              // a past event, by which others' times are told
    uint64_t low_ns, high_ns;  // it came between these times
    void *hold;                // pinned memory
    uint32_t hold_bytes;       // set by one hold
    uint32_t hold_count;       // how often that was measured
    uint64_t hold_ns;          // what it takes; 0: not known
};

struct weir_busy_gpu {
    struct weir_busytime time;
    // Words of the agent's: whether other processes use the GPU, and if so, by which lease this one
    // has it (0: together with them). NULL: it has it for itself.
    const uint32_t *rivals, *lease;
    // Goes up when others come: what was learned shortly before may hold their work, and is learned
    // anew at the next chance.
    uint32_t epoch;
    uint64_t gone_work_ns;     // of lanes that are free again, and what nobody had expected
    uint64_t closed_ns;        // of lanes that are free again
    uint64_t late_ns;          // of launches whose keys were not known then: done by now
    uint64_t coming_ns;        // or still to do, as far as that can be
    uint64_t surplus_used_ns;  // such launches had so much of it
    uint64_t excess_ns;  // counted too much, by expectations that were rough; to be taken back
    uint64_t blind;      // launches of which nothing was expected; by all
    uint64_t nudged_ns;  // when a lane was last made to sample by the helper
    // Until then others' launches wait for one that is measured; that is not done for its own sake
    // before the second; so often in a row it was in vain. By all.
    uint64_t still_ns, gather_ns, vain;
    uint64_t longest_ns;  // the longest expectation so far
    uint64_t gone_launches;
    uint64_t paid_launches;  // those for which the helper has got its calls
    uint64_t paid_ns;
    uint64_t calls;  // in 1/96: what the helper may do now
    uint32_t used;
    // Launches for which there was no lane, and what they are expected to take; by all.
    uint64_t loose_launches, loose_work_ns;
    // Of the helper, see busyloose.c: of these it has seen so many, and so many are done; all that
    // it has seen counts as done from a time on; so many must be done for a drain to be over.
    uint64_t loose_seen, loose_seen_ns, loose_done, loose_done_ns, loose_due_ns, loose_owed;
    uint64_t mean_ns;  // what its launches are expected to take, on average
};

struct weir_busy {
    struct weir_lock lock;
    // Held by the helper while it calls the driver with events or streams of others, by calls that
    // wait for nothing; whoever ends these, or begins a capture, takes it before the driver is
    // called, or has waited for it for WEIR_BUSY_DRIVING_US.
    struct weir_lock driving;
    CUcontext current;  // the helper's
    uint32_t captures;  // open ones
    uint32_t unplaced;  // of these, so many have no place
    uint32_t polling;   // the helper is at events
    uint32_t relaxed;   // it has told the driver that it minds no capture
    uint32_t lanes_used, contexts_used, index_used;
    uint32_t turn;    // the lane that the helper begins with
    uint32_t taking;  // where it is looked for lanes to be taken again
    uint32_t moved;   // lanes that were taken into another context
    uint32_t full;    // launches that look for no lane, since there was none a moment ago; by all
    uint64_t unmeasured;  // launches for which there was no lane
    uint64_t calls;       // of the driver, by launches that are sampled; for figures
    uint64_t polls;       // of the driver, by the helper; for figures
    struct {
        CUcontext context;
        CUstream stream;
    } capture[WEIR_BUSY_CAPTURES];
    struct weir_busy_gpu gpus[WEIR_BUSY_GPUS];
    struct weir_busy_context contexts[WEIR_BUSY_CONTEXTS];
    uint16_t index[WEIR_BUSY_INDEX];  // lane + 1
    struct weir_busy_key keys[WEIR_BUSY_KEYS];
    struct weir_busy_family families[WEIR_BUSY_FAMILIES];
    struct weir_busy_lane lanes[WEIR_BUSY_LANES];
};

// A launch between its begin and its end.
struct weir_busy_launch {
    struct weir_busy_lane *lane;  // NULL: it is not counted
    uint64_t added_ns;
    struct weir_busy_mark *mark;  // NULL: not sampled
};

// Memory for all this, empty; NULL where there is none. A forked child finds it empty where the
// kernel can do that.
struct weir_busy *weir_busy_open(void);

// ---- Launches ----

// The key of a kernel's launch, never 0. Other launches make their own: of the graph and 0, or of a
// number for the kind of copy and its bytes, of which some leading bits are enough.
static inline uint64_t weir_busy_key(const void *what, uint64_t size, uint64_t shape,
                                     uint32_t gpu) {
    uint64_t key = (uint64_t)(uintptr_t)what * 0x9e3779b97f4a7c15u;
    uint64_t of_size = size * 0xbf58476d1ce4e5b9u, of_shape = (shape + gpu) * 0x94d049bb133111ebu;
    key ^= (of_size << 23 | of_size >> 41) ^ (of_shape << 47 | of_shape >> 17);
    return key | 1;
}

static inline struct weir_busy_kind weir_busy_kind(uint64_t what, uint64_t size, uint64_t shape,
                                                   uint32_t gpu) {
    uint64_t key = weir_busy_key((void *)(uintptr_t)what, size, shape, gpu);
    return (struct weir_busy_kind){what, size, shape, key};
}

// Whether samples of a GPU's launches may hold other processes' time slices.
static inline int weir_busy_is_shared(const struct weir_busy_gpu *gpu) {
    const uint32_t *rivals = WEIR_GET(gpu->rivals), *lease = WEIR_GET(gpu->lease);
    uint32_t turns = rivals ? WEIR_GET(*rivals) : WEIR_TURNS_ALONE;
    return lease && turns != WEIR_TURNS_ALONE && (turns == WEIR_TURNS_BESIDE || !WEIR_GET(*lease));
}

// Whether the GPU is to be given up: then no thread stays in a launch for a better sample.
static inline int weir_busy_hurries(const struct weir_busy_gpu *gpu) {
    const uint32_t *lease = WEIR_GET(gpu->lease);
    return lease && (WEIR_GET(*lease) & 1u);
}

// The helper: others have come to a GPU; they are away, for a lease or for good, so the next launch
// of each lane is to be looked at.
void weir_busy_shared(struct weir_busy *busy, uint32_t gpu);
void weir_busy_unshared(struct weir_busy *busy, uint32_t gpu);

// This thread's lane, which is made where there is none, and is of this thread from then on if its
// thread pointer was another one's before. NULL: there are too many; see weir_busy_loose.
struct weir_busy_lane *weir_busy_lane_find(struct weir_busy *busy, uintptr_t thread,
                                           CUcontext context, uint32_t gpu, CUstream stream);

// Whether a stream is captured: then a launch in it is no work. A call of the driver, needed while
// captures are open only.
int weir_busy_is_captured(struct weir_busy *busy, CUstream stream);

struct weir_busy_launch weir_busy_begin_slow(struct weir_busy *busy, struct weir_busy_lane *lane,
                                             struct weir_busy_kind kind) WEIR_RARE;
void weir_busy_end_slow(struct weir_busy *busy, struct weir_busy_launch *launch,
                        CUresult result) WEIR_RARE;

static inline uint32_t weir_busy_home(uintptr_t thread, CUcontext context, CUstream stream) {
    uint64_t hash = (thread >> 6) ^ (uintptr_t)context ^ (uintptr_t)stream << 7;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 52) & (WEIR_BUSY_INDEX - 1);
}

// Whether a lane is that of a thread and a stream. Whoever makes one names its thread last.
static inline int weir_busy_is(const struct weir_busy_lane *lane, uintptr_t thread,
                               CUcontext context, CUstream stream) {
    return __atomic_load_n(&lane->thread, __ATOMIC_ACQUIRE) == thread &&
           WEIR_GET(lane->context) == context && WEIR_GET(lane->stream) == stream;
}

static inline struct weir_busy_lane *weir_busy_lane(struct weir_busy *busy, uintptr_t thread,
                                                    CUcontext context, CUstream stream) {
    uint32_t home = weir_busy_home(thread, context, stream);
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        uint16_t number =
            __atomic_load_n(&busy->index[(home + i) & (WEIR_BUSY_INDEX - 1)], __ATOMIC_ACQUIRE);
        if (!number)
            return NULL;
        struct weir_busy_lane *lane = &busy->lanes[number - 1];
        if (weir_busy_is(lane, thread, context, stream))
            return lane;
    }
    return NULL;
}

static inline uint32_t weir_busy_key_home(uint64_t key, uint32_t i) {
    return (uint32_t)((key >> 40 ^ key >> 20 ^ i) & (WEIR_BUSY_KEYS - 1));
}

static inline struct weir_busy_key *weir_busy_known(struct weir_busy *busy, uint64_t key) {
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        struct weir_busy_key *at = &busy->keys[weir_busy_key_home(key, i)];
        if (__atomic_load_n(&at->key, __ATOMIC_RELAXED) == key)
            return at;
    }
    return NULL;
}

// Where a lane remembers such a key.
static inline struct weir_busy_recent *weir_busy_recent(struct weir_busy_lane *lane, uint64_t what,
                                                        uint64_t size) {
    uint32_t hash = ((uint32_t)(what >> 3) + (uint32_t)size) * 0x9e3779b1u;
    return &lane->recent[hash >> WEIR_BUSY_RECENT_SHIFT];
}

// Remembers the key of this thread's last launch.
static inline void weir_busy_remember(struct weir_busy_lane *lane, struct weir_busy_kind kind) {
    *weir_busy_recent(lane, kind.what, kind.size) =
        (struct weir_busy_recent){kind.what, kind.size, kind.shape, lane->last, kind.key};
}

// When the next launch of a lane is to be measured. Whoever sets both at the same time may have it
// looked at a little later.
static inline void weir_busy_sample_at(struct weir_busy_lane *lane, uint64_t launches) {
    uint64_t used_at = WEIR_GET(lane->used_at);
    WEIR_PUT(lane->sample_at, launches);
    WEIR_PUT(lane->look_at, used_at && used_at < launches ? used_at : launches);
}

// Right before the driver is called: this thread launches in its lane.
static inline struct weir_busy_launch weir_busy_begin_in(struct weir_busy *busy,
                                                         struct weir_busy_lane *lane,
                                                         struct weir_busy_kind kind) {
    struct weir_busy_key *known = weir_busy_known(busy, kind.key);
    if (__builtin_expect(!known, 0))
        return weir_busy_begin_slow(busy, lane, kind);
    WEIR_PUT(lane->last, known);
    uint64_t expected_ns = __atomic_load_n(&known->expected_ns, __ATOMIC_RELAXED);
    if (__builtin_expect(!expected_ns || lane->launches >= WEIR_GET(lane->sample_at) ||
                             __atomic_load_n(&busy->captures, __ATOMIC_RELAXED),
                         0))
        return weir_busy_begin_slow(busy, lane, kind);
    __atomic_store_n(&lane->work_ns, lane->work_ns + expected_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->launches, lane->launches + 1, __ATOMIC_RELEASE);
    return (struct weir_busy_launch){lane, expected_ns, NULL};
}

// The same, for a stream of the context, whose device is `gpu`, an ordinal below WEIR_BUSY_GPUS.
// The default stream is CU_STREAM_LEGACY, each thread's own CU_STREAM_PER_THREAD, whichever form of
// the call is meant.
static inline struct weir_busy_launch weir_busy_begin(struct weir_busy *busy, CUcontext context,
                                                      uint32_t gpu, CUstream stream,
                                                      struct weir_busy_kind kind) {
    struct weir_busy_lane *lane = weir_busy_lane(busy, weir_sys_self(), context, stream);
    if (__builtin_expect(!lane, 0))
        lane = weir_busy_lane_find(busy, weir_sys_self(), context, gpu, stream);
    if (!lane ||
        (__atomic_load_n(&busy->captures, __ATOMIC_ACQUIRE) && weir_busy_is_captured(busy, stream)))
        return (struct weir_busy_launch){NULL, 0, NULL};
    return weir_busy_begin_in(busy, lane, kind);
}

// The same for a launch that has no lane, which has no end: counted, and done after its time.
void weir_busy_loose(struct weir_busy *busy, uint32_t gpu, struct weir_busy_kind kind);

// Right after it.
static inline void weir_busy_end(struct weir_busy *busy, struct weir_busy_launch *launch,
                                 CUresult result) {
    if (__builtin_expect(launch->mark || result != CUDA_SUCCESS, 0))
        weir_busy_end_slow(busy, launch, result);
}

// ---- What else happens ----

// A call has returned with success that waited for a stream, or found it done; for all streams of
// the context where `stream` is NULL. All that this thread launched there is done.
void weir_busy_synced(struct weir_busy *busy, CUcontext context, CUstream stream);

// A capture is about to begin in a stream; it has ended, or did not begin.
void weir_busy_capture_begin(struct weir_busy *busy, CUcontext context, CUstream stream);
void weir_busy_capture_end(struct weir_busy *busy, CUcontext context, CUstream stream);

// A stream of whatever context is about to be destroyed, by a call that can be taken to succeed.
void weir_busy_stream_end(struct weir_busy *busy, CUstream stream);

// A context is about to be destroyed or reset. Waits for the helper to be away from its events. May
// be called again, or for a context that is not known; where the driver then fails, measuring
// begins anew.
void weir_busy_context_end(struct weir_busy *busy, CUcontext context);

// ---- The helper ----

// Looks at marks and settles the time up to now. Returns after how many ns it is to be called
// again. To be called by one thread, which must be none of the program's.
uint64_t weir_busy_poll(struct weir_busy *busy);

// The helper: whether another lane waits to know that this one's launches are done, and a call may
// be made for that, which is then counted.
int weir_busy_may_ask(struct weir_busy *busy, const struct weir_busy_lane *lane);

// All that a lane had launched when it had launched so much is done.
static inline void weir_busy_done(struct weir_busy_lane *lane, uint64_t launches,
                                  uint64_t work_ns) {
    if (launches > __atomic_load_n(&lane->done, __ATOMIC_RELAXED))
        __atomic_store_n(&lane->done, launches, __ATOMIC_RELAXED);
    if (work_ns > __atomic_load_n(&lane->done_work_ns, __ATOMIC_RELAXED))
        __atomic_store_n(&lane->done_work_ns, work_ns, __ATOMIC_RELAXED);
}

// Our calls of the driver so far; for figures.
static inline uint64_t weir_busy_calls(const struct weir_busy *busy) {
    uint64_t calls = WEIR_GET(busy->calls) + WEIR_GET(busy->polls);
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        calls += WEIR_GET(busy->lanes[i].trail.calls);
    return calls;
}

// What was settled for a GPU last: busy time so far.
uint64_t weir_busy_ns(struct weir_busy *busy, uint32_t gpu);

// Nanoseconds of CLOCK_MONOTONIC, by the host's own function where it has one: without a system
// call.
uint64_t weir_busy_clock(void);

// ---- Among the files busy*.c ----

// So long at most others' launches wait for one that is measured, and its thread for its end.
#define WEIR_BUSY_STILL_NS_MAX 1000000u

// Records an event, which is made where there is none yet. Whether one of the context that this
// thread launches in has come, by three calls.
CUresult weir_busy_record(struct weir_busy *busy, CUevent *event, CUstream stream);
int weir_busy_has_come(struct weir_busy *busy, CUevent event);

// The next sample is due later by as many launches as these calls are worth.
void weir_busy_pay(struct weir_busy_lane *lane, uint32_t calls);

// Marks what was launched in a lane, if its newest launch is not marked; by its thread, or by one
// that no launch of its thread's can run beside.
void weir_busy_mark_before(struct weir_busy *busy, struct weir_busy_lane *lane);

// Lock held: the first launch of a key is about to be counted by a rough expectation.
static inline void weir_busy_guess_first(const struct weir_busy_gpu *gpu,
                                         struct weir_busy_key *known) {
    WEIR_PUT(known->guess_busy_ns, gpu->time.busy_ns);
    WEIR_PUT(known->guess_work_ns, gpu->time.work_ns);
}

// What a launch adds to its lane's work, by its key or as a guess (busyguess.c), which is counted.
// `mark`: it is sampled by that.
uint64_t weir_busy_expect(struct weir_busy *busy, struct weir_busy_lane *lane,
                          struct weir_busy_key *known, const struct weir_told *told,
                          const struct weir_busy_mark *mark);

static inline int weir_busy_is_deep(const struct weir_busy_lane *lane) {
    return lane->launches - WEIR_GET(lane->done) > WEIR_BUSY_DEEP;
}

// By the lane's thread: below WEIR_BUSY_JITTER.
static inline uint64_t weir_busy_dice(struct weir_busy_lane *lane) {
    lane->dice = lane->dice * 6364136223846793005u + 1442695040888963407u;
    return lane->dice >> 40 & (WEIR_BUSY_JITTER - 1);
}

// Sleeps for a moment.
void weir_busy_doze(void);

// Whether this thread's next launch in a lane has the GPU to itself (busyalone.c). If so, those of
// others wait until weir_busy_end_still. `sure`: what it takes is known well.
int weir_busy_becomes_alone(struct weir_busy *busy, struct weir_busy_lane *lane, int sure);
void weir_busy_end_still(struct weir_busy *busy, struct weir_busy_lane *lane);

// This thread is about to launch: not while another lane is measured.
void weir_busy_keep_still(struct weir_busy *busy, struct weir_busy_lane *lane);

// The place of a key; that of another one is taken where there is none.
struct weir_busy_key *weir_busy_key_enter(struct weir_busy *busy, uint64_t key);

// What the family of a launch says of it, for the thread that launches; and for the helper.
struct weir_told weir_busy_family_tell(struct weir_busy *busy, struct weir_busy_key *known,
                                       const struct weir_busy_kind *kind, uint32_t gpu);
struct weir_told weir_busy_family_told(const struct weir_busy_key *known);

// The helper: takes a sample in. Whether the family's keys are to be told what it says now.
int weir_busy_family_learn(struct weir_busy_family *family, const struct weir_busy_key *known,
                           const struct weir_sample *sample);

// A lane that is to be another's has no launches, and so no events behind them. The events stay:
// they are their context's.
static inline void weir_trail_forget(struct weir_trail *trail) {
    WEIR_PUT(trail->head, 0);
    WEIR_PUT(trail->refused, 0);
    trail->tail = 0;
    WEIR_PUT(trail->seen, 0);
    WEIR_PUT(trail->still_ns, 0);
    WEIR_PUT(trail->owed, 0);
    WEIR_PUT(trail->owed_ns, 0);
    WEIR_PUT(trail->overdue_ns, 0);
}

// Lock and `driving` held. A lane that was another stream's or thread's, and all of whose launches
// are done, for the context in this place; perhaps of another GPU. NULL where there is none.
struct weir_busy_lane *weir_busy_take(struct weir_busy *busy, uint32_t place);

// The helper is away from a lane's marks: those that it has not seen are given up. The events of a
// lane are no more its own.
void weir_busy_drop_marks(struct weir_busy_lane *lane);
void weir_busy_leave_events(struct weir_busy_lane *lane);

// Whether launches that have no lane are to be taken for outstanding.
static inline int weir_busy_has_loose(const struct weir_busy_gpu *gpu) {
    return __atomic_load_n(&gpu->loose_launches, __ATOMIC_RELAXED) != WEIR_GET(gpu->loose_done);
}

// The helper looks at these; the part of a drain begins.
void weir_busy_loose_look(struct weir_busy_gpu *gpu, uint64_t now_ns, uint64_t overdue_ns);

// Launches in all lanes of the GPU but this one, and what they are expected to take.
uint64_t weir_busy_others(const struct weir_busy *busy, const struct weir_busy_lane *lane,
                          uint64_t *work_ns);

// Whether an event has come, or the time between two in ns.
CUresult weir_busy_between(struct weir_busy *busy, CUevent start, CUevent end, uint64_t *ns);

#endif
