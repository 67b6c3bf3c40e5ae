// modest.c: takes what fits under a cap of 64 MiB, is refused more, frees, and is given more. It
// prints what the driver says to each.
#include "cuda.h"

int main(void) {
    size_t free_bytes, total_bytes;
    uint64_t first, second;
    int code = use_gpu(0);
    if (!code)
        code = cuMemGetInfo_v2(&free_bytes, &total_bytes);
    if (code)
        return 1;
    printf("total %zu\n", total_bytes);
    printf("48 MiB: %d\n", cuMemAlloc_v2(&first, 48 << 20));
    printf("32 MiB more: %d\n", cuMemAlloc_v2(&second, 32 << 20));
    printf("free: %d\n", cuMemFree_v2(first));
    printf("32 MiB: %d\n", cuMemAlloc_v2(&second, 32 << 20));
    return 0;
}
