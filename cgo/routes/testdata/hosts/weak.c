// weak.c: a program that asks a weak reference whether there is a driver. Its constants too.
#include "host.h"

extern int cuInit(unsigned flags) __attribute__((weak));
extern int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) __attribute__((weak));

static int (*const table[])(uint64_t *, size_t) = {cuMemAlloc_v2};

int main(void) {
    printf("cuInit %s\n", cuInit ? "there" : "null");
    printf("cuMemAlloc %s\n", table[0] ? "there" : "null");
    printf("code %d\n", cuInit ? cuInit(0) : -1);
    return 0;
}
