// routes.h: the lookups of the dynamic loader that the library stands in front of.
//
// entry_<machine>.S exports dlsym, dlvsym and dlopen. Each entry asks its route first: a route
// either names the real function, to which the entry jumps with the arguments and the return
// address as they were, or has the result itself. Invariants:
//   - a call that weir has no business with is jumped on: the real function sees its true caller;
//   - a name that the host's own lookup would not find is not found here either: the exported cu*
//     (nvml*) names stay invisible to dlsym while the driver (NVML) is not visible to the caller;
//   - nothing allocates, locks, prints or touches errno or dlerror on its own account.
#ifndef WEIR_ROUTES_H
#define WEIR_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

enum weir_dl {
    WEIR_DLSYM,
    WEIR_DLVSYM,
    WEIR_DLOPEN,
    WEIR_DL_COUNT,  // also: none of them
};

// Which of the three that name means, or WEIR_DL_COUNT.
enum weir_dl weir_dl_named(const char *name);

// The next definition behind this library: the C library's, or another interposer's. NULL where
// there is none (yet).
void *weir_dl_real(enum weir_dl which);

// This library's own entry.
void *weir_dl_entry(enum weir_dl which);

// The wrapper that stands for the driver's or NVML's function of that name, NULL where it is not
// hooked; and the function itself, NULL also where it is not loaded.
void *weir_hooked_wrapper(const char *name);
void *weir_hooked_function(const char *name);

// Called by the entries with their three argument registers, the return address, and where to put a
// result. Returns the function to jump to, or NULL once *result is set.
void *weir_route_dlsym(void *handle, const char *name, const char *unused, const void *caller,
                       void **result);
void *weir_route_dlvsym(void *handle, const char *name, const char *version, const void *caller,
                        void **result);
void *weir_route_dlopen(const char *path, size_t flags, const void *unused, const void *caller,
                        void **result);

#endif
