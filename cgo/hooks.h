// hooks.h: the seam between the routes by which a program reaches the driver and the wrappers that
// it reaches instead.
//
// The routes (routes.c, preload/) hand out weir_<export> for every HOOK row of symbols.def; the
// wrappers call the driver through WEIR_REAL(<export>). Invariants:
//   - a wrapper has exactly the type <export>_fn of cuda.h, and so has what WEIR_REAL gives;
//   - WEIR_REAL never gives NULL: where the driver lacks a function, or while none is loaded, it
//     gives what the program would have found without this library (a stand-in of another name),
//     or else one that takes any arguments and returns CUDA_ERROR_NOT_FOUND;
//   - nothing here allocates, locks, changes errno or loads a library.
#ifndef WEIR_HOOKS_H
#define WEIR_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"

// Every export of the driver has a number, in the order of symbols.def.
enum weir_fn {
#define HOOK(export, asked, since, streams, class) WEIR_FN_##export,
#define LATER(export, asked, since, streams, class, waits) WEIR_FN_##export,
#define PASS(export, asked, since, streams, class) WEIR_FN_##export,
#include "symbols.def"
    WEIR_FN_COUNT
};

// The wrappers: weir_cuMemAlloc_v2 and so on. A row without a wrapper does not link.
#define HOOK(export, asked, since, streams, class) export##_fn weir_##export;
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"

// The driver's functions as found so far; NULL where not asked for yet. Written with release order
// by driver.c only; tests put stand-ins here.
extern void *weir_real_table[WEIR_FN_COUNT];

// Looks `fn` up in the loaded driver and remembers it. Never NULL, see above.
void *weir_real_find(enum weir_fn fn);

// What has been found of it, or NULL.
static inline void *weir_real_known(enum weir_fn fn) {
    return __atomic_load_n(&weir_real_table[fn], __ATOMIC_ACQUIRE);
}

static inline void *weir_real(enum weir_fn fn) {
    void *function = weir_real_known(fn);
    return function ? function : weir_real_find(fn);
}

// The driver's own function, typed: WEIR_REAL(cuMemAlloc_v2)(&pointer, bytes).
#define WEIR_REAL(export) ((export##_fn *)weir_real(WEIR_FN_##export))

// The C library's function of that name (pthread_create and the like), or what another preloaded
// library behind this one puts in its place; NULL where there is none. Costs microseconds: keep it.
void *weir_host_function(const char *name);

// The same of several at once, which costs little more than one: `function` of each.
struct weir_host_name {
    const char *name;
    void *function;
    void *before, *after;  // definitions in objects ahead of this library and behind it
};
void weir_host_functions(struct weir_host_name *names, size_t count);

// The next definition of a function behind this library in the loader's order, or NULL: what a
// reference that was bound to this library would have been bound to without it.
void *weir_next_function(const char *name);

// The value of an environment variable in the host's environment, or NULL.
const char *weir_env(const char *name);

// Reads the value that a variable had when the program was started, as the kernel still knows it
// where the program has cleared its environment since. False where it had none, an empty one, or
// one that does not fit.
bool weir_env_at_start(const char *name, char *to, size_t room);

#endif
