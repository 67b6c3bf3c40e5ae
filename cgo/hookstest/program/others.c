// others.c: what stands in for the scheduler of time, and for the library's books of memory.
#include "program.h"

#include <errno.h>
#include <string.h>

#include "../../contexts.h"
#include "../../gpu.h"
#include "../../graph.h"
#include "../../making.h"
#include "../../note.h"
#include "../../peers.h"
#include "timed.h"

// ---- The scheduler of time ----

static int begun;

static uintptr_t word(const void *handle) {
    return (uintptr_t)handle;
}

void weir_timed_begin(struct weir_timed *op, CUstream stream, int per_thread, uint64_t what,
                      uint64_t size, uint64_t shape, enum weir_timed_how how) {
    op->number = ++begun;
    happened("begin %d stream %" PRIxPTR " thread %d how %d what %" PRIx64 " size %" PRIx64
             " shape %" PRIx64,
             op->number, word(stream), per_thread, how, what, size, shape);
}

int weir_timed_try(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                   const struct weir_gate_tries *tries) {
    (void)tries;
    op->number = ++begun;
    int passes = now.closed != 1;
    now.closed -= now.closed != 0;
    happened("on %u try %d stream %" PRIxPTR " thread %d %s", ordinal, op->number, word(stream),
             per_thread, passes ? "open" : "closed");
    return passes;
}

void weir_timed_await(const struct weir_timed *op, struct weir_gate_tries *tries) {
    (void)tries;
    happened("await %d", op->number);
}

void weir_timed_count(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                      uint64_t what, uint64_t size, uint64_t shape) {
    happened("count %d on %u stream %" PRIxPTR " thread %d what %" PRIx64 " size %" PRIx64
             " shape %" PRIx64,
             op->number, ordinal, word(stream), per_thread, what, size, shape);
}

// In place of peers.c.
void weir_peers_begin(struct weir_peers *peers, CUcontext to, CUcontext from,
                      struct weir_transfer_stream in, uint64_t bytes, uint64_t row_bytes) {
    (void)to, (void)from;
    weir_transfer_begin(&peers->op, WEIR_TRANSFER_PEER, in, bytes, row_bytes);
}

CUresult weir_peers_end(struct weir_peers *peers, CUresult result) {
    return weir_timed_end(&peers->op, result);
}

CUresult weir_timed_end(struct weir_timed *op, CUresult result) {
    happened("end %d %d", op->number, result);
    return result;
}

void weir_timed_synced(CUstream stream, int per_thread, int whole_context) {
    happened("synced %" PRIxPTR " thread %d whole %d", word(stream), per_thread, whole_context);
}

void weir_timed_capture_begin(CUstream stream, int per_thread) {
    happened("capture begin %" PRIxPTR " thread %d", word(stream), per_thread);
}

void weir_timed_capture_end(CUstream stream, int per_thread) {
    happened("capture end %" PRIxPTR " thread %d", word(stream), per_thread);
}

void weir_timed_stream_ending(CUstream stream) {
    happened("stream ending %" PRIxPTR, word(stream));
}

void weir_timed_context_ending(CUcontext context) {
    happened("context ending %" PRIxPTR, word(context));
}

// ---- The process ----

static struct weir_state state = {.mode = WEIR_MODE_ENFORCED};
struct weir_state *weir_state_page = &state;

enum weir_mode weir_enter_slow(struct weir_state **out) {
    *out = &state;
    return state.mode;
}

int weir_lock_slow(struct weir_lock *lock, uintptr_t self) {
    (void)lock, (void)self;
    return EDEADLK;
}

void weir_unlock_wake(struct weir_lock *lock) {
    (void)lock;
}

// ---- The books of memory ----

void weir_note(struct weir_state *of, enum weir_note_bit note, uint32_t gpu, uint64_t bytes) {
    (void)of, (void)note, (void)gpu, (void)bytes;
}

void weir_reserves_settle(struct weir_state *of) {
    (void)of;
}

int weir_gpu_learn(struct weir_state *of, CUdevice device) {
    (void)of, (void)device;
    return 0;
}

int weir_contexts_enter(struct weir_state *of, const struct weir_context *context,
                        uint32_t *place) {
    (void)of, (void)context;
    *place = 0;
    return 0;
}

struct weir_context *weir_contexts_find(struct weir_state *of, uint64_t handle) {
    (void)of, (void)handle;
    return NULL;
}

int weir_contexts_look(struct weir_state *of, uint64_t handle, struct weir_context *out) {
    (void)of;
    *out = (struct weir_context){.handle = handle, .other = now.other, .attached = now.attached};
    return 0;
}

CUresult weir_making_begin(struct weir_making *making, CUdevice device) {
    *making = (struct weir_making){.gpu = (uint32_t)device};
    return CUDA_SUCCESS;
}

CUresult weir_making_begin_primary(struct weir_making *making, CUdevice device) {
    return weir_making_begin(making, device);
}

CUresult weir_making_end(struct weir_making *making, CUresult result, uint64_t handle,
                         weir_undo_fn *undo, uint64_t undone) {
    (void)making, (void)handle, (void)undo, (void)undone;
    return result;
}

void weir_turn_take(struct weir_state *of, uint32_t gpu) {
    (void)of, (void)gpu;
}

void weir_turn_end(struct weir_state *of, uint32_t gpu) {
    (void)of, (void)gpu;
}

uint32_t weir_ending_begin(struct weir_state **of, uint64_t handle) {
    *of = &state;
    return handle != 0;
}

void weir_ending_end(struct weir_state *of, uint32_t ticket, int ended) {
    (void)of, (void)ticket, (void)ended;
}

void weir_ending_emptied(struct weir_state *of, uint32_t ticket) {
    (void)of, (void)ticket;
}

int weir_exec_recall(struct weir_state *of, uint64_t handle, struct weir_exec *exec) {
    (void)of;
    *exec = (struct weir_exec){.handle = handle, .needs = {.gpus = 1, .largest_bytes = 512}};
    return (int)now.recalled;
}

void weir_exec_settled(struct weir_state *of, uint64_t handle, uint64_t stream, uint64_t trims) {
    (void)of, (void)handle, (void)stream, (void)trims;
}

CUresult weir_growths_begin(struct weir_growths *growths, struct weir_state *of, uint64_t gpus,
                            int alone) {
    (void)of, (void)gpus, (void)alone;
    growths->count = 0;
    return CUDA_SUCCESS;
}

CUresult weir_growths_prepare(struct weir_growths *growths, uint64_t bytes) {
    (void)growths, (void)bytes;
    return CUDA_SUCCESS;
}

CUresult weir_growths_cover(struct weir_growths *growths, int finally) {
    (void)growths, (void)finally;
    return CUDA_SUCCESS;
}

void weir_growths_undone(struct weir_growths *growths) {
    (void)growths;
}

void weir_growths_end(struct weir_growths *growths) {
    (void)growths;
}
