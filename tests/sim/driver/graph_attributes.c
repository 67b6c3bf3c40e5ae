// graph_attributes.c: launch attributes of kernel nodes. Whether a launch is cooperative, the size
// of its clusters and its priority are settings of the launch; the others are kept for those who
// ask.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static CUresult kernel_enter(CUgraphNode handle, struct node **node) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *node = node_get(handle);
    bool good = *node && (*node)->type == CU_GRAPH_NODE_TYPE_KERNEL;
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

// What a kernel node can have.
static bool known(int attribute) {
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return true;
    default:
        return false;
    }
}

static struct attribute *find(const struct kernel_params *kernel, int id) {
    for (uint32_t i = 0; i < kernel->attribute_count; i++)
        if (kernel->attributes[i].id == id)
            return &kernel->attributes[i];
    return NULL;
}

// Takes up what is a setting of the launch. False: it is another one.
static bool set_launch(struct kernel_params *kernel, int id, const CUlaunchAttributeValue *value) {
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        kernel->cooperative = value->cooperative != 0;
    } else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        kernel->priority = value->priority;
    } else if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        kernel->cluster[0] = value->clusterDim.x;
        kernel->cluster[1] = value->clusterDim.y;
        kernel->cluster[2] = value->clusterDim.z;
    } else {
        return false;
    }
    return true;
}

static CUresult set(struct kernel_params *kernel, int id, const CUlaunchAttributeValue *value) {
    if (set_launch(kernel, id, value))
        return CUDA_SUCCESS;
    struct attribute *attribute = find(kernel, id);
    if (!attribute) {
        void *grown = realloc(kernel->attributes,
                              (kernel->attribute_count + 1) * sizeof kernel->attributes[0]);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kernel->attributes = grown;
        attribute = &kernel->attributes[kernel->attribute_count++];
        attribute->id = id;
    }
    attribute->value = *value;
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeGetAttribute(CUgraphNode handle, int id, CUlaunchAttributeValue *value) {
    struct node *node;
    CUresult rc = kernel_enter(handle, &node);
    if (rc)
        return rc;
    if (!value || !known(id))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct kernel_params *kernel = &node->kernel;
    const struct attribute *attribute = find(kernel, id);
    CUlaunchAttributeValue answer = {{0}};
    if (attribute)
        answer = attribute->value;
    else if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        answer.cooperative = kernel->cooperative;
    else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        answer.priority = kernel->priority;
    else if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        answer.clusterDim.x = kernel->cluster[0];
        answer.clusterDim.y = kernel->cluster[1];
        answer.clusterDim.z = kernel->cluster[2];
    }
    *value = answer;
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphKernelNodeSetAttribute(CUgraphNode handle, int id, const CUlaunchAttributeValue *value) {
    struct node *node;
    CUresult rc = kernel_enter(handle, &node);
    if (rc)
        return rc;
    rc = value && known(id) ? set(&node->kernel, id, value) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(rc);
}

API cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
    struct node *to;
    CUresult rc = kernel_enter(to_handle, &to);
    if (rc)
        return rc;
    struct node *from = node_get(from_handle);
    if (!from || from->type != CU_GRAPH_NODE_TYPE_KERNEL || from->context != to->context)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < from->kernel.attribute_count && !rc; i++)
        rc = set(&to->kernel, from->kernel.attributes[i].id, &from->kernel.attributes[i].value);
    if (!rc)
        kernel_settings_copy(&to->kernel, &from->kernel);
    return driver_leave(rc);
}
