// copy.h: what the forms of copies and sets share.
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "driver.h"

// How far the caller is kept waiting.
enum wait { ASYNC, SYNC };

// A stream as a call names it.
struct order {
    CUstream stream;
    bool per_thread;
    enum wait wait;
};

// Submits a copy. `what` describes it as a CUDA_MEMCPY3D, in whatever form it was asked for; the
// contexts in its reserved places count where `peers`. A row alone needs no pitch.
CUresult copy(const CUDA_MEMCPY3D *what, bool peers, struct order order);

// From the first byte to behind the last one. False: more than there can be.
bool copy_extent(size_t pitch, size_t plane, size_t width, size_t height, size_t depth,
                 size_t *bytes);
// Whether an address is device memory that the host cannot look at.
bool copy_hidden(uint64_t address);
// Has a submitted operation done, before the return or some time.
CUresult copy_see_to(struct context *context, uint64_t seq, bool block);

#endif
