// unsupported.c: every export that no other file implements, as a weak function that says so.
// A name implemented elsewhere takes the place of the one here.
#include "driver.h"

static CUresult unsupported(void) {
    CUresult rc = driver_check();
    return rc ? rc : CUDA_ERROR_NOT_SUPPORTED;
}

// Defined under names of our own, since the true ones are declared with their types.
#define E(name) __attribute__((weak)) API export_##name(void) __asm__(#name);
#include "exports.inc"
#undef E
#define E(name)                                                                                    \
    CUresult export_##name(void) {                                                                 \
        return unsupported();                                                                      \
    }
#include "exports.inc"
#undef E
