// preload.c: the gate as part of a preloaded library that is linked against nothing, and has one
// exported function.
//
// Not part of the test program. What it shows: the thread-local word needs no function of a C
// library, and its place is there on each of them.
#include "../../gate.h"

static struct weir_gate gate;
static uint32_t lease = 7 << 1;

// Launches once. 0 where the calling thread had a word of its own for it, and none before.
__attribute__((visibility("default"))) int weir_gate_try(void);
int weir_gate_try(void) {
    int fresh = weir_gate_mine == NULL;
    weir_gate_bind(&gate, 0, &lease);
    weir_gate_register(&gate);
    struct weir_pass pass = weir_gate_enter(&gate, 0);
    int own = pass.word && pass.word == weir_gate_mine &&
              (__atomic_load_n(&pass.word->state, __ATOMIC_RELAXED) & WEIR_GATE_INSIDE);
    weir_gate_leave(&gate, 0, pass);
    return !fresh || !own || gate.counts.late;
}
