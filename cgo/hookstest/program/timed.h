// timed.h: takes the place of the library's own in these tests: each call is written down.
#ifndef WEIR_TIMED_H
#define WEIR_TIMED_H

#include "../../gate.h"
#include "../../hooks.h"

struct weir_timed {
    int number;  // of its begin
};

enum weir_timed_how { WEIR_TIMED_GATED = 0, WEIR_TIMED_CHARGED = 1 };

void weir_timed_begin(struct weir_timed *op, CUstream stream, int per_thread, uint64_t what,
                      uint64_t size, uint64_t shape, enum weir_timed_how how);
int weir_timed_try(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                   const struct weir_gate_tries *tries);
void weir_timed_await(const struct weir_timed *op, struct weir_gate_tries *tries);
void weir_timed_count(struct weir_timed *op, uint32_t ordinal, CUstream stream, int per_thread,
                      uint64_t what, uint64_t size, uint64_t shape);
CUresult weir_timed_end(struct weir_timed *op, CUresult result);

// All launches of kernels go this way here.
struct weir_quick {
    struct weir_timed op;
};

static inline int weir_quick_begin(struct weir_quick *quick, CUstream stream, int per_thread,
                                   uint64_t what, uint64_t size, uint64_t shape) {
    weir_timed_begin(&quick->op, stream, per_thread, what, size, shape, WEIR_TIMED_GATED);
    return 1;
}

static inline CUresult weir_quick_end(struct weir_quick *quick, CUresult result) {
    return weir_timed_end(&quick->op, result);
}

void weir_timed_synced(CUstream stream, int per_thread, int whole_context);
void weir_timed_capture_begin(CUstream stream, int per_thread);
void weir_timed_capture_end(CUstream stream, int per_thread);
void weir_timed_stream_ending(CUstream stream);
void weir_timed_context_ending(CUcontext context);

#endif
