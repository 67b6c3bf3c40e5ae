// next.c: a small library to preload beside weir's, of the kind that finds the next definition of a
// function by dlsym(RTLD_NEXT) from its own code. If the search began anywhere else it would find
// itself, or nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>

typedef int open_fn(const char *path, int flags, ...);

__attribute__((visibility("default"))) int open(const char *path, int flags, ...) {
    static open_fn *next;
    va_list arguments;
    if (!next)
        next = (open_fn *)dlsym(RTLD_NEXT, "open");
    if (!next || next == open)
        abort();
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    return next(path, flags, mode);
}
