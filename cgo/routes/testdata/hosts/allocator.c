// allocator.c: a preloaded library in front of malloc that looks for the C library's malloc, and
// for the driver, from inside the first allocation, as memory profilers do. A lookup that allocates
// ends the process.
#include "host.h"

#include <unistd.h>

static void *(*next_malloc)(size_t);
static int looking;

void *malloc(size_t bytes) {
    if (!next_malloc) {
        if (looking++)
            _exit(99);
        void *(*found)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        void *(*again)(size_t) = (void *(*)(size_t))dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5");
        if (found != again || (void *)found == (void *)malloc)
            _exit(98);
        dlsym(RTLD_DEFAULT, "dlsym");
        next_malloc = found;
    }
    return next_malloc(bytes);
}

// Makes the first allocation before any other library is initialised but the C library.
__attribute__((constructor)) static void allocate(void) {
    free(malloc(1));
}
