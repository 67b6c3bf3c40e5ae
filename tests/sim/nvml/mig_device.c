// MIG devices: what compute instances are to programs. Their index counts those of a card by place.
#include "query.h"

int nvmlDeviceIsMigDeviceHandle(struct nvml_device *device, unsigned *is_mig) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (is_mig == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *is_mig = query.unit >= SIM_GPUS_MAX;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *device, unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL || query.unit >= SIM_GPUS_MAX) {
        return sim_nvml_end(count == NULL ? NVML_INVALID_ARGUMENT : NVML_NOT_SUPPORTED);
    }
    *count = query.mig.enabled ? query.gpu->mig.compute_slices : 0;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *device, unsigned index,
                                        struct nvml_device **mig) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_divided(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (mig == NULL || index >= query.gpu->mig.compute_slices) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    for (unsigned place = 0; place < SIM_MIG_SLICES; place++) {
        if (query.mig.compute[place] != 0 && index-- == 0) {
            *mig = sim_nvml_handle(sim_mig_unit(query.index, place));
            return sim_nvml_end(NVML_OK);
        }
    }
    return sim_nvml_end(NVML_NOT_FOUND);
}

// Begins a query of a MIG device. NVML_NOT_SUPPORTED where it is a card.
static int begin_mig(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = sim_nvml_begin_device(query, device);
    if (code != NVML_OK) {
        return code;
    }
    return query->unit >= SIM_GPUS_MAX ? NVML_OK : sim_nvml_end(NVML_NOT_SUPPORTED);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct nvml_device *mig,
                                                 struct nvml_device **device) {
    struct sim_nvml_query query;
    int code = begin_mig(&query, mig);
    if (code != NVML_OK) {
        return code;
    }
    if (device == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *device = sim_nvml_handle(query.index);
    return sim_nvml_end(NVML_OK);
}

static unsigned start_of(const struct sim_nvml_query *query) {
    return sim_mig_start_of(&query->config->gpus[query->index].mig, &query->mig,
                            sim_mig_place(query->unit));
}

int nvmlDeviceGetGpuInstanceId(struct nvml_device *mig, unsigned *id) {
    struct sim_nvml_query query;
    int code = begin_mig(&query, mig);
    if (code != NVML_OK) {
        return code;
    }
    if (id == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *id = sim_nvml_instance_id(&query, start_of(&query));
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetComputeInstanceId(struct nvml_device *mig, unsigned *id) {
    struct sim_nvml_query query;
    int code = begin_mig(&query, mig);
    if (code != NVML_OK) {
        return code;
    }
    if (id == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *id = sim_mig_place(query.unit) - start_of(&query);
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetAttributes_v2(struct nvml_device *mig, struct nvml_attributes *attributes) {
    struct sim_nvml_query query;
    int code = begin_mig(&query, mig);
    if (code != NVML_OK) {
        return code;
    }
    if (attributes == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    const struct sim_mig_profile *profile = sim_nvml_profile_at(&query, start_of(&query));
    *attributes = (struct nvml_attributes){
        .multiprocessors = query.gpu->sm_count,
        .copy_engines = profile->compute_slices,
        .decoders = sim_nvml_decoders(profile),
        .jpeg_engines = sim_nvml_has_media(&query, profile),
        .flow_engines = sim_nvml_has_media(&query, profile),
        .gpu_instance_slices = profile->compute_slices,
        .compute_instance_slices = query.mig.compute[sim_mig_place(query.unit)],
        .memory_mib = query.gpu->memory_bytes >> 20,
    };
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetAttributes(struct nvml_device *mig, struct nvml_attributes *attributes) {
    return nvmlDeviceGetAttributes_v2(mig, attributes);
}
