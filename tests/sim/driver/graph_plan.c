// graph_plan.c: an executable graph's steps: all its nodes, those of child graphs included, in an
// order in which each comes after what it depends on.
//
// A child graph is a join that its roots depend on, its nodes, and a join of its last ones, which
// stands for it. While a graph is planned its nodes' `index` is the number of their step, plus one.
#include "graph.h"

#include <stdlib.h>

static bool add_dep(struct exec *exec, uint32_t step) {
    if (exec->dep_count == exec->dep_room) {
        uint32_t room = exec->dep_room ? exec->dep_room * 2 : 16;
        void *grown = realloc(exec->deps, room * sizeof exec->deps[0]);
        if (!grown)
            return false;
        exec->deps = grown;
        exec->dep_room = room;
    }
    exec->deps[exec->dep_count++] = step;
    exec->steps[step].last = false;
    return true;
}

// Adds a step that depends on what has been added from `first_dep` on.
static bool add_step(struct exec *exec, struct node *node, uint32_t first_dep) {
    if (exec->step_count == exec->step_room) {
        uint32_t room = exec->step_room ? exec->step_room * 2 : 16;
        void *grown = realloc(exec->steps, room * sizeof exec->steps[0]);
        if (!grown)
            return false;
        exec->steps = grown;
        exec->step_room = room;
    }
    exec->steps[exec->step_count++] = (struct step){
        .node = node, .deps = first_dep, .dep_count = exec->dep_count - first_dep, .last = true};
    return true;
}

static CUresult plan(struct exec *exec, const struct graph *graph, const uint32_t *entry);

// A child graph, which begins after what has been added from `first_dep` on.
static CUresult plan_child(struct exec *exec, struct node *node, uint32_t first_dep) {
    uint32_t entry = exec->step_count;
    if (!add_step(exec, NULL, first_dep))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = plan(exec, node->child, &entry);
    uint32_t first = exec->dep_count;
    bool good = !rc;
    for (const struct node *n = node->child->first; n && good; n = n->next)
        good = n->outs.count || add_dep(exec, n->index - 1);
    if (good && !node->child->first)
        good = add_dep(exec, entry);
    if (good)
        good = add_step(exec, NULL, first);
    return rc ? rc : good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// `entry`: the step on which the roots depend; NULL: none.
static CUresult plan(struct exec *exec, const struct graph *graph, const uint32_t *entry) {
    struct nodes order;
    bool cycle;
    CUresult rc = CUDA_SUCCESS;
    if (!graph_order(graph, &order, &cycle))
        rc = cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!rc && graph == exec->graph)
        rc = demands_plan(exec, &order);
    for (uint32_t i = 0; i < order.count && !rc; i++) {
        struct node *node = order.at[i];
        uint32_t first = exec->dep_count;
        bool good = true;
        for (uint32_t j = 0; j < node->deps.count && good; j++)
            good = add_dep(exec, node->deps.at[j]->index - 1);
        if (good && !node->deps.count && entry)
            good = add_dep(exec, *entry);
        if (good && node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            rc = plan_child(exec, node, first);
        else if (good)
            good = add_step(exec, node, first);
        if (!good)
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        node->index = exec->step_count;
    }
    free(order.at);
    return rc;
}

CUresult exec_plan(struct exec *exec) {
    return plan(exec, exec->graph, NULL);
}
