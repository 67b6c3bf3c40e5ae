// program.h: the parts of the gate's test program: an agent's page, and what tests ask for.
#ifndef WEIR_GATETEST_PROGRAM_H
#define WEIR_GATETEST_PROGRAM_H

#include "../../gate.h"

// One gate a process; its memory is wiped in a forked child, as the library's is.
extern struct weir_gate *gate;

// The agent's side: a page that the gate sees read-only, as it sees the control page.
struct page {
    uint32_t *written;     // the agent's mapping
    const uint32_t *seen;  // the library's
};

struct page page_new(void);

// Puts a page of its own in the place of another, at the address where that is seen.
void page_replace(struct page *page, uint32_t lease);

static inline uint32_t open_lease(uint32_t number) {
    return number << 1;
}

static inline uint32_t closed_lease(uint32_t number) {
    return number << 1 | WEIR_LEASE_CLOSED;
}

// Writes a lease, and wakes who waits.
void page_write(struct page *page, uint32_t lease);

uint64_t now_ns(void);

// Threads that launch against a revoker; see torture.c. Each prints a line of figures.
int torture(int argc, char **argv);

// One case by name (cases.c): 0 where it holds; else it has said what does not.
int run_case(const char *name);

#endif
