// Instructions of a whole warp. A thread that reaches one waits until every live lane of its member
// mask has reached one of the same kind with the same mask; then all get their results at once.
#include "exec.h"

void sim_ptx_run_warp(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    t->mask = (uint32_t)sim_ptx_get(t, i->src[3]);
    if (!(t->mask >> t->index % SIM_PTX_WARP & 1)) {
        sim_ptx_fault(t, SIM_PTX_LAUNCH_FAILED, 0);  // a mask must hold the lane that gives it
        return;
    }
    t->offered = sim_ptx_get(t, i->src[0]);
    t->waits_at = i;
    t->state = SIM_PTX_AT_WARP;
}

void sim_ptx_run_active(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    t->waits_at = i;
    t->state = SIM_PTX_AT_ACTIVE;
}

// The lane that shfl reads from; false where it is outside the segment, and is then the own lane.
static bool source_lane(const struct sim_ptx_thread *t, uint32_t *source) {
    const struct sim_ptx_insn *i = t->waits_at;
    int lane = (int)(t->index % SIM_PTX_WARP);
    int by = (int)(sim_ptx_get(t, i->src[1]) & 31), c = (int)sim_ptx_get(t, i->src[2]);
    int clamp = c & 31, segment = c >> 8 & 31;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from;
    bool is_inside;
    switch (i->mode) {
    case SIM_PTX_SHFL_UP:
        from = lane - by;
        is_inside = from >= last;
        break;
    case SIM_PTX_SHFL_DOWN:
        from = lane + by;
        is_inside = from <= last;
        break;
    case SIM_PTX_SHFL_BFLY:
        from = lane ^ by;
        is_inside = from <= last;
        break;
    default:
        from = first | (by & ~segment);
        is_inside = from <= last;
    }
    *source = (uint32_t)(is_inside ? from : lane);
    return is_inside;
}

static uint64_t reduce(const struct sim_ptx_insn *i, uint64_t a, uint64_t b) {
    bool is_less = i->is_signed ? (int32_t)a < (int32_t)b : a < b;
    switch (i->mode) {
    case SIM_PTX_REDUX_ADD:
        return (uint32_t)(a + b);
    case SIM_PTX_REDUX_AND:
        return a & b;
    case SIM_PTX_REDUX_OR:
        return a | b;
    case SIM_PTX_REDUX_XOR:
        return a ^ b;
    case SIM_PTX_REDUX_MIN:
        return is_less ? a : b;
    default:
        return is_less ? b : a;
    }
}

// What the members have in common, gathered before any of them goes on.
struct gathered {
    uint32_t members;
    uint64_t offered[SIM_PTX_WARP];
    uint32_t trues;    // lanes that brought bit 0 set
    uint64_t reduced;  // of all values
};

static void gather(const struct sim_ptx_thread *lanes, uint32_t members, struct gathered *g) {
    *g = (struct gathered){.members = members};
    bool is_first = true;
    for (uint32_t k = 0; k < SIM_PTX_WARP; k++) {
        if (!(members >> k & 1))
            continue;
        g->offered[k] = lanes[k].offered;
        g->trues |= (uint32_t)(lanes[k].offered & 1) << k;
        g->reduced =
            is_first ? lanes[k].offered : reduce(lanes[k].waits_at, g->reduced, lanes[k].offered);
        is_first = false;
    }
}

static uint32_t same_as(const struct gathered *g, uint64_t value) {
    uint32_t same = 0;
    for (uint32_t k = 0; k < SIM_PTX_WARP; k++)
        if (g->members >> k & 1 && g->offered[k] == value)
            same |= 1u << k;
    return same;
}

static void give_result(struct sim_ptx_thread *t, const struct gathered *g) {
    const struct sim_ptx_insn *i = t->waits_at;
    uint32_t from, same;
    bool is_inside = true;
    uint64_t result;
    switch (i->mode) {
    case SIM_PTX_WARP_SYNC:
        return;
    case SIM_PTX_SHFL_UP:
    case SIM_PTX_SHFL_DOWN:
    case SIM_PTX_SHFL_BFLY:
    case SIM_PTX_SHFL_IDX:
        is_inside = source_lane(t, &from);
        result = g->members >> from & 1 ? g->offered[from] : t->offered;
        break;
    case SIM_PTX_VOTE_ALL:
        result = g->trues == g->members;
        break;
    case SIM_PTX_VOTE_ANY:
        result = g->trues != 0;
        break;
    case SIM_PTX_VOTE_UNI:
        result = g->trues == g->members || g->trues == 0;
        break;
    case SIM_PTX_VOTE_BALLOT:
        result = g->trues;
        break;
    case SIM_PTX_MATCH_ANY:
        result = same_as(g, t->offered);
        break;
    case SIM_PTX_MATCH_ALL:
        same = same_as(g, t->offered);
        is_inside = same == g->members;
        result = is_inside ? same : 0;
        break;
    default:
        result = g->reduced;
    }
    sim_ptx_set(t, i->d, result);
    if (i->has_second)
        sim_ptx_set(t, i->target, is_inside);
}

// The live lanes that a waiting lane waits for, or 0 where one of them is not there yet.
static uint32_t complete_members(const struct sim_ptx_thread *lanes, uint32_t count,
                                 uint32_t lane) {
    const struct sim_ptx_thread *t = &lanes[lane];
    uint32_t members = 0;
    for (uint32_t k = 0; k < count; k++) {
        const struct sim_ptx_thread *other = &lanes[k];
        if (!(t->mask >> k & 1) || other->state == SIM_PTX_EXITED)
            continue;
        if (other->state != SIM_PTX_AT_WARP || other->mask != t->mask ||
            other->waits_at->mode != t->waits_at->mode)
            return 0;
        members |= 1u << k;
    }
    return members;
}

// activemask: the lanes that have come to the same instruction as the first one that waits.
static bool resume_active(struct sim_ptx_thread *lanes, uint32_t count) {
    const struct sim_ptx_insn *at = NULL;
    uint32_t members = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (lanes[k].state != SIM_PTX_AT_ACTIVE || (at && lanes[k].waits_at != at))
            continue;
        at = lanes[k].waits_at;
        members |= 1u << k;
    }
    for (uint32_t k = 0; k < count; k++) {
        if (!(members >> k & 1))
            continue;
        sim_ptx_set(&lanes[k], at->d, members);
        lanes[k].state = SIM_PTX_RUNNING;
    }
    return members != 0;
}

bool sim_ptx_resume_warp(struct sim_ptx_block *b, uint32_t first_thread, bool stuck) {
    struct sim_ptx_thread *lanes = &b->threads[first_thread];
    uint32_t count = b->thread_count - first_thread;
    if (count > SIM_PTX_WARP)
        count = SIM_PTX_WARP;
    bool resumed = false;
    for (uint32_t lane = 0; lane < count; lane++) {
        if (lanes[lane].state != SIM_PTX_AT_WARP)
            continue;
        uint32_t members = complete_members(lanes, count, lane);
        if (members == 0)
            continue;
        struct gathered g;
        gather(lanes, members, &g);
        for (uint32_t k = 0; k < count; k++) {
            if (members >> k & 1) {
                give_result(&lanes[k], &g);
                lanes[k].state = SIM_PTX_RUNNING;
            }
        }
        resumed = true;
    }
    return resumed || (stuck && resume_active(lanes, count));
}
