// board.h: what a crowd's conductor and its racers share: one page of words in a memfd.
//
// Racers are killed at any instruction, so there is no lock: each word has one writer, or is
// changed by single atomic operations.
#ifndef WEIR_E2E_BOARD_H
#define WEIR_E2E_BOARD_H

#include "random.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RACERS_MAX = 64,
    BOARD_FD = 9,
    // All sizes round up to multiples of this, and the contexts of a whole crowd, and the code in
    // them, take less than one (512 bytes each by the machine file, and 1 KiB). So the card's books
    // show the allocations exactly.
    GRANULE = 128 << 10,
    ROUNDING = 512,  // of the driver
};

struct racer {
    uint64_t held_bytes;  // true whenever the racer stands still
    uint64_t pauses_seen;
};

struct board {
    uint64_t cap_bytes;
    uint64_t racer_bytes_max;  // what one racer may want; 0: as much as it gets
    uint64_t pauses;           // how often all were asked to stand still …
    uint64_t resumes;          // … and to go on
    uint64_t allocations, refusals;
    uint64_t peak_bytes;  // the most that the card's own books ever showed
    uint64_t launches;
    uint32_t failed;
    char failure[156];
    struct racer racers[RACERS_MAX];
};

struct sim_machine;

// Maps the board from BOARD_FD, or makes it there. NULL on failure.
struct board *board_make(void);
struct board *board_open(void);

// Writes down the first failure; later ones are lost.
__attribute__((format(printf, 2, 3))) void board_fail(struct board *board, const char *format, ...);

// What the simulated card's own books say is allocated at one moment, contexts not included, and
// whether that is within the cap; a failure if not. 0 where the books did not stand still.
uint64_t board_look(struct board *board, struct sim_machine *machine);

// The simulated machine of this process, or NULL.
struct sim_machine *open_machine(void);

// One racer: allocates and frees until it is killed.
int race(int number, uint64_t seed);

// A nap of 0 to `us_max` microseconds.
void nap(uint64_t *random, uint64_t us_max);

#endif
