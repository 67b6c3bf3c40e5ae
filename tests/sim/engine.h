// engine.h: the time model of the simulated GPUs, pure: the present is an argument.
//
// A discrete-event simulation that is moved forward on demand. Of each GPU:
//   - one compute engine. Contexts with ready work take turns, a slice each, pre-empted in the
//     middle of a kernel; a context without ready work gives up its turn at once; a change of
//     context costs switch_ns, which nobody is charged for;
//   - two copy engines, first come first served, that work beside the compute engine.
// Within a context an operation becomes ready when its dependencies are done (which is how streams
// and events are expressed) and launch_ns after its submission at the earliest; ready kernels run
// one after another in that order. Kernels of one context do not overlap. An operation that touches
// managed pages does so when its engine begins it; what that takes is added to its cost (paging.c).
//
// Invariants: an engine with ready work is never idle; busy + switch time <= wall time; the sum of
// the processes' busy times is the GPU's; what is derived can be rebuilt from operations alone.
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "layout.h"

void sim_engines_init(struct sim_engines *engines, const struct sim_config *config,
                      uint64_t now_ns);

// Begins the books and the engine of one GPU.
void sim_engines_start(struct sim_engines *engines, unsigned gpu,
                       const struct sim_gpu_config *config, uint64_t now_ns);

// Runs all engines up to now.
void sim_engines_advance(struct sim_engines *engines, uint64_t now_ns);

// Derives everything anew, for when a change was cut off half-way. Operations keep what is left of
// them; the running slice and the running copy begin again.
void sim_engines_rebuild(struct sim_engines *engines);

// The same, and where managed pages lie.
void sim_engines_repair(struct sim_engines *engines);

// A context of process `slot`, or the one it already has under this cookie. EUSERS.
int sim_engines_open(struct sim_engines *engines, uint32_t slot, uint64_t serial, uint64_t cookie,
                     unsigned gpu, uint32_t *context);
// Drops a context and its work. The caller must rebuild.
void sim_engines_close(struct sim_engines *engines, uint32_t context);

// Appends; EAGAIN where the queue is full. Engines must have been advanced to now.
int sim_engines_submit(struct sim_engines *engines, uint32_t context, const struct sim_work *work,
                       uint64_t now_ns, uint64_t *recycled_finish_ns);
void sim_engines_finish(struct sim_engines *engines, uint32_t context, uint64_t seq,
                        uint64_t now_ns);

// The operation, or NULL where it is too old (done) or was never submitted.
struct sim_item *sim_engines_item(struct sim_engines *engines, uint32_t context, uint64_t seq);

// The least time from now until the operation can be done; UINT64_MAX behind a host function.
uint64_t sim_engines_bound(struct sim_engines *engines, uint32_t context, uint64_t seq,
                           uint64_t now_ns);

// paging.c: what the managed pages of an operation cost that begins at t, in ns. They have moved.
uint64_t sim_paging_cost(struct sim_engines *engines, uint32_t context,
                         const struct sim_touch touches[SIM_TOUCHES_MAX], uint64_t t);
// Pages have to go until no more than `room` bytes of them are left on a card or GPU instance, over
// the link of `gpu`.
void sim_paging_shrink(struct sim_engines *engines, unsigned gpu, unsigned memory, uint64_t room,
                       uint64_t t);

#endif
