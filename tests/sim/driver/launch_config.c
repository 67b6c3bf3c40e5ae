// launch_config.c: launches by a configuration and its attributes.
//
// Cooperation and the size of clusters are checked and kept. What else an attribute says is of no
// consequence here, since kernels of a stream never overlap and nothing else than their time is
// modelled of them; events are recorded behind the kernel, which has then triggered and begun.
#include "code.h"

#include <string.h>

#define DOMAINS 2

// Whether an event may be recorded by a launch.
static CUresult check_event(CUevent handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    const struct event *event = pool_get(&driver.events, handle);
    bool good = event && event->flags & CU_EVENT_DISABLE_TIMING;
    return driver_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult apply_window(const CUlaunchAttributeValue *value) {
    float hit_ratio = value->accessPolicyWindow.hitRatio;
    int hit = value->accessPolicyWindow.hitProp, miss = value->accessPolicyWindow.missProp;
    bool good = hit_ratio >= 0 && hit_ratio <= 1 && hit >= 0 && hit <= 2 && miss >= 0 && miss <= 1;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult in_range(int value, int least, int most) {
    return value >= least && value <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult apply_cluster(const CUlaunchAttributeValue *value, struct launch *launch) {
    launch->cluster[0] = value->clusterDim.x;
    launch->cluster[1] = value->clusterDim.y;
    launch->cluster[2] = value->clusterDim.z;
    bool good = launch->cluster[0] && launch->cluster[1] && launch->cluster[2];
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult apply(const CUlaunchAttribute *attribute, struct launch *launch) {
    const CUlaunchAttributeValue *value = &attribute->value;
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return apply_window(value);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        launch->cooperative = value->cooperative != 0;
        return in_range(value->cooperative, 0, 1);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return apply_cluster(value, launch);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return in_range(value->clusterSchedulingPolicyPreference, 0, 2);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return value->programmaticEvent.flags ? CUDA_ERROR_INVALID_VALUE
                                              : check_event(value->programmaticEvent.event);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return value->launchCompletionEvent.flags ? CUDA_ERROR_INVALID_VALUE
                                                  : check_event(value->launchCompletionEvent.event);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        launch->priority = value->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return in_range(value->memSyncDomainMap.default_ | value->memSyncDomainMap.remote, 0,
                        DOMAINS - 1);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return in_range(value->memSyncDomain, 0, DOMAINS - 1);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return in_range((int)value->sharedMemCarveout, -1, 100);
    default:  // others are for streams and for nodes of graphs
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult launch_describe(const CUlaunchConfig *config, struct launch *launch) {
    *launch = (struct launch){
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
    };
    if (config->numAttrs && !config->attrs)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    for (unsigned i = 0; i < config->numAttrs && !rc; i++)
        rc = apply(&config->attrs[i], launch);
    return rc;
}

// Records the events that the attributes name.
static CUresult record_events(const CUlaunchConfig *config, bool per_thread) {
    CUresult rc = CUDA_SUCCESS;
    for (unsigned i = 0; i < config->numAttrs && !rc; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        CUevent event = NULL;
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            event = attribute->value.programmaticEvent.event;
        else if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            event = attribute->value.launchCompletionEvent.event;
        if (event)
            rc = per_thread ? cuEventRecord_ptsz(event, config->hStream)
                            : cuEventRecord(event, config->hStream);
    }
    return rc;
}

static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra, bool per_thread) {
    struct launch launch;
    CUresult rc = driver_check();
    if (!rc)
        rc = config ? launch_describe(config, &launch) : CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = launch_kernel(function, &launch, config->hStream, per_thread, params, extra);
    return rc ? rc : record_events(config, per_thread);
}

API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                     void **extra) {
    return launch_config(config, function, params, extra, false);
}

API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    return launch_config(config, function, params, extra, true);
}
