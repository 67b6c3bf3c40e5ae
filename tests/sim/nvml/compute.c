// Compute instances within a GPU instance. Kinds and ids of their profiles are the same numbers
// here, one for each number of slices.
#include "query.h"
#include "text.h"

// How many compute slices a profile has; 0: the simulated GPU has none such.
static unsigned slices_of(unsigned profile) {
    static const unsigned slices[NVML_COMPUTE_KINDS] = {1, 2, 3, 4, 7, 8, 6, 0};
    return profile < NVML_COMPUTE_KINDS ? slices[profile] : 0;
}

static unsigned profile_of(unsigned slices) {
    unsigned profile = 0;
    while (profile < NVML_COMPUTE_KINDS && slices_of(profile) != slices) {
        profile++;
    }
    return profile;
}

// Begins a query of a GPU instance for a profile of compute instances that it may have, at the
// places *starts.
static int begin(struct sim_nvml_query *query, const struct nvml_gpu_instance *instance,
                 unsigned profile, unsigned *start, uint32_t *starts) {
    int code = sim_nvml_begin_instance(query, instance, start);
    if (code != NVML_OK) {
        return code;
    }
    if (profile >= NVML_COMPUTE_KINDS) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *starts = sim_mig_compute_starts(sim_nvml_profile_at(query, *start)->compute_slices,
                                     slices_of(profile));
    return *starts != 0 ? NVML_OK : sim_nvml_end(NVML_NOT_SUPPORTED);
}

// ---- Profiles ----

static int describe(const struct nvml_gpu_instance *instance, unsigned kind, unsigned engines,
                    struct nvml_compute_instance_profile *info, char *name, size_t room) {
    struct sim_nvml_query query;
    unsigned start;
    uint32_t starts;
    int code = begin(&query, instance, kind, &start, &starts);
    if (code != NVML_OK) {
        return code;
    }
    if (info == NULL || engines != NVML_ENGINES_SHARED) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    const struct sim_mig_profile *whole = sim_nvml_profile_at(&query, start);
    unsigned slices = slices_of(kind);
    *info = (struct nvml_compute_instance_profile){
        .id = kind,
        .slices = slices,
        .instances = (unsigned)__builtin_popcount(starts),
        .multiprocessors = whole->sm_count * slices / whole->compute_slices,
        .copy_engines = whole->compute_slices,
        .decoders = sim_nvml_decoders(whole),
        .jpeg_engines = sim_nvml_has_media(&query, whole),
        .flow_engines = sim_nvml_has_media(&query, whole),
    };
    if (name != NULL) {
        struct sim_text text = sim_text_begin(name, room);
        sim_text_string(&text, "MIG ");
        if (slices < whole->compute_slices) {
            sim_text_decimal(&text, slices);
            sim_text_string(&text, "c.");
        }
        sim_text_string(&text, whole->name);
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct nvml_gpu_instance *instance, unsigned kind,
                                                 unsigned engines,
                                                 struct nvml_compute_instance_profile *info) {
    return describe(instance, kind, engines, info, NULL, 0);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct nvml_gpu_instance *instance, unsigned kind,
                                                  unsigned engines,
                                                  struct nvml_compute_instance_profile_v2 *info) {
    if (info == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    bool third = info->version == NVML_COMPUTE_INSTANCE_PROFILE_V3;
    if (!third && info->version != NVML_COMPUTE_INSTANCE_PROFILE_V2) {
        return NVML_VERSION_MISMATCH;
    }
    int code = describe(instance, kind, engines, &info->first, info->name, sizeof(info->name));
    if (code == NVML_OK && third) {
        ((struct nvml_compute_instance_profile_v3 *)info)->capabilities = 0;
    }
    return code;
}

int nvmlGpuInstanceGetComputeInstancePossiblePlacements(struct nvml_gpu_instance *instance,
                                                        unsigned profile,
                                                        struct nvml_placement *list,
                                                        unsigned *count) {
    struct sim_nvml_query query;
    unsigned start;
    uint32_t starts;
    int code = begin(&query, instance, profile, &start, &starts);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = 0;
    for (unsigned within = 0; within < SIM_MIG_SLICES; within++) {
        if ((starts >> within & 1) == 0) {
            continue;
        }
        if (list != NULL) {
            list[*count] = (struct nvml_placement){within, slices_of(profile)};
        }
        ++*count;
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(struct nvml_gpu_instance *instance,
                                                       unsigned profile, unsigned *count) {
    struct sim_nvml_query query;
    unsigned start;
    uint32_t starts;
    int code = begin(&query, instance, profile, &start, &starts);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = (unsigned)__builtin_popcount(
        sim_mig_compute_free(&query.gpu->mig, &query.mig, start, slices_of(profile)));
    return sim_nvml_end(NVML_OK);
}

// ---- Instances ----

static int create(struct nvml_gpu_instance *instance, unsigned profile,
                  const struct nvml_placement *placement, struct nvml_compute_instance **compute) {
    struct sim_nvml_query query;
    unsigned start, place;
    uint32_t starts;
    int code = begin(&query, instance, profile, &start, &starts);
    if (code != NVML_OK) {
        return code;
    }
    unsigned slices = slices_of(profile);
    if (compute == NULL || (placement != NULL && placement->size != slices)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (!sim_nvml_may_change()) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    unsigned within = placement != NULL ? placement->start : SIM_MIG_ANYWHERE;
    code = sim_nvml_change_code(
        sim_mig_create_compute(query.machine, query.index, start, slices, within, &place));
    if (code == NVML_OK) {
        *compute = sim_nvml_compute_handle(sim_mig_unit(query.index, place));
    }
    return sim_nvml_end(code);
}

int nvmlGpuInstanceCreateComputeInstance(struct nvml_gpu_instance *instance, unsigned profile,
                                         struct nvml_compute_instance **compute) {
    return create(instance, profile, NULL, compute);
}

int nvmlGpuInstanceCreateComputeInstanceWithPlacement(struct nvml_gpu_instance *instance,
                                                      unsigned profile,
                                                      const struct nvml_placement *placement,
                                                      struct nvml_compute_instance **compute) {
    return placement != NULL ? create(instance, profile, placement, compute)
                             : NVML_INVALID_ARGUMENT;
}

// A handle of the compute instance's MIG device, so that one query finds both.
static int begin_compute(struct sim_nvml_query *query,
                         const struct nvml_compute_instance *compute) {
    unsigned unit = sim_nvml_compute_unit(compute);
    return sim_nvml_begin_device(
        query, unit >= SIM_GPUS_MAX && unit < SIM_UNITS_MAX ? sim_nvml_handle(unit) : NULL);
}

int nvmlComputeInstanceDestroy(struct nvml_compute_instance *compute) {
    struct sim_nvml_query query;
    int code = begin_compute(&query, compute);
    if (code != NVML_OK) {
        return code;
    }
    if (!sim_nvml_may_change()) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    return sim_nvml_end(sim_nvml_change_code(
        sim_mig_destroy_compute(query.machine, query.index, sim_mig_place(query.unit))));
}

int nvmlGpuInstanceGetComputeInstances(struct nvml_gpu_instance *instance, unsigned profile,
                                       struct nvml_compute_instance **list, unsigned *count) {
    struct sim_nvml_query query;
    unsigned start;
    uint32_t starts;
    int code = begin(&query, instance, profile, &start, &starts);
    if (code != NVML_OK) {
        return code;
    }
    if (list == NULL || count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = 0;
    for (unsigned within = 0; within < sim_nvml_profile_at(&query, start)->compute_slices;
         within++) {
        if (query.mig.compute[start + within] == slices_of(profile)) {
            list[(*count)++] = sim_nvml_compute_handle(sim_mig_unit(query.index, start + within));
        }
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlGpuInstanceGetComputeInstanceById(struct nvml_gpu_instance *instance, unsigned id,
                                          struct nvml_compute_instance **compute) {
    struct sim_nvml_query query;
    unsigned start;
    int code = sim_nvml_begin_instance(&query, instance, &start);
    if (code != NVML_OK) {
        return code;
    }
    if (compute == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (id >= sim_nvml_profile_at(&query, start)->compute_slices ||
        query.mig.compute[start + id] == 0) {
        return sim_nvml_end(NVML_NOT_FOUND);
    }
    *compute = sim_nvml_compute_handle(sim_mig_unit(query.index, start + id));
    return sim_nvml_end(NVML_OK);
}

static int describe_instance(const struct nvml_compute_instance *compute,
                             struct nvml_compute_instance_info *info, bool as_mig_device) {
    struct sim_nvml_query query;
    int code = begin_compute(&query, compute);
    if (code != NVML_OK) {
        return code;
    }
    unsigned place = sim_mig_place(query.unit);
    unsigned start = sim_mig_start_of(&query.config->gpus[query.index].mig, &query.mig, place);
    *info = (struct nvml_compute_instance_info){
        .device = sim_nvml_handle(as_mig_device ? query.unit : query.index),
        .gpu_instance = sim_nvml_instance_handle(query.index, sim_nvml_instance_id(&query, start)),
        .id = place - start,
        .profile_id = profile_of(query.mig.compute[place]),
        .placement = {place - start, query.mig.compute[place]},
    };
    return sim_nvml_end(NVML_OK);
}

int nvmlComputeInstanceGetInfo(struct nvml_compute_instance *compute,
                               struct nvml_compute_instance_info *info) {
    struct nvml_compute_instance_info whole;
    int code = describe_instance(compute, &whole, false);
    if (code == NVML_OK && info == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (code == NVML_OK) {
        info->device = whole.device;
        info->gpu_instance = whole.gpu_instance;
        info->id = whole.id;
        info->profile_id = whole.profile_id;
    }
    return code;
}

int nvmlComputeInstanceGetInfo_v2(struct nvml_compute_instance *compute,
                                  struct nvml_compute_instance_info *info) {
    struct nvml_compute_instance_info whole;
    int code = describe_instance(compute, &whole, true);
    if (code == NVML_OK && info == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (code == NVML_OK) {
        *info = whole;
    }
    return code;
}
