// probe.c: a launch through the gate as a hook will have it, for a look at its instructions.
#include "../../gate.h"

int probe(struct weir_gate *gate, uint32_t gpu, int (*launch)(void *), void *argument);

int probe(struct weir_gate *gate, uint32_t gpu, int (*launch)(void *), void *argument) {
    struct weir_pass pass = weir_gate_enter(gate, gpu);
    int result = launch(argument);
    weir_gate_leave(gate, gpu, pass);
    return result;
}
