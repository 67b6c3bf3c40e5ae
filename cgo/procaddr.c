// procaddr.c: cuGetProcAddress, by which runtimes find nearly all functions.
//
// The driver decides: name, version and flags go to it as they came, and its result, pointer and
// status come back. Only a pointer to a hooked function is exchanged, so the wrapper is the one of
// the ABI that was asked for, and what the driver lacks stays lacking.
#include "driver.h"

CUresult weir_cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    CUresult result = WEIR_REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && function)
        *function = weir_driver_swap(*function, symbol);
    return result;
}

CUresult weir_cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                  int *status) {
    CUresult result = WEIR_REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && function)
        *function = weir_driver_swap(*function, symbol);
    return result;
}
