// capture.h: calls of our own that must not disturb a stream capture of the program's: while a
// thread captures, others that a driver thinks unsafe would make its capture invalid.
#ifndef WEIR_CAPTURE_H
#define WEIR_CAPTURE_H

#include "hooks.h"

// Lets this thread make such calls. What weir_capture_restore is to be given.
static inline int weir_capture_relax(void) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return WEIR_REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS ? mode : -1;
}

static inline void weir_capture_restore(int mode) {
    if (mode >= 0)
        WEIR_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

#endif
