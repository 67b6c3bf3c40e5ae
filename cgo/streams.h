// streams.h: what a stream's handle tells.
#ifndef WEIR_STREAMS_H
#define WEIR_STREAMS_H

#include "cuda.h"

// The device of a stream: the current one of a default stream, of any other its context's. That
// need not be the current context, and a thread that has none may use its stream. CUDA_SUCCESS, or
// the driver's code.
CUresult weir_stream_device(CUstream stream, CUdevice *device);

#endif
