// Instructions that compute, tested by their results. Every case is a kernel of its own: its
// registers %a %b %c hold the three inputs in each width (%a2 %a4 %a8; predicates %pa %pb %pc), and
// the result is read from %d2, %d4, %d8 or %pd.
#ifndef WEIR_SIM_PTX_TEST_CASES_H
#define WEIR_SIM_PTX_TEST_CASES_H

#include "tests/sim/ptx/test/harness.h"

struct value_case {
    const char *statement;
    char result;  // '2' '4' '8' or 'p'
    uint64_t a, b, c, expected;
};

// The bits of a float.
static inline uint32_t f(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint64_t d(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#define NEG(value) ((uint64_t)(uint32_t)(-(value)))
#define NEG16(value) ((uint64_t)(uint16_t)(-(value)))
#define NEG64(value) ((uint64_t)(-(int64_t)(value)))

void run_cases(const char *what, const struct value_case *cases, int count);
#define RUN(cases) run_cases(#cases, cases, (int)(sizeof(cases) / sizeof(cases[0])))

#endif
