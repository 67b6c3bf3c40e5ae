// program.h: the parts of the test program: main.c takes commands, driver.c is the driver, others.c
// what the hooks need of the rest of the library. All write down what they are asked for.
#ifndef WEIR_HOOKSTEST_PROGRAM_H
#define WEIR_HOOKSTEST_PROGRAM_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../../hooks.h"
#include "../../state.h"

// What a function of any type is called with here: more words than any has, of which the first six
// or eight are in registers.
#define WORDS 12
typedef uintptr_t any_fn(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                         uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

// Appends to what came to pass in a call.
void happened(const char *format, ...) __attribute__((format(printf, 1, 2)));

// What the next commands are to meet.
struct circumstances {
    uint64_t answer;     // of the driver
    uint64_t capturing;  // what it says of each stream
    uint64_t active;     // and of each primary context
    uint64_t attached;   // a context's further attachments
    uint64_t other;      // a green context's other handle
    uint64_t recalled;   // graphs have memory nodes
    uint64_t closed;     // so many tries of gates, less one, find one closed; 0: none does
};
extern struct circumstances now;

#endif
