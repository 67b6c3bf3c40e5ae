// unsupported.c: the exports that are refused by decision, which unsupported.inc lists with the
// reasons. Each checks first what every call does.
#include "driver.h"

// Defined under names of our own: their arguments do not matter, and some have no published type.
#define R(name, result)                                                                            \
    API refuse_##name(void) __asm__("impl_" #name);                                                \
    CUresult refuse_##name(void) {                                                                 \
        CUresult rc = driver_check();                                                              \
        return rc ? rc : result;                                                                   \
    }
#include "unsupported.inc"
#undef R
