// random.h: numbers for tests that a seed repeats (splitmix64).
#ifndef WEIR_E2E_RANDOM_H
#define WEIR_E2E_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t word = *state;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

#endif
