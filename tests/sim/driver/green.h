// green.h: parts of a device's multiprocessors, and contexts that are given one.
#ifndef SIM_GREEN_H
#define SIM_GREEN_H

#include "driver.h"

struct green {
    struct object object;
    struct context *context;  // its own
    CUdevice device;
    unsigned processors;
};

// ---- resource.c ----

// So many multiprocessors of a device as a resource.
void resource_make(CUdevResource *resource, CUdevice device, unsigned processors);
// What a description asks of a device. INVALID_RESOURCE_CONFIGURATION; INVALID_VALUE: no
// description.
CUresult resource_described(CUdevResourceDesc handle, CUdevice device, unsigned *processors);

// ---- context.c ----

// A context beside those that programs make themselves.
CUresult context_make(uint32_t gpu, unsigned flags, struct context **context);
// Waits for its work and ends it.
void context_destroy(struct context *context);

#endif
