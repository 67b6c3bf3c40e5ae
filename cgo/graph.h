// graph.h: executable graphs that have memory nodes, and what these need.
#ifndef WEIR_GRAPH_H
#define WEIR_GRAPH_H

#include "reserve.h"

struct weir_graph_needs {
    uint64_t gpus;           // a bit for each device that memory nodes are on; 0: there are none
    uint64_t largest_bytes;  // of one node
};

// From now on, graphs that are made executable may have memory nodes.
static inline void weir_graphs_may_allocate(struct weir_state *state) {
    if (!__atomic_load_n(&state->graph_memory, __ATOMIC_RELAXED))
        __atomic_store_n(&state->graph_memory, 1, __ATOMIC_RELAXED);
}

// Called with each node but child graphs, in whose place their nodes come.
typedef CUresult weir_graph_visit_fn(CUgraphNode node, int type, void *context);

// Visits all nodes of a graph. CUDA_SUCCESS; what a visit has returned, which ends it; or why they
// cannot be found: then the graph is not to be made executable by one who has to know.
CUresult weir_graph_walk(CUgraph graph, weir_graph_visit_fn *visit, void *context);

// ---- graphexec.c: the book of executable graphs with memory nodes ----

struct weir_exec {
    uint64_t chain;  // the slab's
    uint64_t handle;
    struct weir_graph_needs needs;
    uint64_t stream;  // in which it was uploaded or launched last; 0: in none
    uint64_t trims;   // how often its devices had given unused memory back by then
};

static inline uint64_t weir_exec_handle(CUgraphExec exec) {
    return (uint64_t)(uintptr_t)exec;
}

static inline uint32_t weir_exec_filter(uint64_t handle) {
    return (uint32_t)(handle >> 4 ^ handle >> 16) % WEIR_EXEC_FILTER;
}

// Whether an executable graph may be in the book.
static inline int weir_exec_may_allocate(CUgraphExec exec) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    uint32_t filter = weir_exec_filter(weir_exec_handle(exec));
    return state && __atomic_load_n(&state->exec_filter[filter], __ATOMIC_RELAXED) != 0;
}

// Enters one. 0; ENOMEM or EDEADLK.
int weir_exec_remember(struct weir_state *state, uint64_t handle,
                       const struct weir_graph_needs *needs);

// A copy of one. Whether it is there.
int weir_exec_recall(struct weir_state *state, uint64_t handle, struct weir_exec *exec);

// Notes that it has all it needs in a stream, as of so many trims.
void weir_exec_settled(struct weir_state *state, uint64_t handle, uint64_t stream, uint64_t trims);

// Takes one out. Whether it was there, and what it was.
int weir_exec_forget(struct weir_state *state, uint64_t handle, struct weir_exec *exec);

// ---- graphgrowth.c: the reserves of all devices that a graph is on ----

struct weir_growths {
    struct weir_growth of[WEIR_ORDINALS_MAX];
    int count;
};

// Begins a growth on each device, alone or beside others. CUDA_SUCCESS, or the code for the
// program.
CUresult weir_growths_begin(struct weir_growths *growths, struct weir_state *state, uint64_t gpus,
                            int alone);

// As weir_growth_prepare, for the largest node. Where it is refused, all have ended.
CUresult weir_growths_prepare(struct weir_growths *growths, uint64_t bytes);

// As weir_growth_cover.
CUresult weir_growths_cover(struct weir_growths *growths, int finally);

// As weir_growth_undone.
void weir_growths_undone(struct weir_growths *growths);

// Ends growths after a launch, which cannot be undone: what it should have taken beyond what was
// covered is charged once that can be had.
void weir_growths_end(struct weir_growths *growths);

// ---- graphrun.c ----

// Uploads an executable graph with memory nodes within the cap. The code for the program.
CUresult weir_graph_upload(CUgraphExec exec, CUstream stream, int per_thread);

#endif
