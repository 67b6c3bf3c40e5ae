// test_graph.h: what tests of graphs begin with: a driver as test_driver.h has it, a stream, some
// words of device memory, and nodes by short names.
#ifndef SIM_TEST_GRAPH_H
#define SIM_TEST_GRAPH_H

#include "test_driver.h"

// What the tests work on: the graph that nodes are added to, and what was last made of one.
extern CUgraph graph;
extern CUgraphExec exec;
extern CUstream stream;    // a non-blocking one
extern CUdeviceptr words;  // 1024 of them

void start_graphs(void);
void instantiate(void);
void launch_and_wait(void);
void drop(void);  // the executable graph, and the graph
uint32_t word(unsigned i);
void clear(void);

// Nodes of `graph`: one that adds to a word, that takes a time, that sets and that copies a word.
CUgraphNode add_node(const CUgraphNode *deps, size_t count, CUdeviceptr at, uint32_t by);
CUgraphNode spin_node(const CUgraphNode *deps, size_t count, uint64_t ns);
CUgraphNode set_node(const CUgraphNode *deps, size_t count, CUdeviceptr at, uint32_t value);
CUgraphNode copy_node(const CUgraphNode *deps, size_t count, CUdeviceptr to, CUdeviceptr from);
CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr at, uint32_t value, size_t count);
CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, size_t bytes);

// Adds what its argument points to, an int, to `called`.
void host_function(void *user);
extern int called;

#endif
