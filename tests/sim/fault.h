// fault.h: faults that are armed in the simulated machine, from outside or by a process itself.
//
// A fault says which use of a driver function fails, of all uses by the processes that it names,
// and with which code. A lost card has fallen off the bus: every call on it gives a code, and what
// was made on it stays dead when it is back. All of it lies in words of the machine file that are
// changed in single steps; a process that dies while it arms a fault leaves one that is not armed.
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdint.h>

#define SIM_FAULTS_MAX 64u
// In place of a function: this kernel never ends; this move of managed memory's data (on a machine
// with managed_data) copies nothing, only its first half, or is done a second time, when what it
// copies is gone already.
#define SIM_FAULT_KERNEL "kernel"
#define SIM_FAULT_MOVE_LOST "move_lost"
#define SIM_FAULT_MOVE_TORN "move_torn"
#define SIM_FAULT_MOVE_TWICE "move_twice"

struct sim_fault {
    // An export ("cuMemAlloc_v2"), or one without its endings, which then stands for all of its
    // forms ("cuMemAlloc"); or one of the above.
    char function[64];
    char process[16];  // its program's name, the first 15 letters; empty: any
    int32_t pid;       // as the process sees itself; 0: any
    uint32_t nth;      // the first use that fails, from 1
    uint32_t times;    // how many fail; 0: all from then on
    uint32_t code;     // a CUresult; of no meaning for kernels and moves
};

struct sim_machine;

// Reads "function[:nth][+|*times][=code]": "cuMemAlloc:3=2" is the third use, "cuMemFree:1+=999"
// each, "cuMemAlloc_v2:5*2=2" the fifth and sixth, "kernel:4" the fourth kernel, which never ends.
// What is left out is 1, and 999 for the code. It ends at `bytes`. EINVAL.
int sim_fault_parse(const char *text, uint32_t bytes, struct sim_fault *fault);

// Whether it is no call that fails, but a kernel or a move of data.
int sim_fault_is_event(const struct sim_fault *fault);
// Whether the use of a function is one that a fault means; `used`: uses before this one.
int sim_fault_means(const struct sim_fault *fault, const char *function);
int sim_fault_hits(const struct sim_fault *fault, uint64_t used);

// EINVAL: no function, use or code; ENOSPC: SIM_FAULTS_MAX are armed.
int sim_fault_arm(struct sim_machine *machine, const struct sim_fault *fault, uint32_t *id);
// The fault of a number below SIM_FAULTS_MAX, and how often it was met. ENOENT: none.
int sim_fault_look(struct sim_machine *machine, uint32_t id, struct sim_fault *fault,
                   uint64_t *used);
int sim_fault_clear(struct sim_machine *machine, uint32_t id);

// This process uses a function: the code with which that fails, 0: it does not.
uint32_t sim_fault_use(struct sim_machine *machine, const char *function);

// Not 0 while faults are armed or a card is lost. The address is valid as long as the machine is.
const uint32_t *sim_fault_attention(const struct sim_machine *machine);

// A card falls off the bus, or is back (code 0). EINVAL.
int sim_gpu_lose(struct sim_machine *machine, unsigned card, uint32_t code);
// The code if a GPU, or the card that it is part of, is lost; 0: it is not.
uint32_t sim_gpu_lost(const struct sim_machine *machine, unsigned gpu);
// A number that has changed if it was lost in between, and the code of the last time.
uint32_t sim_gpu_losses(const struct sim_machine *machine, unsigned gpu, uint32_t *code);

#endif
