// working_set.h: a program whose working set is a part of the card's memory, or more than all of
// it: it sweeps over pieces of managed memory, one kernel a piece, and lets the pages fault or
// fetches each piece ahead of its kernel. Times are the simulated GPU's own.
#ifndef WEIR_WORKING_SET_H
#define WEIR_WORKING_SET_H

#include "../../sim/machine.h"

#include <stdbool.h>

struct sweep {
    double ms;
    double implied_ms;         // by the bytes that have to move, and the machine file's figures
    struct sim_managed moved;  // during it
};

struct working_set {
    double part;              // of the memory that managed pages can have
    bool prefetch;            // ahead of each kernel
    uint64_t bytes;           // the working set
    struct sweep cold, warm;  // the first sweep, with all pages on the host; one of the later ones
};

// Uses device 0, which must be idle, through the driver. 0, or the driver's error code.
int working_set_measure(struct sim_machine *machine, struct working_set *set);

#endif
