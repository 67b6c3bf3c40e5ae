// next.c: another preloaded library, which stands in front of open and looks for what comes after
// it.
#include "host.h"

#include <fcntl.h>
#include <stdarg.h>

static int opened;

int open(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next)
        next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    opened++;
    return next(path, flags, mode);
}

int next_opened(void);
int next_opened(void) {
    return opened;
}

// Whose open it found: never its own.
const void *next_open(void);
const void *next_open(void) {
    return dlsym(RTLD_NEXT, "open");
}

// Whose driver function comes after it.
const void *next_init(void);
const void *next_init(void) {
    return dlsym(RTLD_NEXT, "cuInit");
}
