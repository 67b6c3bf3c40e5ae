// transfer.c: see transfer.h.
#include "transfer.h"

#include "capture.h"
#include "state.h"

// Sizes that have the same leading bits take the same time, more or less: an eighth at most.
#define LEADING_BITS 4

static uint64_t leading(uint64_t size) {
    int low = 64 - LEADING_BITS - (size ? __builtin_clzll(size) : 64);
    return low > 0 ? size >> low << low : size;
}

void weir_transfer_begin(struct weir_timed *op, enum weir_transfer kind,
                         struct weir_transfer_stream in, uint64_t bytes, uint64_t row_bytes) {
    weir_timed_begin(op, in.stream, in.per_thread, kind, leading(bytes), leading(row_bytes),
                     kind >= WEIR_TRANSFER_IN ? WEIR_TIMED_CHARGED : WEIR_TIMED_GATED);
}

CUresult weir_transfer_end(struct weir_timed *op, enum weir_transfer kind, int per_thread,
                           CUresult result) {
    result = weir_timed_end(op, result);
    if (kind == WEIR_TRANSFER_OUT && result == CUDA_SUCCESS)
        weir_timed_synced(NULL, per_thread, 0);
    return result;
}

// Nobody waits for the answer where no call is counted.
int weir_transfer_on_device(CUdeviceptr address) {
    unsigned type = CU_MEMORYTYPE_HOST;
    if (weir_passing())
        return 0;
    int mode = weir_capture_relax();
    CUresult result =
        WEIR_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    weir_capture_restore(mode);
    return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}
