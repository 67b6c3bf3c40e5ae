// driver.h: the driver that is loaded in this process, and which wrapper stands for which of its
// functions.
//
// The driver is the first loaded object whose SONAME is libcuda.so.1; WEIR_DRIVER names another
// one, by SONAME or by path. It is never loaded from here. Invariants:
//   - a function is taken for the driver's by its address, never by its name alone, so a wrapper
//     always stands for exactly the export (hence the version and stream flag) that was found;
//   - all state can be written by several threads at once: each writes the same words, in an order
//     that makes a reader see a whole table or none. So there is no lock, and a fork needs no care.
#ifndef WEIR_DRIVER_H
#define WEIR_DRIVER_H

#include <stdbool.h>

#include "hooks.h"

// No function; what weir_fn_named gives for a name that is not a driver export.
#define WEIR_FN_NONE WEIR_FN_COUNT

// The export of that name, WEIR_FN_NONE where there is none.
enum weir_fn weir_fn_named(const char *name);

// The wrapper of an export, NULL where its row is not HOOK.
void *weir_wrapper(enum weir_fn fn);

// Looks which driver is loaded and fills the table of its hooked functions. Costs microseconds;
// needed once, and again where the driver may have been loaded anew. False where none is loaded.
bool weir_driver_refresh(void);

// The driver's function of that number, or NULL where it lacks it or is not loaded.
void *weir_driver_function(enum weir_fn fn);

// Whether the driver that the table is filled from lies at that address.
bool weir_driver_is_at(uintptr_t low);

// The wrapper to give out in place of `function`, or `function` itself where it is not one of the
// driver's hooked functions. `asked` is the name it was asked for by; it decides between two
// exports at one address and may be NULL. Costs nanoseconds.
void *weir_driver_swap(void *function, const char *asked);

#endif
