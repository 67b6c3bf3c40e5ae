// weak.c: a program that asks weak references whether there is a driver, its constants too, and
// whether there is a function that only some C libraries have.
#include "host.h"

extern int cuInit(unsigned flags) __attribute__((weak));
extern int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) __attribute__((weak));
extern int weak_dlvsym(void) __asm__("dlvsym") __attribute__((weak));

static int (*const table[])(uint64_t *, size_t) = {cuMemAlloc_v2};

int main(void) {
    printf("cuInit %s\n", cuInit ? "there" : "null");
    printf("cuMemAlloc %s\n", table[0] ? "there" : "null");
    printf("dlvsym %s %s\n", weak_dlvsym ? "there" : "null",
           dlsym(RTLD_DEFAULT, "dlvsym") ? "there" : "null");
    show("cuInit_from", (void *)cuInit);
    printf("code %d\n", cuInit ? cuInit(0) : -1);
    return 0;
}
