// sync.c: the calls at which the driver gives back what its pools no longer need: those that wait
// for the device, or find that it has done its work. What they change is seen here, at the cost of
// one load where no pool has anything to give.
#include "hooks.h"
#include "reserve.h"

static CUresult settled(CUresult result) {
    if (result == CUDA_SUCCESS)
        weir_settle_if_loose();
    return result;
}

CUresult weir_cuCtxSynchronize(void) {
    return settled(WEIR_REAL(cuCtxSynchronize)());
}

CUresult weir_cuStreamSynchronize(CUstream stream) {
    return settled(WEIR_REAL(cuStreamSynchronize)(stream));
}

CUresult weir_cuStreamSynchronize_ptsz(CUstream stream) {
    return settled(WEIR_REAL(cuStreamSynchronize_ptsz)(stream));
}

CUresult weir_cuStreamQuery(CUstream stream) {
    return settled(WEIR_REAL(cuStreamQuery)(stream));
}

CUresult weir_cuStreamQuery_ptsz(CUstream stream) {
    return settled(WEIR_REAL(cuStreamQuery_ptsz)(stream));
}

CUresult weir_cuEventSynchronize(CUevent event) {
    return settled(WEIR_REAL(cuEventSynchronize)(event));
}

CUresult weir_cuEventQuery(CUevent event) {
    return settled(WEIR_REAL(cuEventQuery)(event));
}
