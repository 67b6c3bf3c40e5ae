// churn.h: what the files of the churn share: kinds of memory, each as a pair of calls that takes
// something and gives it back.
#ifndef WEIR_E2E_CHURN_H
#define WEIR_E2E_CHURN_H

#include "../../sim/driver/cuda_abi.h"

enum { CHURN_THREADS = 8, PIECE_BYTES = 4096, PHYSICAL_BYTES = 2 << 20 };

struct kind {
    const char *name;
    // Makes what all pairs of this kind use, once, before any; NULL where they need nothing.
    void (*prepare)(void);
    // Takes and gives back. The context of churn.c is current, and is so again afterwards.
    void (*pair)(CUstream stream);
};

// Kinds by file; the last of each has no name.
extern const struct kind memory_kinds[];
extern const struct kind shared_kinds[];
extern const struct kind context_kinds[];

// Says which call failed, and with which code, and ends the process. Nothing where `code` is 0.
void check(const char *call, CUresult code);
#define OK(function, ...) check(#function, function(__VA_ARGS__))

// What another process has to open: filled in from its answer before any pair.
extern CUipcMemHandle lent;

// The lender's part: makes it, hands it over, and keeps it until its standard input ends.
int lend(void);

#endif
