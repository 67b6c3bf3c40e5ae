// graphused.h: which movable memory executable graphs use, so that their launches can tell
// (used.h).
//
// Nodes are read when a graph is made executable, and what changes it later is read, too: the words
// of kernels' parameters, as for a launch, and the ends of copies and sets, those of child graphs
// included. An allocation stays in a list while the graph lives, though a later change may no
// longer name it. What cannot be read (conditional nodes, memory operations, kernels of which the
// driver does not tell how long parameters are) makes a list unknown, as does more than it has room
// for; an executable graph without a list, made before there was movable memory, is unknown as
// well. Changes that kernels make to other nodes are not seen.
//
// Nothing is read, or kept, in a process without movable memory. Functions take the lock.
#ifndef WEIR_GRAPHUSED_H
#define WEIR_GRAPHUSED_H

#include "cuda.h"
#include "movable.h"

#define WEIR_GRAPH_USED_MAX 125u

// A list. `at` is where allocations begin: they are looked up at each launch, so one that was freed
// is nobody's, and one that has come to its place is taken for it.
struct weir_graph_used {
    uint64_t chain;  // the slab's
    uint64_t handle;
    uint32_t count;
    uint32_t unknown;
    uint64_t at[WEIR_GRAPH_USED_MAX];
};

// An executable graph was made of this graph, or is as it from now on; it is about to end.
void weir_graph_used_made(CUgraphExec exec, CUgraph graph);
void weir_graph_used_gone(CUgraphExec exec);

// Lock held: its list; NULL where there is none.
const struct weir_graph_used *weir_graph_used_of(const struct weir_swap *swap, CUgraphExec exec);

#endif
