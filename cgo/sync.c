// sync.c: the calls that wait for the device, or find that it has done its work. The driver gives
// back then what its pools no longer need, which is seen here at the cost of one load where no pool
// has anything to give; and launches are known to be done, without a further call. (Of what an
// event is behind nobody knows, so those tell nothing of launches.)
#include "hooks.h"
#include "reserve.h"
#include "timed.h"

static CUresult settled(CUresult result) {
    if (result == CUDA_SUCCESS)
        weir_settle_if_loose();
    return result;
}

static CUresult synced(CUstream stream, int per_thread, CUresult result) {
    if (result == CUDA_SUCCESS)
        weir_timed_synced(stream, per_thread, 0);
    return settled(result);
}

CUresult weir_cuCtxSynchronize(void) {
    CUresult result = WEIR_REAL(cuCtxSynchronize)();
    if (result == CUDA_SUCCESS)
        weir_timed_synced(NULL, 0, 1);
    return settled(result);
}

CUresult weir_cuStreamSynchronize(CUstream stream) {
    return synced(stream, 0, WEIR_REAL(cuStreamSynchronize)(stream));
}

CUresult weir_cuStreamSynchronize_ptsz(CUstream stream) {
    return synced(stream, 1, WEIR_REAL(cuStreamSynchronize_ptsz)(stream));
}

CUresult weir_cuStreamQuery(CUstream stream) {
    return synced(stream, 0, WEIR_REAL(cuStreamQuery)(stream));
}

CUresult weir_cuStreamQuery_ptsz(CUstream stream) {
    return synced(stream, 1, WEIR_REAL(cuStreamQuery_ptsz)(stream));
}

CUresult weir_cuEventSynchronize(CUevent event) {
    return settled(WEIR_REAL(cuEventSynchronize)(event));
}

CUresult weir_cuEventQuery(CUevent event) {
    return settled(WEIR_REAL(cuEventQuery)(event));
}
