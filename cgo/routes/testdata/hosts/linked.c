// linked.c: a program that is linked with the driver.
#include "host.h"

int cuInit(unsigned flags);
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
int cuEventRecord(void);

int main(void) {
    uint64_t pointer = 0;
    printf("code %d %d %d\n", cuInit(0), cuMemAlloc_v2(&pointer, 4096), cuEventRecord());
    printf("pointer %d\n", pointer != 0);
    printf("calls %d %d %d\n", calls("cuInit"), calls("cuMemAlloc_v2"), calls("cuEventRecord"));
    show("default", dlsym(RTLD_DEFAULT, "cuInit"));
    show("next", dlsym(RTLD_NEXT, "cuInit"));
    return 0;
}
