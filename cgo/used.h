// used.h: which movable memory the program's work uses, so that the agent knows what to bring
// before a lease.
//
// A launch is looked at now and then: each aligned word of its parameters that is an address in
// movable memory names that. Each one is looked at where they come slowly or in bursts, and one in
// some 61 to 67 (by chance, so that no period of the program's hides a kernel) where they come
// fast. Copies and sets name what they use, and so do graphs, whose nodes were read when they were
// made executable (graphused.h). Where it cannot be told (kernels whose parameters are not known)
// all may be used. What nothing has ever named may be reached through
// pointers in memory, so it counts as used in each lease in which anything is.
//
// Nothing is looked at in a process without movable memory.
#ifndef WEIR_USED_H
#define WEIR_USED_H

#include "cuda.h"
#include "movable.h"
#include "timed.h"

struct weir_busy_lane;

void weir_used_kernel_slow(struct weir_swap *swap, struct weir_busy_lane *lane, CUfunction function,
                           void **params, void **extra) WEIR_RARE;
void weir_used_graph_slow(struct weir_swap *swap, struct weir_busy_lane *lane,
                          CUgraphExec exec) WEIR_RARE;
void weir_used_addresses_slow(struct weir_swap *swap, uint64_t a, uint64_t b) WEIR_RARE;

// A launch is about to be given to the driver; in this lane, if it has one. Of it the driver will
// read `params` or `extra`.
static inline void weir_used_kernel(struct weir_busy_lane *lane, CUfunction function, void **params,
                                    void **extra) {
    struct weir_swap *swap = weir_swap_known();
    if (__builtin_expect(swap != NULL, 0))
        weir_used_kernel_slow(swap, lane, function, params, extra);
}

// The same of a graph.
static inline void weir_used_graph(struct weir_busy_lane *lane, CUgraphExec exec) {
    struct weir_swap *swap = weir_swap_known();
    if (__builtin_expect(swap != NULL, 0))
        weir_used_graph_slow(swap, lane, exec);
}

// Who is to hear of words of parameters: called with the lock held.
struct weir_used_words {
    struct weir_swap *swap;
    void (*each)(struct weir_swap *swap, uint64_t word, void *context);
    void *context;
};

// Each aligned word of a kernel's parameters. 0 where these cannot be read.
int weir_used_words(const struct weir_used_words *words, CUfunction function, void **params,
                    void **extra);

// A copy or a set between addresses, either of which may be of other memory, or none.
static inline void weir_used_addresses(uint64_t a, uint64_t b) {
    struct weir_swap *swap = weir_swap_known();
    if (__builtin_expect(swap != NULL, 0))
        weir_used_addresses_slow(swap, a, b);
}

// The driver's call of a copy or a set between addresses, which is let through by now: what waits
// at the gate has brought nothing to the card.
#define WEIR_USING(a, b, call) (weir_used_addresses(a, b), (call))

// Work of which it cannot be told what it uses.
static inline void weir_used_any(void) {
    struct weir_swap *swap = weir_swap_known();
    if (__builtin_expect(swap != NULL, 0))
        __atomic_store_n(&swap->used_all, UINT64_MAX, __ATOMIC_RELAXED);
}

// For the helper: tells the agent what is new of a GPU, by its number in the control page. Where
// the lease has `drained`, it is all that the lease has used.
void weir_used_tell(struct weir_state *state, uint32_t gpu, int drained);

// For the helper: the same, when it is due. In how many ns it is to be called again.
uint64_t weir_used_step(struct weir_state *state);

#endif
