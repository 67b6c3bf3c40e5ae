// graph_params.c: what the nodes of graphs are to do, as programs describe it and as a job.
#include "graph.h"

#include "code.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static CUresult node_in(struct node *node, struct context *context) {
    node->context = context;
    node->context_id = context->id;
    return CUDA_SUCCESS;
}

// The context that a program names, or the current one.
static CUresult context_for(CUcontext handle, struct context **context) {
    if (!handle)
        return context_current(context);
    *context = context_get(handle);
    return *context ? (*context)->error : CUDA_ERROR_INVALID_CONTEXT;
}

// ---- Kernels ----

static void kernel_drop(struct kernel_params *kernel) {
    free(kernel->args);
    free(kernel->pointers);
    free(kernel->attributes);
}

// Gives the node copies of a function's packed arguments, and pointers to each.
static CUresult args_set(struct kernel_params *kernel, const void *args, uint32_t bytes) {
    uint32_t count = sim_ptx_info(kernel->function->ptx)->param_count;
    kernel->args = malloc(bytes + 1);
    kernel->pointers = calloc(count + 1, sizeof kernel->pointers[0]);
    if (!kernel->args || !kernel->pointers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes)
        memcpy(kernel->args, args, bytes);
    kernel->args_bytes = bytes;
    struct sim_ptx_param param;
    for (uint32_t i = 0; i < count; i++)
        if (sim_ptx_param(kernel->function->ptx, i, &param) && param.offset + param.bytes <= bytes)
            kernel->pointers[i] = kernel->args + param.offset;
    return CUDA_SUCCESS;
}

// Takes new settings over in place of the old ones, which keep the attributes.
static CUresult kernel_replace(struct node *node, struct kernel_params *fresh, const void *args,
                               uint32_t bytes) {
    CUresult rc = args_set(fresh, args, bytes);
    if (rc) {
        free(fresh->args);
        free(fresh->pointers);
        return rc;
    }
    free(node->kernel.args);
    free(node->kernel.pointers);
    fresh->function_id = fresh->function->id;
    fresh->cooperative = node->kernel.cooperative;
    fresh->priority = node->kernel.priority;
    fresh->attributes = node->kernel.attributes;
    fresh->attribute_count = node->kernel.attribute_count;
    node->kernel = *fresh;
    return node_in(node, fresh->function->module->context);
}

CUresult kernel_params_set(struct node *node, const CUDA_KERNEL_NODE_PARAMS *params, bool second) {
    CUfunction handle = params->func;
    struct context *context = NULL;
    if (!handle && second)
        handle = (CUfunction)params->kern;
    uint64_t id = node->id;
    struct kernel_params fresh = {.function = pool_get(&driver.functions, handle)};
    CUresult rc = CUDA_SUCCESS;
    if (!fresh.function) {  // a kernel of a library, which may have to be loaded
        rc = context_for(second ? params->ctx : NULL, &context);
        if (!rc)
            rc = function_resolve(handle, context, &fresh.function);
        if (!rc && node->id != id)
            rc = CUDA_ERROR_INVALID_VALUE;  // another thread has ended it meanwhile
    }
    if (rc)
        return rc;
    struct launch launch = {
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .shared_bytes = params->sharedMemBytes,
        .cooperative = node->kernel.cooperative,
        .priority = node->kernel.priority,
    };
    memcpy(launch.cluster, node->kernel.cluster, sizeof launch.cluster);
    rc = launch_check(fresh.function, &launch, params->kernelParams, params->extra);
    if (rc)
        return rc;
    memcpy(fresh.grid, launch.grid, sizeof fresh.grid);
    memcpy(fresh.block, launch.block, sizeof fresh.block);
    memcpy(fresh.cluster, launch.cluster, sizeof fresh.cluster);
    fresh.shared_bytes = launch.shared_bytes;
    return kernel_replace(node, &fresh, launch.params, launch.params_bytes);
}

CUresult kernel_params_take(struct node *node, const struct task *task) {
    struct kernel_params fresh = {.function = task->kernel.function,
                                  .shared_bytes = task->kernel.shared_bytes};
    memcpy(fresh.grid, task->kernel.grid, sizeof fresh.grid);
    memcpy(fresh.block, task->kernel.block, sizeof fresh.block);
    memcpy(fresh.cluster, task->kernel.cluster, sizeof fresh.cluster);
    node->kernel.cooperative = task->kernel.cooperative;
    node->kernel.priority = task->kernel.priority;
    return kernel_replace(node, &fresh, task->params, task->kernel.params_bytes);
}

static CUresult kernel_copy(struct node *to, const struct node *from) {
    const struct kernel_params *old = &from->kernel;
    to->kernel = *old;
    to->kernel.args = NULL;
    to->kernel.pointers = NULL;
    to->kernel.attributes = calloc(old->attribute_count + 1, sizeof old->attributes[0]);
    if (!to->kernel.attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (old->attribute_count)
        memcpy(to->kernel.attributes, old->attributes,
               old->attribute_count * sizeof old->attributes[0]);
    // The function may be gone: pointers to the arguments are made from the old ones.
    uint32_t count = 0;
    while (old->pointers && old->pointers[count])
        count++;
    to->kernel.args = malloc(old->args_bytes + 1);
    to->kernel.pointers = calloc(count + 1, sizeof to->kernel.pointers[0]);
    if (!to->kernel.args || !to->kernel.pointers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (old->args_bytes)
        memcpy(to->kernel.args, old->args, old->args_bytes);
    for (uint32_t i = 0; i < count; i++)
        to->kernel.pointers[i] = to->kernel.args + ((unsigned char *)old->pointers[i] - old->args);
    return CUDA_SUCCESS;
}

static CUresult kernel_job(const struct kernel_params *kernel, struct job *job) {
    struct function *function = kernel->function;
    if (!function->object.live || function->id != kernel->function_id)
        return CUDA_ERROR_INVALID_HANDLE;
    struct launch launch = {.shared_bytes = kernel->shared_bytes,
                            .params_bytes = kernel->args_bytes,
                            .cooperative = kernel->cooperative,
                            .priority = kernel->priority};
    memcpy(launch.cluster, kernel->cluster, sizeof launch.cluster);
    memcpy(launch.grid, kernel->grid, sizeof launch.grid);
    memcpy(launch.block, kernel->block, sizeof launch.block);
    memcpy(launch.params, kernel->args, kernel->args_bytes);
    return launch_job(function, &launch, false, job);
}

// ---- The rest ----

// Whether a description makes a job; the context is that of the node.
static CUresult tried(CUresult rc, struct job *job) {
    if (!rc)
        free(job->task);
    return rc;
}

CUresult copy_params_set(struct node *node, const CUDA_MEMCPY3D *copy) {
    struct job job;
    CUresult rc = tried(copy_job(node->context, copy, &job), &job);
    if (!rc)
        node->copy = *copy;
    return rc;
}

CUresult set_params_set(struct node *node, const CUDA_MEMSET_NODE_PARAMS *set) {
    struct job job;
    CUresult rc = tried(set_job(node->context, set, &job), &job);
    if (!rc)
        node->set = *set;
    return rc;
}

CUresult host_params_set(struct node *node, const CUDA_HOST_NODE_PARAMS *host) {
    if (!host->fn)
        return CUDA_ERROR_INVALID_VALUE;
    node->host = *host;
    return CUDA_SUCCESS;
}

CUresult event_params_set(struct node *node, CUevent handle) {
    struct event *event = event_get(handle);
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    node->event = event;
    node->event_id = event->id;
    return node_in(node, event->context);
}

CUresult memop_params_set(struct node *node, const CUstreamBatchMemOpParams *ops, unsigned count,
                          unsigned flags) {
    struct job job;
    CUresult rc =
        flags ? CUDA_ERROR_INVALID_VALUE : tried(memop_job(node->context, ops, count, &job), &job);
    if (rc)
        return rc;
    void *copy = malloc(count * sizeof ops[0]);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, ops, count * sizeof ops[0]);
    free(node->memop.ops);
    node->memop = (struct memop_params){.ops = copy, .count = count};
    return CUDA_SUCCESS;
}

// A copy, a set and memory operations run in a context that the program names; once it is known it
// stays.
static CUresult enter_context(struct node *node, CUcontext handle) {
    struct context *context;
    CUresult rc = node->context && !handle ? CUDA_SUCCESS : context_for(handle, &context);
    return rc || (node->context && !handle) ? rc : node_in(node, context);
}

CUresult params_set(struct node *node, const CUgraphNodeParams *params) {
    CUresult rc;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_params_set(node, &params->kernel, true);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (params->memcpy.flags || params->memcpy.reserved)
            return CUDA_ERROR_INVALID_VALUE;
        rc = enter_context(node, params->memcpy.copyCtx);
        return rc ? rc : copy_params_set(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        rc = enter_context(node, params->memset.ctx);
        return rc ? rc : set_params_set(node, &params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_params_set(node, &params->host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_params_set(node, params->event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        rc = enter_context(node, params->memOp.ctx);
        return rc ? rc
                  : memop_params_set(node, params->memOp.paramArray, params->memOp.count,
                                     params->memOp.flags);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult alloc_copy(struct node *to, const struct node *from) {
    const struct alloc_params *old = &from->alloc;
    to->alloc = *old;
    to->alloc.access = NULL;
    allocation_keep(old->allocation);
    to->alloc.access = calloc(old->access_count + 1, sizeof old->access[0]);
    if (!to->alloc.access)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (old->access_count)
        memcpy(to->alloc.access, old->access, old->access_count * sizeof old->access[0]);
    return CUDA_SUCCESS;
}

CUresult params_copy(struct node *to, const struct node *from) {
    switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_copy(to, from);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        to->copy = from->copy;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        to->set = from->set;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        to->host = from->host;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        to->child = graph_clone(from->child);
        if (!to->child)
            return CUDA_ERROR_OUT_OF_MEMORY;
        to->child->parent = to;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        to->event = from->event;
        to->event_id = from->event_id;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        to->memop = (struct memop_params){0};
        to->memop.ops = malloc(from->memop.count * sizeof to->memop.ops[0]);
        if (!to->memop.ops)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(to->memop.ops, from->memop.ops, from->memop.count * sizeof to->memop.ops[0]);
        to->memop.count = from->memop.count;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return alloc_copy(to, from);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        to->free = from->free;
        allocation_keep(to->free);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

void params_drop(struct node *node) {
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        kernel_drop(&node->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (node->child)
            graph_end(node->child);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        free(node->memop.ops);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        free(node->alloc.access);
        if (node->alloc.allocation)
            allocation_drop(node->alloc.allocation);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (node->free)
            allocation_drop(node->free);
        break;
    default:
        break;
    }
}

void params_move(struct node *to, const struct node *from) {
    size_t head = offsetof(struct node, kernel);
    memcpy((char *)to + head, (const char *)from + head, sizeof *to - head);
}

void kernel_settings_copy(struct kernel_params *to, const struct kernel_params *from) {
    to->cooperative = from->cooperative;
    to->priority = from->priority;
    memcpy(to->cluster, from->cluster, sizeof to->cluster);
}

void kernel_attributes_move(struct kernel_params *to, struct kernel_params *from) {
    to->attributes = from->attributes;
    to->attribute_count = from->attribute_count;
    from->attributes = NULL;
    from->attribute_count = 0;
}

static CUresult host_job(const struct node *node, struct context *context, struct job *job) {
    struct task *task = task_make(TASK_HOST, context, 0);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task->host.function = node->host.fn;
    task->host.user = node->host.userData;
    *job = (struct job){.engine = SIM_ENGINE_HOST, .task = task};
    return CUDA_SUCCESS;
}

CUresult node_job(const struct node *node, struct context *context, struct job *job) {
    *job = (struct job){.engine = SIM_ENGINE_NONE};
    if (node->disabled)
        return CUDA_SUCCESS;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_job(&node->kernel, job);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_job(context, &node->copy, job);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return set_job(context, &node->set, job);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_job(node, context, job);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return memop_job(context, node->memop.ops, node->memop.count, job);
    default:
        return CUDA_SUCCESS;
    }
}
