// moving.h: moves under way, between mover.c, which speaks with the agent, and moving.c, which has
// the driver carry them out.
//
// A move is QUEUED, GIVEN to the driver, ENDED, and its place FREE again once that was said. QUEUED
// and ENDED change under the state's lock; to and from GIVEN also `driving` is held.
#ifndef WEIR_MOVING_H
#define WEIR_MOVING_H

#include "busy.h"
#include "mover.h"

// More than the agent has under way at a time, cancelled ones included.
#define WEIR_MOVINGS_MAX 512u
// Contexts with memory that is moved.
#define WEIR_MOVING_LANES 16u
// Pieces of one way that the driver has at a time, in a context.
#define WEIR_MOVING_AHEAD 2u
// How often to look where nothing is known of a piece's time, or it is late.
#define WEIR_MOVING_LOOK_NS 100000u

enum weir_moving_state {
    WEIR_MOVING_FREE = 0,
    WEIR_MOVING_QUEUED = 1,
    WEIR_MOVING_GIVEN = 2,
    WEIR_MOVING_ENDED = 3,
};

struct weir_moving {
    uint64_t move;
    uint64_t order;    // in which they came
    uint64_t context;  // of the allocation
    uint64_t offset, bytes;
    uint64_t given_ns, due_ns;  // GIVEN: since when, and when to look at it
    uint32_t state;             // enum weir_moving_state
    uint32_t number;            // of the allocation
    uint32_t index;             // of the GPU in the control page
    uint32_t flags;             // enum weir_move_flag
    uint32_t result, ns;
    uint32_t lost;  // its connection has ended: nobody is to hear of it
    uint32_t lane, slot;
};

// What the driver has of one piece.
struct weir_moving_slot {
    CUevent begin, end;
    uint32_t taken;
};

// The streams of a context: [0] in, [1] out.
struct weir_moving_lane {
    uint64_t context;  // 0: free
    CUstream streams[2];
    struct weir_moving_slot slots[2][WEIR_MOVING_AHEAD];
};

struct weir_mover {
    struct weir_lock driving;
    uint32_t relaxed;
    uint32_t items_used;  // places that ever were in use; also read without the lock
    uint32_t unfree;      // items that are not FREE; also read without the lock
    uint64_t orders;
    uint64_t ns_per_mib[2];  // what a piece has taken lately, each way
    struct weir_moving items[WEIR_MOVINGS_MAX];
    struct weir_moving_lane lanes[WEIR_MOVING_LANES];
};

// Without the lock: what is QUEUED another thread may end meanwhile.
static inline uint32_t weir_moving_state(const struct weir_moving *item) {
    return __atomic_load_n(&item->state, __ATOMIC_RELAXED);
}

static inline void weir_moving_set(struct weir_moving *item, uint32_t state) {
    __atomic_store_n(&item->state, state, __ATOMIC_RELAXED);
}

static inline int weir_moving_way(const struct weir_moving *item) {
    return (item->flags & WEIR_MOVE_OUT) != 0;
}

// A move has ended: to be said, unless nobody is to hear of it. Lock held.
void weir_moving_end(struct weir_mover *mover, struct weir_moving *item, uint32_t result);

// ---- Driving ----

// Gives the driver what is queued, as far as it is to have it.
void weir_moving_give(struct weir_swap *swap, uint64_t now_ns);

// Looks at what the driver has, where that is due.
void weir_moving_look(struct weir_swap *swap, uint64_t now_ns);

// Gives the streams and events of a lane back to the driver, which goes on with what it has there.
// Its context is current.
void weir_moving_close(struct weir_moving_lane *lane);

// What the driver had has ended.
void weir_moving_finish(struct weir_swap *swap, struct weir_moving *item, uint32_t result);

#endif
