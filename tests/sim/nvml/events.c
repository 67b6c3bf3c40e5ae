// Event sets. No event ever happens on a simulated GPU, so a wait ends with its timeout.
#include "query.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct nvml_event_set {
    uint64_t types;  // that were registered for, on any GPU
};

int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, unsigned long long *types) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (types == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *types = NVML_EVENT_XID;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types,
                             struct nvml_event_set *set) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (set == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if ((types & ~NVML_EVENT_XID) != 0) {
        return sim_nvml_end(NVML_NOT_SUPPORTED);
    }
    set->types |= types;
    return sim_nvml_end(NVML_OK);
}

int nvmlEventSetCreate(struct nvml_event_set **set) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (set == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *set = calloc(1, sizeof(**set));
    return sim_nvml_end(*set != NULL ? NVML_OK : NVML_OUT_OF_MEMORY);
}

int nvmlEventSetFree(struct nvml_event_set *set) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    free(set);
    return sim_nvml_end(set != NULL ? NVML_OK : NVML_INVALID_ARGUMENT);
}

static int wait_until_timeout(const struct nvml_event_set *set, const void *event,
                              unsigned timeout_ms) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    sim_nvml_end(NVML_OK);
    if (set == NULL || event == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
    return NVML_TIMEOUT;
}

int nvmlEventSetWait(struct nvml_event_set *set, struct nvml_event_v1 *event, unsigned timeout_ms) {
    return wait_until_timeout(set, event, timeout_ms);
}

int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event, unsigned timeout_ms) {
    return wait_until_timeout(set, event, timeout_ms);
}
