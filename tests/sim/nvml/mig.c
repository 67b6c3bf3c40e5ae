// Cards divided into GPU instances: mode, profiles, placements, creation and destruction.
//
// A profile's `id` names it in calls; NVML's constants ("kinds") only ask for descriptions. What
// fits where is the machine's rule (mig.h). An occupied placement is NVML_INSUFFICIENT_RESOURCES.
#include "query.h"
#include "text.h"

#include <errno.h>
#include <string.h>

#define NO_PROFILE SIM_MIG_PROFILES_MAX

int sim_nvml_begin_divided(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = sim_nvml_begin_device(query, device);
    if (code != NVML_OK) {
        return code;
    }
    bool divided = query->unit < SIM_GPUS_MAX && query->mig.enabled;
    return divided ? NVML_OK : sim_nvml_end(NVML_NOT_SUPPORTED);
}

// A card that could be divided.
static int begin_capable(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = sim_nvml_begin_gpu(query, device);
    if (code != NVML_OK) {
        return code;
    }
    return query->gpu->mig.profile_count > 0 ? NVML_OK : sim_nvml_end(NVML_NOT_SUPPORTED);
}

static const struct sim_mig_geometry *geometry_of(const struct sim_nvml_query *query) {
    return &query->config->gpus[query->index].mig;
}

const struct sim_mig_profile *sim_nvml_profile_at(const struct sim_nvml_query *query,
                                                  unsigned start) {
    return &geometry_of(query)->profiles[query->mig.instance[start] - 1];
}

unsigned sim_nvml_instance_id(const struct sim_nvml_query *query, unsigned start) {
    return sim_mig_instance_id(geometry_of(query), query->mig.instance[start] - 1u, start);
}

int sim_nvml_begin_instance(struct sim_nvml_query *query, const struct nvml_gpu_instance *instance,
                            unsigned *start) {
    unsigned card = 0, id = 0;
    bool known = sim_nvml_instance_of(instance, &card, &id);
    int code = sim_nvml_begin_device(query, sim_nvml_handle(card));
    if (code != NVML_OK) {
        return code;
    }
    for (*start = 0; known && *start < SIM_MIG_SLICES; ++*start) {
        if (query->mig.instance[*start] != 0 && sim_nvml_instance_id(query, *start) == id) {
            return NVML_OK;
        }
    }
    return sim_nvml_end(NVML_INVALID_ARGUMENT);
}

int sim_nvml_change_code(int error) {
    switch (error) {
    case 0:
        return NVML_OK;
    case ENOTSUP:
        return NVML_NOT_SUPPORTED;
    case ENOSPC:
        return NVML_INSUFFICIENT_RESOURCES;
    case EBUSY:
        return NVML_IN_USE;
    case ENOENT:
        return NVML_NOT_FOUND;
    default:
        return NVML_INVALID_ARGUMENT;
    }
}

// ---- Mode ----

int nvmlDeviceGetMigMode(struct nvml_device *device, unsigned *current, unsigned *pending) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    struct sim_mig_state state;
    if (current == NULL || pending == NULL ||
        sim_mig_look(query.machine, query.index, &state) != 0) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *current = state.enabled;
    *pending = state.pending;
    return sim_nvml_end(NVML_OK);
}

// On a card that is in use the mode is pending: *activation says why, and to set it again once the
// card is idle makes it the current one.
int nvmlDeviceSetMigMode(struct nvml_device *device, unsigned mode, int *activation) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (mode > 1 || activation == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (!sim_nvml_may_change()) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    *activation = sim_nvml_change_code(sim_mig_set_mode(query.machine, query.index, mode == 1));
    return sim_nvml_end(NVML_OK);
}

// ---- Profiles ----

unsigned sim_nvml_decoders(const struct sim_mig_profile *profile) {
    return profile->attributes & SIM_MIG_MEDIA ? 1 : profile->compute_slices / 2;
}

bool sim_nvml_has_media(const struct sim_nvml_query *query, const struct sim_mig_profile *profile) {
    return (profile->attributes & (SIM_MIG_MEDIA | SIM_MIG_ALL_MEDIA)) != 0 ||
           profile->compute_slices == geometry_of(query)->compute_slices;
}

static void describe(const struct sim_nvml_query *query, const struct sim_mig_profile *profile,
                     struct nvml_gpu_instance_profile *info) {
    *info = (struct nvml_gpu_instance_profile){
        .id = profile->id,
        .slices = profile->compute_slices,
        .instances = profile->instances_max,
        .multiprocessors = profile->sm_count,
        .copy_engines = profile->compute_slices,
        .decoders = sim_nvml_decoders(profile),
        .jpeg_engines = sim_nvml_has_media(query, profile),
        .flow_engines = sim_nvml_has_media(query, profile),
        .memory_mib = profile->memory_bytes >> 20,
    };
}

// The number of the profile with NVML's constant `kind`, or with an id; NO_PROFILE: none has it.
static unsigned find_kind(const struct sim_nvml_query *query, unsigned kind) {
    const struct sim_mig_geometry *geometry = geometry_of(query);
    for (unsigned i = 0; i < geometry->profile_count; i++) {
        if (geometry->profiles[i].kind == kind) {
            return i;
        }
    }
    return NO_PROFILE;
}

static unsigned find_id(const struct sim_nvml_query *query, unsigned id) {
    const struct sim_mig_geometry *geometry = geometry_of(query);
    for (unsigned i = 0; i < geometry->profile_count; i++) {
        if (geometry->profiles[i].id == id) {
            return i;
        }
    }
    return NO_PROFILE;
}

// Whether a kind can be asked for. NVML_INVALID_ARGUMENT, NVML_NOT_SUPPORTED.
static int check_kind(const struct sim_nvml_query *query, unsigned kind, const void *info) {
    if (info == NULL || kind >= NVML_INSTANCE_KINDS) {
        return NVML_INVALID_ARGUMENT;
    }
    return find_kind(query, kind) != NO_PROFILE ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceProfileInfo(struct nvml_device *device, unsigned kind,
                                        struct nvml_gpu_instance_profile *info) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    code = check_kind(&query, kind, info);
    if (code == NVML_OK) {
        describe(&query, &geometry_of(&query)->profiles[find_kind(&query, kind)], info);
    }
    return sim_nvml_end(code);
}

static void write_name(char *to, size_t room, const struct sim_mig_profile *profile) {
    struct sim_text text = sim_text_begin(to, room);
    sim_text_string(&text, "MIG ");
    sim_text_string(&text, profile->name);
}

static void fill_v2(struct nvml_gpu_instance_profile_v2 *to,
                    const struct nvml_gpu_instance_profile *from,
                    const struct sim_mig_profile *profile) {
    *to = (struct nvml_gpu_instance_profile_v2){
        .version = to->version,
        .id = from->id,
        .p2p = from->p2p,
        .slices = from->slices,
        .instances = from->instances,
        .multiprocessors = from->multiprocessors,
        .copy_engines = from->copy_engines,
        .decoders = from->decoders,
        .encoders = from->encoders,
        .jpeg_engines = from->jpeg_engines,
        .flow_engines = from->flow_engines,
        .memory_mib = from->memory_mib,
    };
    write_name(to->name, sizeof(to->name), profile);
}

static void fill_v3(struct nvml_gpu_instance_profile_v3 *to,
                    const struct nvml_gpu_instance_profile *from,
                    const struct sim_mig_profile *profile) {
    *to = (struct nvml_gpu_instance_profile_v3){
        .version = to->version,
        .id = from->id,
        .slices = from->slices,
        .instances = from->instances,
        .multiprocessors = from->multiprocessors,
        .copy_engines = from->copy_engines,
        .decoders = from->decoders,
        .encoders = from->encoders,
        .jpeg_engines = from->jpeg_engines,
        .flow_engines = from->flow_engines,
        .memory_mib = from->memory_mib,
        .capabilities = profile->attributes & SIM_MIG_GRAPHICS ? 2 : 0,
    };
    write_name(to->name, sizeof(to->name), profile);
}

// In the version that the caller asks for. NVML_VERSION_MISMATCH.
static int fill(const struct sim_nvml_query *query, unsigned number,
                struct nvml_gpu_instance_profile_v2 *info) {
    const struct sim_mig_profile *profile = &geometry_of(query)->profiles[number];
    struct nvml_gpu_instance_profile first;
    describe(query, profile, &first);
    if (info->version == NVML_GPU_INSTANCE_PROFILE_V2) {
        fill_v2(info, &first, profile);
        return NVML_OK;
    }
    if (info->version == NVML_GPU_INSTANCE_PROFILE_V3) {
        fill_v3((struct nvml_gpu_instance_profile_v3 *)info, &first, profile);
        return NVML_OK;
    }
    return NVML_VERSION_MISMATCH;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(struct nvml_device *device, unsigned kind,
                                         struct nvml_gpu_instance_profile_v2 *info) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    code = check_kind(&query, kind, info);
    return sim_nvml_end(code == NVML_OK ? fill(&query, find_kind(&query, kind), info) : code);
}

int nvmlDeviceGetGpuInstanceProfileInfoByIdV(struct nvml_device *device, unsigned profile,
                                             struct nvml_gpu_instance_profile_v2 *info) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    unsigned number = find_id(&query, profile);
    return sim_nvml_end(number == NO_PROFILE || info == NULL ? NVML_INVALID_ARGUMENT
                                                             : fill(&query, number, info));
}

// All placements that the card has for a profile, whatever is there and whatever its mode.
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct nvml_device *device, unsigned profile,
                                                  struct nvml_placement *list, unsigned *count) {
    struct sim_nvml_query query;
    int code = begin_capable(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    unsigned number = find_id(&query, profile);
    if (number == NO_PROFILE || count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    const struct sim_mig_profile *found = &geometry_of(&query)->profiles[number];
    *count = 0;
    for (unsigned start = 0; start < SIM_MIG_SLICES; start++) {
        if ((found->starts >> start & 1) == 0) {
            continue;
        }
        if (list != NULL) {
            list[*count] = (struct nvml_placement){start, found->memory_slices};
        }
        ++*count;
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetGpuInstancePossiblePlacements(struct nvml_device *device, unsigned profile,
                                               struct nvml_placement *list, unsigned *count) {
    return list == NULL
               ? NVML_INVALID_ARGUMENT
               : nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile, list, count);
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(struct nvml_device *device, unsigned profile,
                                              unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_divided(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    unsigned number = find_id(&query, profile);
    if (number == NO_PROFILE || count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = sim_mig_capacity(geometry_of(&query), &query.mig, number);
    return sim_nvml_end(NVML_OK);
}

// ---- Instances ----

static int create(struct nvml_device *device, unsigned profile,
                  const struct nvml_placement *placement, struct nvml_gpu_instance **instance) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_divided(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    unsigned number = find_id(&query, profile), at;
    if (number == NO_PROFILE || instance == NULL ||
        (placement != NULL &&
         placement->size != geometry_of(&query)->profiles[number].memory_slices)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (!sim_nvml_may_change()) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    unsigned start = placement != NULL ? placement->start : SIM_MIG_ANYWHERE;
    code = sim_nvml_change_code(sim_mig_create(query.machine, query.index, number, start, &at));
    if (code == NVML_OK) {
        unsigned id = sim_mig_instance_id(geometry_of(&query), number, at);
        *instance = sim_nvml_instance_handle(query.index, id);
    }
    return sim_nvml_end(code);
}

int nvmlDeviceCreateGpuInstance(struct nvml_device *device, unsigned profile,
                                struct nvml_gpu_instance **instance) {
    return create(device, profile, NULL, instance);
}

int nvmlDeviceCreateGpuInstanceWithPlacement(struct nvml_device *device, unsigned profile,
                                             const struct nvml_placement *placement,
                                             struct nvml_gpu_instance **instance) {
    return placement != NULL ? create(device, profile, placement, instance) : NVML_INVALID_ARGUMENT;
}

int nvmlGpuInstanceDestroy(struct nvml_gpu_instance *instance) {
    struct sim_nvml_query query;
    unsigned start;
    int code = sim_nvml_begin_instance(&query, instance, &start);
    if (code != NVML_OK) {
        return code;
    }
    if (!sim_nvml_may_change()) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    return sim_nvml_end(sim_nvml_change_code(sim_mig_destroy(query.machine, query.index, start)));
}

int nvmlDeviceGetGpuInstances(struct nvml_device *device, unsigned profile,
                              struct nvml_gpu_instance **list, unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_divided(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    unsigned number = find_id(&query, profile);
    if (number == NO_PROFILE || list == NULL || count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = 0;
    for (unsigned start = 0; start < SIM_MIG_SLICES; start++) {
        if (query.mig.instance[start] == number + 1) {
            unsigned id = sim_nvml_instance_id(&query, start);
            list[(*count)++] = sim_nvml_instance_handle(query.index, id);
        }
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetGpuInstanceById(struct nvml_device *device, unsigned id,
                                 struct nvml_gpu_instance **instance) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_divided(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (instance == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    for (unsigned start = 0; start < SIM_MIG_SLICES; start++) {
        if (query.mig.instance[start] != 0 && sim_nvml_instance_id(&query, start) == id) {
            *instance = sim_nvml_instance_handle(query.index, id);
            return sim_nvml_end(NVML_OK);
        }
    }
    return sim_nvml_end(NVML_NOT_FOUND);
}

int nvmlGpuInstanceGetInfo(struct nvml_gpu_instance *instance,
                           struct nvml_gpu_instance_info *info) {
    struct sim_nvml_query query;
    unsigned start;
    int code = sim_nvml_begin_instance(&query, instance, &start);
    if (code != NVML_OK) {
        return code;
    }
    if (info == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    const struct sim_mig_profile *profile = sim_nvml_profile_at(&query, start);
    *info = (struct nvml_gpu_instance_info){
        .device = sim_nvml_handle(query.index),
        .id = sim_nvml_instance_id(&query, start),
        .profile_id = profile->id,
        .placement = {start, profile->memory_slices},
    };
    return sim_nvml_end(NVML_OK);
}
