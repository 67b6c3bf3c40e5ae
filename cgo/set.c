// set.c: sets of device memory, in all their forms.
#include "transfer.h"
#include "used.h"

// Of so many values; `row` values of `rows` rows.
#define SET(export, address_type, value_type, size_type, per_thread)                               \
    CUresult weir_##export(address_type to, value_type value, size_type count) {                   \
        return WEIR_TRANSFER(WEIR_TRANSFER_SET, per_thread, (uint64_t)count * sizeof(value), 0,    \
                             WEIR_USING(to, 0, WEIR_REAL(export)(to, value, count)));              \
    }
#define SET_ASYNC(export, value_type, per_thread)                                                  \
    CUresult weir_##export(CUdeviceptr to, value_type value, size_t count, CUstream stream) {      \
        return WEIR_TRANSFER_IN_STREAM(                                                            \
            WEIR_TRANSFER_SET, stream, per_thread, (uint64_t)count * sizeof(value), 0,             \
            WEIR_USING(to, 0, WEIR_REAL(export)(to, value, count, stream)));                       \
    }
#define SET_ROWS(export, address_type, value_type, size_type, per_thread)                          \
    CUresult weir_##export(address_type to, size_type pitch, value_type value, size_type row,      \
                           size_type rows) {                                                       \
        return WEIR_TRANSFER(WEIR_TRANSFER_SET, per_thread, (uint64_t)row * rows * sizeof(value),  \
                             (uint64_t)row * sizeof(value),                                        \
                             WEIR_USING(to, 0, WEIR_REAL(export)(to, pitch, value, row, rows)));   \
    }
#define SET_ROWS_ASYNC(export, value_type, per_thread)                                             \
    CUresult weir_##export(CUdeviceptr to, size_t pitch, value_type value, size_t row,             \
                           size_t rows, CUstream stream) {                                         \
        return WEIR_TRANSFER_IN_STREAM(                                                            \
            WEIR_TRANSFER_SET, stream, per_thread, (uint64_t)row * rows * sizeof(value),           \
            (uint64_t)row * sizeof(value),                                                         \
            WEIR_USING(to, 0, WEIR_REAL(export)(to, pitch, value, row, rows, stream)));            \
    }

SET(cuMemsetD8, CUdeviceptr_v1, unsigned char, unsigned, 0)
SET(cuMemsetD8_v2, CUdeviceptr, unsigned char, size_t, 0)
SET(cuMemsetD8_v2_ptds, CUdeviceptr, unsigned char, size_t, 1)
SET_ASYNC(cuMemsetD8Async, unsigned char, 0)
SET_ASYNC(cuMemsetD8Async_ptsz, unsigned char, 1)
SET(cuMemsetD16, CUdeviceptr_v1, unsigned short, unsigned, 0)
SET(cuMemsetD16_v2, CUdeviceptr, unsigned short, size_t, 0)
SET(cuMemsetD16_v2_ptds, CUdeviceptr, unsigned short, size_t, 1)
SET_ASYNC(cuMemsetD16Async, unsigned short, 0)
SET_ASYNC(cuMemsetD16Async_ptsz, unsigned short, 1)
SET(cuMemsetD32, CUdeviceptr_v1, unsigned, unsigned, 0)
SET(cuMemsetD32_v2, CUdeviceptr, unsigned, size_t, 0)
SET(cuMemsetD32_v2_ptds, CUdeviceptr, unsigned, size_t, 1)
SET_ASYNC(cuMemsetD32Async, unsigned, 0)
SET_ASYNC(cuMemsetD32Async_ptsz, unsigned, 1)

SET_ROWS(cuMemsetD2D8, CUdeviceptr_v1, unsigned char, unsigned, 0)
SET_ROWS(cuMemsetD2D8_v2, CUdeviceptr, unsigned char, size_t, 0)
SET_ROWS(cuMemsetD2D8_v2_ptds, CUdeviceptr, unsigned char, size_t, 1)
SET_ROWS_ASYNC(cuMemsetD2D8Async, unsigned char, 0)
SET_ROWS_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char, 1)
SET_ROWS(cuMemsetD2D16, CUdeviceptr_v1, unsigned short, unsigned, 0)
SET_ROWS(cuMemsetD2D16_v2, CUdeviceptr, unsigned short, size_t, 0)
SET_ROWS(cuMemsetD2D16_v2_ptds, CUdeviceptr, unsigned short, size_t, 1)
SET_ROWS_ASYNC(cuMemsetD2D16Async, unsigned short, 0)
SET_ROWS_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short, 1)
SET_ROWS(cuMemsetD2D32, CUdeviceptr_v1, unsigned, unsigned, 0)
SET_ROWS(cuMemsetD2D32_v2, CUdeviceptr, unsigned, size_t, 0)
SET_ROWS(cuMemsetD2D32_v2_ptds, CUdeviceptr, unsigned, size_t, 1)
SET_ROWS_ASYNC(cuMemsetD2D32Async, unsigned, 0)
SET_ROWS_ASYNC(cuMemsetD2D32Async_ptsz, unsigned, 1)
