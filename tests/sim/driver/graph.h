// graph.h: graphs, their nodes, and what is instantiated from them.
//
// A node holds what its operation is to do as the program described it, and makes a job of that at
// each launch: memory, functions and events are looked up anew, so a stale one is an error of the
// launch and nothing worse. An executable graph has nodes of its own, a clone of those that it was
// made from; each knows its origin, by which the program names it in updates.
// Invariants: an edge stands in both of its nodes; a node's parameters belong to it alone.
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "driver.h"

struct graph;
struct exec;

// A launch attribute that a kernel node was given.
struct attribute {
    int id;
    CUlaunchAttributeValue value;
};

struct kernel_params {
    struct function *function;
    uint64_t function_id;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t args_bytes;
    bool cooperative;
    uint32_t cluster[3];
    int priority;
    unsigned char *args;
    void **pointers;  // to each argument
    struct attribute *attributes;
    uint32_t attribute_count;
};

struct memop_params {
    CUstreamBatchMemOpParams *ops;
    unsigned count, flags;
};

struct alloc_params {
    struct allocation *allocation;
    CUmemAccessDesc *access;
    uint32_t access_count;
};

struct node {
    struct object object;
    struct graph *graph;
    CUgraphNodeType type;
    uint32_t index;  // scratch of walks over one graph
    uint64_t id;
    struct node *next, *prev;  // in the graph, in the order of creation
    struct nodes deps, outs;
    struct node *origin;  // of a clone, with its id: the origin may be gone
    uint64_t origin_id;
    struct context *context;  // in which it runs; NULL: the launching stream's
    uint64_t context_id;
    bool disabled;  // of an executable graph
    union {
        struct kernel_params kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        struct graph *child;
        struct {
            struct event *event;
            uint64_t event_id;
        };
        struct memop_params memop;
        struct alloc_params alloc;
        struct allocation *free;
    };
};

// References of a graph to a user object.
struct retained {
    struct user_object *object;
    uint32_t count;
    struct retained *next;
};

struct graph {
    struct object object;
    uint64_t id;
    struct node *first, *last;
    uint32_t count;
    struct node *parent;      // the node whose child graph it is; NULL: none
    struct exec *exec;        // whose own it is; NULL: none
    struct capture *capture;  // that fills it; NULL: none
    struct exec *instance;    // of a graph with memory nodes, which can have but one; NULL: none
    struct graph *origin;     // of a clone
    uint64_t origin_id;
    struct retained *retained;
};

// ---- graph.c ----

struct graph *graph_make(void);
void graph_end(struct graph *graph);
struct graph *graph_get(CUgraph handle);  // NULL: no graph
struct node *node_get(CUgraphNode handle);
// A copy with all that belongs to it; NULL: no room. Its user objects are retained anew.
struct graph *graph_clone(const struct graph *graph);
struct node *node_make(struct graph *graph, CUgraphNodeType type);
void node_end(struct node *node);
bool nodes_add(struct nodes *nodes, struct node *node);  // false: no room
void nodes_remove(struct nodes *nodes, const struct node *node);
bool nodes_have(const struct nodes *nodes, const struct node *node);
bool edge_add(struct node *from, struct node *to);
bool graph_has_memory(const struct graph *graph);
// The node of a clone that was made from another one, child graphs included; NULL: none.
struct node *graph_find_copy(const struct graph *graph, const struct node *original);
// The nodes in an order that respects all edges, of equals the older first. False: no room, or
// *cycle.
bool graph_order(const struct graph *graph, struct nodes *order, bool *cycle);
// CUDA_ERROR_INVALID_VALUE where one is not of the graph, or named twice.
CUresult nodes_check(const struct graph *graph, const CUgraphNode *nodes, size_t count);
// Handles into a program's list, in the manner of all calls that give lists.
CUresult nodes_list(const struct nodes *nodes, CUgraphNode *out, CUgraphEdgeData *edges,
                    size_t *count);
CUresult edges_plain(const CUgraphEdgeData *edges, size_t count);

// ---- graph_params.c: what nodes are to do ----

CUresult kernel_params_set(struct node *node, const CUDA_KERNEL_NODE_PARAMS *params, bool second);
CUresult kernel_params_take(struct node *node, const struct task *task);
CUresult copy_params_set(struct node *node, const CUDA_MEMCPY3D *copy);
CUresult set_params_set(struct node *node, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult host_params_set(struct node *node, const CUDA_HOST_NODE_PARAMS *host);
CUresult event_params_set(struct node *node, CUevent event);
CUresult memop_params_set(struct node *node, const CUstreamBatchMemOpParams *ops, unsigned count,
                          unsigned flags);
// By the node's type, out of the form that holds all of them.
CUresult params_set(struct node *node, const CUgraphNodeParams *params);
CUresult params_copy(struct node *to, const struct node *from);
void params_drop(struct node *node);
// Moves what one node is to do into another of its type, which does nothing yet.
void params_move(struct node *to, const struct node *from);
// What of a kernel's attributes counts in a launch.
void kernel_settings_copy(struct kernel_params *to, const struct kernel_params *from);
// Moves the others into one that has none.
void kernel_attributes_move(struct kernel_params *to, struct kernel_params *from);
// What a launch is to do for a node of a kind that does something by itself.
CUresult node_job(const struct node *node, struct context *context, struct job *job);

// ---- graph_memory.c: memory that graphs allocate ----

// Memory of a card behind what graphs allocate (graph_backing.c).
struct backing {
    struct backing *next;
    uint32_t gpu;
    uint32_t users;      // executable graphs
    uint32_t live;       // allocations that outlive their launch, and launches being submitted
    uint64_t stream_id;  // whose graphs share it; 0: nobody else's
    uint64_t bytes;
    struct sim_dep last;  // the newest operation that uses it
};

// What a memory node allocates: one address for the life of the node.
struct allocation {
    struct block *block;
    uint64_t address, bytes;
    uint32_t gpu;
    uint32_t references;      // nodes, and the program's while it is live
    uint64_t graph_id;        // of the graph whose node allocates it
    bool freed_inside;        // by a node of the same graph
    bool live;                // it outlives the launch that allocated it, and nothing has freed it
    bool freeing;             // a free in stream order is being submitted
    struct backing *backing;  // while it is live
};

void allocation_keep(struct allocation *allocation);
void allocation_drop(struct allocation *allocation);
// Frees a live one; `last` is the newest operation that may use it, seq 0: none.
void allocation_free(struct allocation *allocation, struct sim_dep last);

// The address is written into the parameters.
CUresult alloc_node_set(struct node *node, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUDA_MEM_ALLOC_NODE_PARAMS alloc_node_params(const struct node *node);
CUresult free_node_set(struct node *node, CUdeviceptr address);

// What an executable graph needs of a device.
struct demand {
    uint32_t gpu;
    bool lasting;  // something outlives the launch: the memory is shared with nobody
    uint64_t bytes;
    struct backing *backing;
};

// The demand on a device, added where there is none.
struct demand *demand_of(struct exec *exec, uint32_t gpu);
// Lays the allocations out so that what is freed before another one is used by it again.
CUresult demands_plan(struct exec *exec, const struct nodes *order);
// Has the memory there for a launch into a stream, and keeps it until demands_used says by which
// operation it is used last (seq 0: by none). CUDA_ERROR_OUT_OF_MEMORY.
CUresult demands_meet(struct exec *exec, uint64_t stream_id);
void demands_used(struct exec *exec, struct sim_dep last);
void demands_end(struct exec *exec);
// Whether a launch is possible: CUDA_ERROR_INVALID_VALUE where it would allocate again what is live
// still, or free what is not.
CUresult allocations_check(const struct exec *exec);
// What of an earlier launch is live is freed by the launch that begins with an operation.
void allocations_begin(struct exec *exec, struct sim_dep begin);
// What a launch that ends with an operation has freed, and has left live.
void allocations_end(struct exec *exec, struct sim_dep end);

// ---- graph_exec.c, graph_launch.c ----

// One thing to do at a launch: a node, or the gathering of what a child graph begins or ends with.
struct step {
    struct node *node;         // NULL: only a join
    uint32_t deps, dep_count;  // in exec->deps: numbers of steps
    bool last;                 // nothing follows it
};

struct exec {
    struct object object;
    uint64_t id;
    struct graph *graph;   // its own
    struct graph *source;  // the graph that it was made from, which may be gone
    uint64_t source_id;
    uint64_t flags;
    struct step *steps;
    uint32_t step_count, step_room;
    uint32_t *deps;
    uint32_t dep_count, dep_room;
    uint32_t cursor;  // the step that was last named by its origin
    struct demand *demands;
    uint32_t demand_count;
    struct sim_dep last;  // its newest launch
    uint32_t flights;     // launches that are being submitted
    bool doomed;          // destroyed meanwhile
};

struct exec *exec_get(CUgraphExec handle);
// The node that was made from a node of the source; NULL: none.
struct node *exec_node(struct exec *exec, CUgraphNode handle);
void exec_end(struct exec *exec);

// ---- graph_plan.c ----

// The steps of an executable graph. CUDA_ERROR_INVALID_VALUE where it has a cycle.
CUresult exec_plan(struct exec *exec);

// ---- graph_launch.c ----

CUresult exec_upload(struct exec *exec, struct stream *stream);

// ---- capture.c ----

// A launch into a captured stream becomes a child graph.
CUresult capture_graph(struct stream *stream, const struct exec *exec);

// ---- user_object.c ----

// References of graphs to what the program has made: each graph that is made from another one has
// as many. The last one's end is the object's.
CUresult retained_copy(struct retained **to, const struct retained *from);
void retained_drop(struct retained **list);
// Once an operation is done.
void retained_drop_after(struct retained **list, struct sim_dep last);

#endif
