// timed.h: what is said around each call of the driver that takes GPU time, and what else the
// scheduler of time must hear of.
//
// Nothing is held back or counted yet: all of it passes through.
#ifndef WEIR_TIMED_H
#define WEIR_TIMED_H

#include "hooks.h"

struct weir_timed {
    int nothing;
};

enum weir_timed_how {
    WEIR_TIMED_GATED = 0,
    WEIR_TIMED_CHARGED = 1,  // counted, never held back
};

// Around one call of the driver that takes GPU time in a stream of the current context: NULL for
// the default stream, which is each thread's own with `per_thread`. `what`, `size` and `shape` are
// for weir_busy_key.
static inline void weir_timed_begin(struct weir_timed *op, CUstream stream, int per_thread,
                                    uint64_t what, uint64_t size, uint64_t shape,
                                    enum weir_timed_how how) {
    (void)stream, (void)per_thread, (void)what, (void)size, (void)shape, (void)how;
    op->nothing = 0;
}

// Returns the result.
static inline CUresult weir_timed_end(struct weir_timed *op, CUresult result) {
    (void)op;
    return result;
}

// The same for a device that need not be the current context's.
static inline void weir_timed_begin_on(struct weir_timed *op, uint32_t ordinal, CUstream stream,
                                       int per_thread, uint64_t what, uint64_t size, uint64_t shape,
                                       enum weir_timed_how how) {
    (void)ordinal;
    weir_timed_begin(op, stream, per_thread, what, size, shape, how);
}

// A call returned with success that waited for a stream or the whole context, or found it done.
static inline void weir_timed_synced(CUstream stream, int per_thread, int whole_context) {
    (void)stream, (void)per_thread, (void)whole_context;
}

// A capture is about to begin in a stream; it has ended, or did not begin.
static inline void weir_timed_capture_begin(CUstream stream, int per_thread) {
    (void)stream, (void)per_thread;
}

static inline void weir_timed_capture_end(CUstream stream, int per_thread) {
    (void)stream, (void)per_thread;
}

// Before the driver's call that destroys a stream, and that ends or resets a context.
static inline void weir_timed_stream_ending(CUstream stream) {
    (void)stream;
}

static inline void weir_timed_context_ending(CUcontext context) {
    (void)context;
}

#endif
