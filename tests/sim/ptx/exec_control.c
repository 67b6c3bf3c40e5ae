// Branches, calls, the ends of threads, special registers, and the barriers of a block.
#include "exec.h"

#include <string.h>
#include <time.h>

void sim_ptx_run_branch(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    t->pc = i->target;
}

void sim_ptx_run_branch_table(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    uint64_t index = sim_ptx_get(t, i->src[0]);
    if (index < (uint64_t)i->offset)
        t->pc = t->block->module->lists[i->target + index];
    else
        sim_ptx_fault(t, SIM_PTX_INVALID_PC, 0);
}

static uint64_t truncate_to(uint64_t value, uint32_t bytes) {
    return bytes == 0 ? value & 1 : bytes >= 8 ? value : value & ((1ull << 8 * bytes) - 1);
}

// One end of a transfer between two frames: a value, or bytes of local memory.
struct place {
    uint64_t *slots;
    uint8_t *local;
    uint32_t ref;
    bool in_frame;
};

static void transfer(struct place from, struct place to, uint32_t bytes) {
    if (from.in_frame && to.in_frame) {
        memmove(to.local + to.ref, from.local + from.ref, bytes);
        return;
    }
    uint64_t value = 0;
    if (from.in_frame)
        memcpy(&value, from.local + from.ref, bytes);
    else
        value = from.slots[from.ref / 8];
    if (to.in_frame)
        memcpy(to.local + to.ref, &value, bytes);
    else
        to.slots[to.ref / 8] = truncate_to(value, bytes);
}

// Moves arguments into the callee's frame, or results into the caller's.
static void transfer_all(struct sim_ptx_thread *t, const struct sim_ptx_frame *caller,
                         const struct sim_ptx_frame *callee, const struct sim_ptx_call *call,
                         bool returns) {
    const struct sim_ptx_module *m = t->block->module;
    const struct sim_ptx_function *f = &m->functions[callee->function];
    uint32_t first = returns ? 0 : call->returns, count = returns ? call->returns : call->params;
    for (uint32_t k = first; k < first + count; k++) {
        const struct sim_ptx_actual *actual = &m->actuals[call->first + k];
        const struct sim_ptx_formal *formal = &m->formals[f->formals + k];
        struct place outer = {t->stack + caller->slots_at, t->local + caller->local_at, actual->ref,
                              actual->in_frame};
        struct place inner = {t->stack + callee->slots_at, t->local + callee->local_at,
                              formal->is_register ? formal->reg : formal->place.offset,
                              !formal->is_register};
        if (returns)
            transfer(inner, outer, formal->place.bytes);
        else
            transfer(outer, inner, formal->place.bytes);
    }
}

static const struct sim_ptx_function *callee_of(const struct sim_ptx_thread *t,
                                                const struct sim_ptx_insn *i,
                                                const struct sim_ptx_call *call) {
    const struct sim_ptx_module *m = t->block->module;
    if (call->function != UINT32_MAX)
        return &m->functions[call->function];
    uint64_t at = sim_ptx_get(t, i->src[0]) - SIM_PTX_CODE_WINDOW;
    const struct sim_ptx_function *f = at / 16 < m->function_count ? &m->functions[at / 16] : NULL;
    bool is_callable = f && at % 16 == 0 && f->is_defined && !f->is_entry;
    return is_callable && sim_ptx_call_fits(m, call, f) ? f : NULL;
}

void sim_ptx_run_call(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    const struct sim_ptx_module *m = t->block->module;
    const struct sim_ptx_call *call = &m->calls[i->target];
    const struct sim_ptx_function *f = callee_of(t, i, call);
    if (!f) {
        sim_ptx_fault(t, SIM_PTX_INVALID_PC, 0);
        return;
    }
    struct sim_ptx_frame caller = t->frame;
    caller.return_to = t->pc;
    const struct sim_ptx_function *from = &m->functions[caller.function];
    int code = t->depth < SIM_PTX_CALL_DEPTH_MAX ? SIM_PTX_OK : SIM_PTX_STACK_ERROR;
    if (code == SIM_PTX_OK)
        code = sim_ptx_grow_thread(t->block, &t->frames, &t->frames_capacity, t->depth + 1ull,
                                   sizeof(*t->frames));
    if (code == SIM_PTX_OK)
        code = sim_ptx_enter(t, f, (uint64_t)caller.slots_at + from->slots,
                             ((uint64_t)caller.local_at + from->frame_bytes + 15) & ~15ull);
    if (code != SIM_PTX_OK) {
        sim_ptx_fault(t, code, 0);
        return;
    }
    t->frames[t->depth++] = caller;
    transfer_all(t, &caller, &t->frame, call, false);
}

void sim_ptx_run_return(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)i;
    if (t->depth == 0) {
        sim_ptx_exit_thread(t);
        return;
    }
    const struct sim_ptx_module *m = t->block->module;
    const struct sim_ptx_frame callee = t->frame;
    const struct sim_ptx_frame *caller = &t->frames[--t->depth];
    sim_ptx_leave(t, caller);
    t->pc = caller->return_to;
    transfer_all(t, caller, &callee, &m->calls[m->code[t->pc - 1].target], true);
}

void sim_ptx_exit_thread(struct sim_ptx_thread *t) {
    t->state = SIM_PTX_EXITED;
    t->block->live_count--;
    sim_ptx_check_barriers(t->block);
}

void sim_ptx_run_exit(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)i;
    sim_ptx_exit_thread(t);
}

void sim_ptx_run_trap(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)i;
    sim_ptx_fault(t, SIM_PTX_LAUNCH_FAILED, 0);
}

void sim_ptx_run_assert(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)i;
    sim_ptx_fault(t, SIM_PTX_ASSERT, 0);
}

void sim_ptx_run_yield(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    (void)i;
    t->state = SIM_PTX_YIELDED;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint64_t special_value(const struct sim_ptx_thread *t, uint32_t number) {
    const struct sim_ptx_block *b = t->block;
    const struct sim_ptx_launch *l = b->launch;
    uint32_t processors = l->processors ? l->processors : 1;
    uint32_t lane = t->index % SIM_PTX_WARP, bit = 1u << lane;
    switch (number) {
    case SIM_PTX_LANEID:
        return lane;
    case SIM_PTX_WARPID:
        return t->index / SIM_PTX_WARP;
    case SIM_PTX_NWARPID:
        return SIM_PTX_BLOCK_THREADS_MAX / SIM_PTX_WARP;
    case SIM_PTX_SMID:
        return b->number % processors;
    case SIM_PTX_NSMID:
        return processors;
    case SIM_PTX_LANEMASK_EQ:
        return bit;
    case SIM_PTX_LANEMASK_LT:
        return bit - 1;
    case SIM_PTX_LANEMASK_LE:
        return bit | (bit - 1);
    case SIM_PTX_LANEMASK_GT:
        return (uint32_t) ~(bit | (bit - 1));
    case SIM_PTX_LANEMASK_GE:
        return (uint32_t) ~(bit - 1);
    case SIM_PTX_CLOCK64:
        return now_ns();
    case SIM_PTX_CLOCK:
        return (uint32_t)now_ns();
    case SIM_PTX_CLOCK_HI:
        return now_ns() >> 32;
    case SIM_PTX_GLOBALTIMER:
        return now_ns();
    case SIM_PTX_GLOBALTIMER_LO:
        return (uint32_t)now_ns();
    case SIM_PTX_GLOBALTIMER_HI:
        return now_ns() >> 32;
    case SIM_PTX_DYNAMIC_SMEM:
        return l->dynamic_shared_bytes;
    case SIM_PTX_TOTAL_SMEM:
        return l->dynamic_shared_bytes + b->kernel->info.static_shared_bytes;
    default:
        return 0;
    }
}

void sim_ptx_run_special(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    const struct sim_ptx_launch *l = t->block->launch;
    const uint32_t *vectors[] = {t->tid, l->block, t->block->id, l->grid};
    uint32_t number = i->mode, part = number % 4;
    uint64_t value;
    if (number >= SIM_PTX_LANEID)
        value = special_value(t, number);
    else if (part == 3)
        value = number == SIM_PTX_NTID + 3 || number == SIM_PTX_NCTAID + 3;
    else
        value = vectors[number / 4][part];
    sim_ptx_set(t, i->d, value);
}

// Lets the threads go that wait at a barrier.
static void release_barrier(struct sim_ptx_block *b, uint32_t id) {
    struct sim_ptx_barrier *barrier = &b->barriers[id];
    for (uint32_t k = 0; k < b->thread_count; k++) {
        struct sim_ptx_thread *t = &b->threads[k];
        if (t->state != SIM_PTX_AT_BARRIER || t->barrier != id)
            continue;
        t->state = SIM_PTX_RUNNING;
        switch (t->waits_at->mode) {
        case SIM_PTX_BARRIER_AND:
            sim_ptx_set(t, t->waits_at->d, barrier->trues == barrier->arrived);
            break;
        case SIM_PTX_BARRIER_OR:
            sim_ptx_set(t, t->waits_at->d, barrier->trues > 0);
            break;
        case SIM_PTX_BARRIER_POPC:
            sim_ptx_set(t, t->waits_at->d, barrier->trues);
            break;
        default:
            break;
        }
    }
    *barrier = (struct sim_ptx_barrier){0};
}

static bool is_complete(const struct sim_ptx_block *b, const struct sim_ptx_barrier *barrier) {
    if (barrier->expected)
        return barrier->lanes >= barrier->expected;
    return barrier->arrived >= b->live_count;
}

// How many lanes a thread stands for: the first of a warp also for those that the warp lacks.
static uint32_t lanes_of(const struct sim_ptx_thread *t) {
    uint32_t warp_threads = t->block->thread_count - t->index;
    return t->index % SIM_PTX_WARP == 0 && warp_threads < SIM_PTX_WARP
               ? SIM_PTX_WARP - warp_threads + 1
               : 1;
}

void sim_ptx_check_barriers(struct sim_ptx_block *b) {
    for (uint32_t id = 0; id < SIM_PTX_BARRIERS; id++)
        if (b->barriers[id].arrived > 0 && is_complete(b, &b->barriers[id]))
            release_barrier(b, id);
}

void sim_ptx_run_barrier(struct sim_ptx_thread *t, const struct sim_ptx_insn *i) {
    struct sim_ptx_block *b = t->block;
    uint64_t id = sim_ptx_get(t, i->src[0]), count = i->count ? sim_ptx_get(t, i->src[1]) : 0;
    bool is_bad_count =
        i->count && (count == 0 || count % SIM_PTX_WARP != 0 || count > SIM_PTX_BLOCK_THREADS_MAX);
    if (id >= SIM_PTX_BARRIERS || is_bad_count ||
        (b->barriers[id].arrived > 0 && b->barriers[id].expected != count)) {
        sim_ptx_fault(t, SIM_PTX_LAUNCH_FAILED, 0);
        return;
    }
    struct sim_ptx_barrier *barrier = &b->barriers[id];
    barrier->expected = (uint32_t)count;
    barrier->arrived++;
    barrier->lanes += lanes_of(t);
    barrier->trues += sim_ptx_get(t, i->src[2]) & 1;
    if (i->mode != SIM_PTX_BARRIER_ARRIVE) {
        t->state = SIM_PTX_AT_BARRIER;
        t->barrier = (uint32_t)id;
        t->waits_at = i;
    }
    if (is_complete(b, barrier))
        release_barrier(b, (uint32_t)id);
}
