// Launches: blocks one after the other, or those of a cooperative grid in turns; the threads of a
// block in turns.
#include "exec.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

void sim_ptx_fault(struct sim_ptx_thread *t, int code, uint64_t address) {
    struct sim_ptx_block *b = t->block;
    t->state = SIM_PTX_EXITED;
    if (b->code != SIM_PTX_OK)
        return;
    b->code = code;
    b->bad_address = address;
    memcpy(b->bad_tid, t->tid, sizeof(b->bad_tid));
    b->bad_line = b->module->code[t->pc - 1].line;
}

static bool in_slab(const struct sim_ptx_block *b, const void *at) {
    return (uintptr_t)at - (uintptr_t)b->slab < b->slab_bytes;
}

int sim_ptx_grow_thread(struct sim_ptx_block *b, void *array_pointer, uint32_t *capacity,
                        uint64_t count, size_t size) {
    if (count <= *capacity)
        return SIM_PTX_OK;
    uint64_t wanted = count > 2ull * *capacity ? count : 2ull * *capacity;
    uint64_t bytes = (wanted - *capacity) * size;
    if (bytes > b->bytes_left)
        return SIM_PTX_OUT_OF_RESOURCES;
    uint8_t *array;
    memcpy(&array, array_pointer, sizeof(array));
    bool is_shared = in_slab(b, array);
    uint8_t *grown = realloc(is_shared ? NULL : array, wanted * size);
    if (!grown)
        return SIM_PTX_OUT_OF_MEMORY;
    if (is_shared)
        memcpy(grown, array, *capacity * size);
    memset(grown + *capacity * size, 0, bytes);
    array = grown;
    memcpy(array_pointer, &array, sizeof(array));
    *capacity = (uint32_t)wanted;
    b->bytes_left -= bytes;
    return SIM_PTX_OK;
}

void sim_ptx_leave(struct sim_ptx_thread *t, const struct sim_ptx_frame *frame) {
    t->frame = *frame;
    t->slots = t->stack + frame->slots_at;
    t->local_end = frame->local_at + t->block->module->functions[frame->function].frame_bytes;
}

int sim_ptx_enter(struct sim_ptx_thread *t, const struct sim_ptx_function *f, uint64_t slots_at,
                  uint64_t local_at) {
    struct sim_ptx_block *b = t->block;
    uint64_t local_end = local_at + f->frame_bytes;
    if (local_end > SIM_PTX_LOCAL_BYTES_MAX)
        return SIM_PTX_STACK_ERROR;
    int code = sim_ptx_grow_thread(b, &t->stack, &t->stack_capacity, slots_at + f->slots,
                                   sizeof(*t->stack));
    if (code == SIM_PTX_OK)
        code = sim_ptx_grow_thread(b, &t->local, &t->local_capacity, local_end + 1, 1);
    // The stack may have moved, also where the frame stays.
    t->slots = t->stack + t->frame.slots_at;
    if (code != SIM_PTX_OK)
        return code;
    memcpy(t->stack + slots_at, b->module->slots + f->image, f->slots * sizeof(*t->stack));
    struct sim_ptx_frame frame = {f->index, 0, (uint32_t)slots_at, (uint32_t)local_at};
    sim_ptx_leave(t, &frame);
    t->pc = f->code;
    return SIM_PTX_OK;
}

// Runs one thread until it waits, ends or has used its turn. Only a handler may change its frame.
static void run_turn(struct sim_ptx_thread *t, uint32_t turn) {
    const struct sim_ptx_insn *code = t->block->module->code;
    char *slots = (char *)t->slots;
    uint32_t pc = t->pc, left = turn;
    while (left > 0) {
        const struct sim_ptx_insn *i = &code[pc++];
        left--;
#define SLOT(operand) (*(uint64_t *)(slots + (operand)))
        if ((SLOT(i->guard) & 1) == i->guard_skips)
            continue;
        if (!i->run) {
            uint64_t a = SLOT(i->src[0]), b = SLOT(i->src[1]);
            uint64_t c = SLOT(i->src[2]), d = SLOT(i->src[3]);
            SLOT(i->d) = i->value(a, b, c, d);
            continue;
        }
#undef SLOT
        t->pc = pc;
        i->run(t, i);
        pc = t->pc;
        if (t->state != SIM_PTX_RUNNING)
            break;
        slots = (char *)t->slots;
    }
    t->pc = pc;
    t->block->instructions += turn - left;
}

// How many instructions the next turn may take; 0 where the launch must end.
static uint32_t next_turn(const struct sim_ptx_block *b) {
    const struct sim_ptx_launch *l = b->launch;
    if (l->cancel && *l->cancel)
        return 0;
    if (l->instructions_max == 0)
        return SIM_PTX_TURN_INSNS;
    uint64_t left =
        l->instructions_max > b->instructions ? l->instructions_max - b->instructions : 0;
    return left < SIM_PTX_TURN_INSNS ? (uint32_t)left : SIM_PTX_TURN_INSNS;
}

// Gives each thread of a warp that can run a turn. Returns whether one could.
static bool run_warp(struct sim_ptx_block *b, uint32_t first) {
    bool ran = false, can_run = false;
    for (uint32_t k = first; k < first + SIM_PTX_WARP && k < b->thread_count; k++) {
        struct sim_ptx_thread *t = &b->threads[k];
        if (t->state == SIM_PTX_YIELDED)
            t->state = SIM_PTX_RUNNING;
        if (t->state != SIM_PTX_RUNNING)
            continue;
        uint32_t turn = next_turn(b);
        if (turn == 0) {
            t->pc++;  // the fault names the instruction before
            sim_ptx_fault(t, SIM_PTX_TIMEOUT, 0);
        }
        ran = true;
        run_turn(t, turn);
        if (b->code != SIM_PTX_OK)
            return true;
        can_run |= t->state == SIM_PTX_RUNNING || t->state == SIM_PTX_YIELDED;
    }
    return sim_ptx_resume_warp(b, first, !can_run) || ran;
}

// Gives every thread of the block that can run a turn. Where none can, it never will.
static void run_pass(struct sim_ptx_block *b) {
    bool ran = false;
    for (uint32_t first = 0; first < b->thread_count && b->code == SIM_PTX_OK;
         first += SIM_PTX_WARP)
        ran |= run_warp(b, first);
    for (uint32_t k = 0; b->code == SIM_PTX_OK && !ran && k < b->thread_count; k++)
        if (b->threads[k].state != SIM_PTX_EXITED)
            sim_ptx_fault(&b->threads[k], SIM_PTX_LAUNCH_FAILED, 0);
}

static int start_block(struct sim_ptx_block *b) {
    memset(b->barriers, 0, sizeof(b->barriers));
    b->live_count = b->thread_count;
    for (uint32_t k = 0; k < b->thread_count; k++) {
        struct sim_ptx_thread *t = &b->threads[k];
        t->state = SIM_PTX_RUNNING;
        t->depth = 0;
        t->frame = (struct sim_ptx_frame){0};
        int code = sim_ptx_enter(t, b->kernel, 0, 0);
        if (code != SIM_PTX_OK)
            return code;
    }
    return SIM_PTX_OK;
}

static int prepare(struct sim_ptx_block *b) {
    const struct sim_ptx_launch *l = b->launch;
    b->thread_count = l->block[0] * l->block[1] * l->block[2];
    b->shared_bytes = b->kernel->info.static_shared_bytes;
    if (l->dynamic_shared_bytes > 0)
        b->shared_bytes = b->module->dynamic_shared_offset + l->dynamic_shared_bytes;
    uint64_t stack_bytes = (b->kernel->slots * 8ull + 15) & ~15ull;
    uint64_t local_bytes = (b->kernel->frame_bytes + 16ull) & ~15ull;
    uint64_t slab_bytes = b->thread_count * (stack_bytes + local_bytes);
    if (slab_bytes > b->bytes_left)
        return SIM_PTX_OUT_OF_RESOURCES;
    b->bytes_left -= slab_bytes;
    b->slab = calloc(1, slab_bytes);
    b->slab_bytes = b->slab ? slab_bytes : 0;
    b->threads = calloc(b->thread_count, sizeof(*b->threads));
    b->shared = calloc(1, b->shared_bytes + 16);
    b->params = malloc(b->kernel->info.params_bytes + 16);
    if (!b->slab || !b->threads || !b->shared || !b->params)
        return SIM_PTX_OUT_OF_MEMORY;
    if (b->kernel->info.params_bytes > 0)
        memcpy(b->params, l->params, b->kernel->info.params_bytes);
    for (uint32_t k = 0; k < b->thread_count; k++) {
        struct sim_ptx_thread *t = &b->threads[k];
        t->stack = (uint64_t *)(void *)(b->slab + k * stack_bytes);
        t->stack_capacity = b->kernel->slots;
        t->local = b->slab + b->thread_count * stack_bytes + k * local_bytes;
        t->local_capacity = (uint32_t)local_bytes;
        t->block = b;
        t->index = k;
        t->tid[0] = k % l->block[0];
        t->tid[1] = k / l->block[0] % l->block[1];
        t->tid[2] = k / l->block[0] / l->block[1];
    }
    return SIM_PTX_OK;
}

static void release(struct sim_ptx_block *b) {
    for (uint32_t k = 0; b->threads && k < b->thread_count; k++) {
        if (!in_slab(b, b->threads[k].stack))
            free(b->threads[k].stack);
        if (!in_slab(b, b->threads[k].local))
            free(b->threads[k].local);
        free(b->threads[k].frames);
    }
    free(b->slab);
    free(b->threads);
    free(b->shared);
    free(b->params);
}

static void report(const struct sim_ptx_block *b, struct sim_ptx_outcome *outcome) {
    *outcome = (struct sim_ptx_outcome){.instructions = b->instructions};
    if (b->code == SIM_PTX_OK)
        return;
    outcome->address = b->bad_address;
    outcome->line = b->bad_line;
    memcpy(outcome->block, b->id, sizeof(outcome->block));
    memcpy(outcome->thread, b->bad_tid, sizeof(outcome->thread));
}

// Where a launch failed, of whose blocks one did.
static void note_error(struct sim_ptx_block *b, const struct sim_ptx_block *failed) {
    memcpy(b->id, failed->id, sizeof(b->id));
    memcpy(b->bad_tid, failed->bad_tid, sizeof(b->bad_tid));
    b->bad_address = failed->bad_address;
    b->bad_line = failed->bad_line;
}

int sim_ptx_check(const struct sim_ptx_function *f, const struct sim_ptx_launch *l) {
    static const uint32_t block_max[3] = {SIM_PTX_BLOCK_X_MAX, SIM_PTX_BLOCK_Y_MAX,
                                          SIM_PTX_BLOCK_Z_MAX};
    static const uint32_t grid_max[3] = {SIM_PTX_GRID_X_MAX, SIM_PTX_GRID_YZ_MAX,
                                         SIM_PTX_GRID_YZ_MAX};
    for (int k = 0; k < 3; k++) {
        bool fits = l->block[k] >= 1 && l->block[k] <= block_max[k] && l->grid[k] >= 1 &&
                    l->grid[k] <= grid_max[k];
        if (!fits || (f->info.block_required[k] && f->info.block_required[k] != l->block[k]))
            return SIM_PTX_INVALID_VALUE;
    }
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    if (threads > SIM_PTX_BLOCK_THREADS_MAX)
        return SIM_PTX_INVALID_VALUE;
    if (l->params_bytes < f->info.params_bytes || (f->info.params_bytes > 0 && !l->params))
        return SIM_PTX_INVALID_VALUE;
    if ((uint64_t)l->dynamic_shared_bytes + f->info.static_shared_bytes > SIM_PTX_SHARED_BYTES_MAX)
        return SIM_PTX_INVALID_VALUE;
    return threads > f->info.threads_max ? SIM_PTX_OUT_OF_RESOURCES : SIM_PTX_OK;
}

static void number_block(struct sim_ptx_block *b, uint64_t number) {
    const struct sim_ptx_launch *l = b->launch;
    b->number = number;
    b->id[0] = (uint32_t)(number % l->grid[0]);
    b->id[1] = (uint32_t)(number / l->grid[0] % l->grid[1]);
    b->id[2] = (uint32_t)(number / l->grid[0] / l->grid[1]);
}

// One block after the other, all in the same memory.
static void run_in_order(struct sim_ptx_block *b, uint64_t count) {
    b->code = prepare(b);
    for (uint64_t k = 0; b->code == SIM_PTX_OK && k < count; k++) {
        number_block(b, k);
        b->code = start_block(b);
        while (b->code == SIM_PTX_OK && b->live_count > 0)
            run_pass(b);
    }
}

// All blocks at once, so that they may wait for each other: each has memory of its own. *b becomes
// the one that failed, or the last.
static void run_together(struct sim_ptx_block *b, uint64_t count) {
    struct sim_ptx_block *blocks =
        count < SIM_PTX_TOGETHER_MAX ? calloc(count, sizeof(*blocks)) : NULL;
    if (!blocks) {
        b->code = SIM_PTX_OUT_OF_RESOURCES;
        return;
    }
    uint64_t made = 0, live = 0;
    for (; made < count && b->code == SIM_PTX_OK; made++) {
        blocks[made] = *b;
        number_block(&blocks[made], made);
        b->code = prepare(&blocks[made]);
        if (b->code == SIM_PTX_OK)
            b->code = start_block(&blocks[made]);
        b->bytes_left = blocks[made].bytes_left;
        live++;
    }
    while (b->code == SIM_PTX_OK && live > 0) {
        live = 0;
        for (uint64_t k = 0; b->code == SIM_PTX_OK && k < count; k++) {
            struct sim_ptx_block *each = &blocks[k];
            if (each->live_count == 0)
                continue;
            each->instructions = b->instructions;  // of the launch
            run_pass(each);
            b->instructions = each->instructions;
            b->code = each->code;
            live += each->live_count > 0;
            if (b->code != SIM_PTX_OK)
                note_error(b, each);
        }
    }
    for (uint64_t k = 0; k < made; k++)
        release(&blocks[k]);
    free(blocks);
}

int sim_ptx_launch(const struct sim_ptx_function *f, const struct sim_ptx_launch *l,
                   struct sim_ptx_outcome *outcome) {
    struct sim_ptx_block b = {
        .module = f->module, .kernel = f, .launch = l, .bytes_left = SIM_PTX_LAUNCH_BYTES_MAX};
    fenv_t host_floats;
    b.code = sim_ptx_check(f, l);
    fegetenv(&host_floats);
    fesetenv(FE_DFL_ENV);
    uint64_t count = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    if (b.code == SIM_PTX_OK && l->together)
        run_together(&b, count);
    else if (b.code == SIM_PTX_OK)
        run_in_order(&b, count);
    fesetenv(&host_floats);
    if (outcome)
        report(&b, outcome);
    release(&b);
    return b.code;
}
