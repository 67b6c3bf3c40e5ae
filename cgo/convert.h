// convert.h: plain memory of a container with swap is made managed where that is safe.
//
// Whether it is, is decided once a process, at its first allocation (or report of memory) on a GPU
// for which the control page has swap: all cards that it sees can take page faults and reach each
// other, no library that exports memory is there, its executable is not known to export, and the
// driver has the calls that moving needs. Else its memory stays plain, and a note says why. It ends
// with the first thing tried that plain memory can and managed memory cannot: what is allocated
// from then on is plain. Memory below WEIR_MOVABLE_UNIT stays plain, since the driver packs it.
#ifndef WEIR_CONVERT_H
#define WEIR_CONVERT_H

#include "cuda.h"
#include "movable.h"

// Whether memory of this process on a GPU, by ordinal, can be movable as things stand.
int weir_convertible(struct weir_state *state, uint32_t gpu);

// Allocates movable memory in place of plain memory, for the current context, if that is to be:
// returns whether, with the program's result in *result, and *pointer for CUDA_SUCCESS.
int weir_convert_slow(CUdeviceptr *pointer, uint64_t bytes, CUresult *result);
static inline int weir_convert(CUdeviceptr *pointer, uint64_t bytes, CUresult *result) {
    return bytes >= WEIR_MOVABLE_UNIT && weir_convert_slow(pointer, bytes, result);
}

// Frees movable memory that begins at an address, if some does: returns whether, as above.
int weir_convert_free_slow(struct weir_swap *swap, CUdeviceptr pointer, CUresult *result);
static inline int weir_convert_free(CUdeviceptr pointer, CUresult *result) {
    struct weir_swap *swap = weir_swap_known();
    return swap && weir_convert_free_slow(swap, pointer, result);
}

// The same in the order of a stream, by one of the driver's functions.
int weir_convert_free_async_slow(struct weir_swap *swap, CUdeviceptr pointer,
                                 cuMemFreeAsync_fn *real, CUstream stream, CUresult *result);
static inline int weir_convert_free_async(CUdeviceptr pointer, cuMemFreeAsync_fn *real,
                                          CUstream stream, CUresult *result) {
    struct weir_swap *swap = weir_swap_known();
    return swap && weir_convert_free_async_slow(swap, pointer, real, stream, result);
}

// What plain memory can and managed memory cannot was tried: the agent is told, once a process, if
// the driver has refused it and an address is of movable memory.
void weir_exported_slow(struct weir_swap *swap, CUdeviceptr pointer, enum weir_exported what);
static inline CUresult weir_exported(CUresult result, CUdeviceptr pointer,
                                     enum weir_exported what) {
    struct weir_swap *swap = result == CUDA_SUCCESS ? NULL : weir_swap_known();
    if (__builtin_expect(swap != NULL, 0))
        weir_exported_slow(swap, pointer, what);
    return result;
}

#endif
