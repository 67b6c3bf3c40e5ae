// standin.c: a library that is not the driver but has some functions of its names, as emulators do.
#include "host.h"

int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    return 42;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    *pointer = bytes;
    return 43;
}

int cuEventRecord(void);
int cuEventRecord(void) {
    return 44;
}
