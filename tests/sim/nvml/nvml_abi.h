// What callers of NVML and this library agree on: return codes, structures and the functions that
// the simulated NVML answers. Declared by their documented layout, under names of our own; nothing
// is taken from NVIDIA's header. Sizes are bytes unless a name says otherwise.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Return codes.
enum {
    NVML_OK = 0,
    NVML_UNINITIALISED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_NO_DRIVER = 9,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_OPERATING_SYSTEM = 17,
    NVML_IN_USE = 19,
    NVML_OUT_OF_MEMORY = 20,
    NVML_INSUFFICIENT_RESOURCES = 23,
    NVML_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
};

// Longest PCI bus ids, with their zero bytes: "00000000:3B:00.0", and the short form of old.
#define NVML_BUS_ID_BYTES 32
#define NVML_BUS_ID_LEGACY_BYTES 16

// MIG and instance ids of a process on a whole GPU.
#define NVML_NO_INSTANCE UINT32_MAX

// The only events that the simulated GPU lets one register for: errors ("Xid").
#define NVML_EVENT_XID 8ull

// Handles: each points at an entry that stands for one thing.
struct nvml_device;            // a GPU or a MIG device
struct nvml_gpu_instance;      // of a GPU that is divided
struct nvml_compute_instance;  // of a GPU instance
struct nvml_event_set;         // an allocated set

struct nvml_pci_info {
    char bus_id_legacy[NVML_BUS_ID_LEGACY_BYTES];
    uint32_t domain;
    uint32_t bus;
    uint32_t device;
    uint32_t device_id;     // device << 16 | vendor
    uint32_t subsystem_id;  // likewise; the v1 query leaves this and what follows alone
    char bus_id[NVML_BUS_ID_BYTES];
};

struct nvml_memory {
    uint64_t total;
    uint64_t free;
    uint64_t used;
};

struct nvml_memory_v2 {
    uint32_t version;  // NVML_MEMORY_V2, set by the caller
    uint64_t total;
    uint64_t reserved;  // what the driver keeps for itself
    uint64_t free;
    uint64_t used;
};

// Limits of a control group; NVML_LIMIT_MAX is the whole card's memory, as a hard limit none.
#define NVML_LIMIT_MAX UINT64_MAX

struct nvml_set_memory_limits {
    const char *directory;  // of the group, in the file system of version 2
    uint64_t soft;
    uint64_t hard;
};

struct nvml_memory_limits {
    const char *directory;  // set by the caller
    uint64_t soft;
    uint64_t hard;
    uint64_t used;
};

struct nvml_utilisation {
    uint32_t gpu_percent;
    uint32_t memory_percent;
};

// A process in the first version of the lists.
struct nvml_process_v1 {
    uint32_t pid;
    uint64_t used_bytes;
};

// A process in the second and third.
struct nvml_process {
    uint32_t pid;
    uint64_t used_bytes;
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

// Kinds of compute instance by their slices, and the only way to share engines among them.
enum {
    NVML_COMPUTE_1_SLICE = 0,
    NVML_COMPUTE_2_SLICES = 1,
    NVML_COMPUTE_3_SLICES = 2,
    NVML_COMPUTE_4_SLICES = 3,
    NVML_COMPUTE_7_SLICES = 4,
    NVML_COMPUTE_8_SLICES = 5,
    NVML_COMPUTE_6_SLICES = 6,
    NVML_COMPUTE_1_SLICE_REV1 = 7,
    NVML_COMPUTE_KINDS = 8,
    NVML_ENGINES_SHARED = 0,
};

// NVML's constants of kinds of GPU instance end here.
#define NVML_INSTANCE_KINDS 18u

struct nvml_placement {
    uint32_t start;
    uint32_t size;
};

struct nvml_gpu_instance_profile {
    uint32_t id;
    uint32_t p2p;
    uint32_t slices;
    uint32_t instances;
    uint32_t multiprocessors;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t flow_engines;  // optical flow
    uint64_t memory_mib;
};

// From the second version on: the caller sets `version`, and there is a name.
struct nvml_gpu_instance_profile_v2 {
    uint32_t version;
    uint32_t id;
    uint32_t p2p;
    uint32_t slices;
    uint32_t instances;
    uint32_t multiprocessors;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t flow_engines;
    uint64_t memory_mib;
    char name[96];
};

struct nvml_gpu_instance_profile_v3 {
    uint32_t version;
    uint32_t id;
    uint32_t slices;
    uint32_t instances;
    uint32_t multiprocessors;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t flow_engines;
    uint64_t memory_mib;
    char name[96];
    uint32_t capabilities;  // 1: peer access, 2: graphics
};

struct nvml_gpu_instance_info {
    struct nvml_device *device;
    uint32_t id;
    uint32_t profile_id;
    struct nvml_placement placement;
};

struct nvml_compute_instance_profile {
    uint32_t id;
    uint32_t slices;
    uint32_t instances;
    uint32_t multiprocessors;
    uint32_t copy_engines;  // this and what follows: shared within the GPU instance
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t flow_engines;
};

struct nvml_compute_instance_profile_v2 {
    uint32_t version;
    struct nvml_compute_instance_profile first;
    char name[96];
};

struct nvml_compute_instance_profile_v3 {
    uint32_t version;
    struct nvml_compute_instance_profile first;
    char name[96];
    uint32_t capabilities;
};

// The first version ends before `placement`.
struct nvml_compute_instance_info {
    struct nvml_device *device;  // the card in the first version, the MIG device in the second
    struct nvml_gpu_instance *gpu_instance;
    uint32_t id;
    uint32_t profile_id;
    struct nvml_placement placement;
};

// Of a MIG device.
struct nvml_attributes {
    uint32_t multiprocessors;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t flow_engines;
    uint32_t gpu_instance_slices;
    uint32_t compute_instance_slices;
    uint64_t memory_mib;
};

struct nvml_event_v1 {
    struct nvml_device *device;
    uint64_t type;
    uint64_t data;
};

struct nvml_event {
    struct nvml_device *device;
    uint64_t type;
    uint64_t data;
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

// A versioned structure carries its size and version in its first word.
#define NVML_VERSIONED(type, version) ((uint32_t)sizeof(type) | ((uint32_t)(version) << 24))
#define NVML_MEMORY_V2 NVML_VERSIONED(struct nvml_memory_v2, 2)
#define NVML_GPU_INSTANCE_PROFILE_V2 NVML_VERSIONED(struct nvml_gpu_instance_profile_v2, 2)
#define NVML_GPU_INSTANCE_PROFILE_V3 NVML_VERSIONED(struct nvml_gpu_instance_profile_v3, 3)
#define NVML_COMPUTE_INSTANCE_PROFILE_V2 NVML_VERSIONED(struct nvml_compute_instance_profile_v2, 2)
#define NVML_COMPUTE_INSTANCE_PROFILE_V3 NVML_VERSIONED(struct nvml_compute_instance_profile_v3, 3)

_Static_assert(sizeof(struct nvml_pci_info) == 68, "nvml_pci_info resized");
_Static_assert(offsetof(struct nvml_pci_info, bus_id) == 36, "nvml_pci_info.bus_id moved");
_Static_assert(sizeof(struct nvml_memory) == 24, "nvml_memory resized");
_Static_assert(sizeof(struct nvml_memory_v2) == 40, "nvml_memory_v2 resized");
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvml_process_v1 resized");
_Static_assert(sizeof(struct nvml_process) == 24, "nvml_process resized");
_Static_assert(sizeof(struct nvml_event_v1) == 24, "nvml_event_v1 resized");
_Static_assert(sizeof(struct nvml_event) == 32, "nvml_event resized");
_Static_assert(sizeof(struct nvml_gpu_instance_profile) == 48, "resized");
_Static_assert(sizeof(struct nvml_gpu_instance_profile_v2) == 152, "resized");
_Static_assert(offsetof(struct nvml_gpu_instance_profile_v2, name) == 56, "moved");
_Static_assert(sizeof(struct nvml_gpu_instance_profile_v3) == 152, "resized");
_Static_assert(offsetof(struct nvml_gpu_instance_profile_v3, name) == 48, "moved");
_Static_assert(sizeof(struct nvml_gpu_instance_info) == 24, "resized");
_Static_assert(sizeof(struct nvml_compute_instance_profile) == 36, "resized");
_Static_assert(sizeof(struct nvml_compute_instance_profile_v2) == 136, "resized");
_Static_assert(sizeof(struct nvml_compute_instance_profile_v3) == 140, "resized");
_Static_assert(sizeof(struct nvml_compute_instance_info) == 32, "resized");
_Static_assert(sizeof(struct nvml_attributes) == 40, "resized");

#pragma GCC visibility push(default)

// init.c
int nvmlInit(void);
int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned flags);
int nvmlShutdown(void);

// system.c
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *text, unsigned room);
int nvmlSystemGetNVMLVersion(char *text, unsigned room);
int nvmlSystemGetCudaDriverVersion(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned room);
int nvmlUnitGetCount(unsigned *count);

// device.c
int nvmlDeviceGetCount(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device);
int nvmlDeviceGetHandleByPciBusId(const char *bus_id, struct nvml_device **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device);
int nvmlDeviceGetHandleBySerial(const char *serial, struct nvml_device **device);
int nvmlDeviceGetName(struct nvml_device *device, char *text, unsigned room);
int nvmlDeviceGetUUID(struct nvml_device *device, char *text, unsigned room);
int nvmlDeviceGetSerial(struct nvml_device *device, char *text, unsigned room);
int nvmlDeviceGetPciInfo(struct nvml_device *device, struct nvml_pci_info *pci);
int nvmlDeviceGetPciInfo_v2(struct nvml_device *device, struct nvml_pci_info *pci);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci_info *pci);

// hardware.c
int nvmlDeviceGetIndex(struct nvml_device *device, unsigned *index);
int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned *minor);
int nvmlDeviceGetBrand(struct nvml_device *device, unsigned *brand);
int nvmlDeviceGetMultiGpuBoard(struct nvml_device *device, unsigned *several);
int nvmlDeviceGetArchitecture(struct nvml_device *device, unsigned *number);
int nvmlDeviceGetMemoryBusWidth(struct nvml_device *device, unsigned *bits);
int nvmlDeviceGetClockInfo(struct nvml_device *device, int clock, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(struct nvml_device *device, int clock, unsigned *mhz);
int nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor);
int nvmlDeviceGetComputeMode(struct nvml_device *device, unsigned *mode);
int nvmlDeviceGetPersistenceMode(struct nvml_device *device, unsigned *enabled);
int nvmlDeviceGetDisplayMode(struct nvml_device *device, unsigned *enabled);
int nvmlDeviceGetDisplayActive(struct nvml_device *device, unsigned *enabled);

// mig.c. Where a list is asked for, the caller has room for as many as there can be of the profile;
// `profile` is the `id` of a profile's description, `kind` NVML's constant.
int nvmlDeviceGetMigMode(struct nvml_device *device, unsigned *current, unsigned *pending);
int nvmlDeviceSetMigMode(struct nvml_device *device, unsigned mode, int *activation);
int nvmlDeviceGetGpuInstanceProfileInfo(struct nvml_device *device, unsigned kind,
                                        struct nvml_gpu_instance_profile *info);
int nvmlDeviceGetGpuInstanceProfileInfoV(struct nvml_device *device, unsigned kind,
                                         struct nvml_gpu_instance_profile_v2 *info);
int nvmlDeviceGetGpuInstanceProfileInfoByIdV(struct nvml_device *device, unsigned profile,
                                             struct nvml_gpu_instance_profile_v2 *info);
int nvmlDeviceGetGpuInstancePossiblePlacements(struct nvml_device *device, unsigned profile,
                                               struct nvml_placement *list, unsigned *count);
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct nvml_device *device, unsigned profile,
                                                  struct nvml_placement *list, unsigned *count);
int nvmlDeviceGetGpuInstanceRemainingCapacity(struct nvml_device *device, unsigned profile,
                                              unsigned *count);
int nvmlDeviceCreateGpuInstance(struct nvml_device *device, unsigned profile,
                                struct nvml_gpu_instance **instance);
int nvmlDeviceCreateGpuInstanceWithPlacement(struct nvml_device *device, unsigned profile,
                                             const struct nvml_placement *placement,
                                             struct nvml_gpu_instance **instance);
int nvmlGpuInstanceDestroy(struct nvml_gpu_instance *instance);
int nvmlDeviceGetGpuInstances(struct nvml_device *device, unsigned profile,
                              struct nvml_gpu_instance **list, unsigned *count);
int nvmlDeviceGetGpuInstanceById(struct nvml_device *device, unsigned id,
                                 struct nvml_gpu_instance **instance);
int nvmlGpuInstanceGetInfo(struct nvml_gpu_instance *instance, struct nvml_gpu_instance_info *info);

// compute.c: likewise for compute instances. `engines` is NVML_ENGINES_SHARED.
int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct nvml_gpu_instance *instance, unsigned kind,
                                                 unsigned engines,
                                                 struct nvml_compute_instance_profile *info);
int nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct nvml_gpu_instance *instance, unsigned kind,
                                                  unsigned engines,
                                                  struct nvml_compute_instance_profile_v2 *info);
int nvmlGpuInstanceGetComputeInstancePossiblePlacements(struct nvml_gpu_instance *instance,
                                                        unsigned profile,
                                                        struct nvml_placement *list,
                                                        unsigned *count);
int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(struct nvml_gpu_instance *instance,
                                                       unsigned profile, unsigned *count);
int nvmlGpuInstanceCreateComputeInstance(struct nvml_gpu_instance *instance, unsigned profile,
                                         struct nvml_compute_instance **compute);
int nvmlGpuInstanceCreateComputeInstanceWithPlacement(struct nvml_gpu_instance *instance,
                                                      unsigned profile,
                                                      const struct nvml_placement *placement,
                                                      struct nvml_compute_instance **compute);
int nvmlComputeInstanceDestroy(struct nvml_compute_instance *compute);
int nvmlGpuInstanceGetComputeInstances(struct nvml_gpu_instance *instance, unsigned profile,
                                       struct nvml_compute_instance **list, unsigned *count);
int nvmlGpuInstanceGetComputeInstanceById(struct nvml_gpu_instance *instance, unsigned id,
                                          struct nvml_compute_instance **compute);
int nvmlComputeInstanceGetInfo(struct nvml_compute_instance *compute,
                               struct nvml_compute_instance_info *info);
int nvmlComputeInstanceGetInfo_v2(struct nvml_compute_instance *compute,
                                  struct nvml_compute_instance_info *info);

// mig_device.c: what compute instances are as devices.
int nvmlDeviceIsMigDeviceHandle(struct nvml_device *device, unsigned *is_mig);
int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *device, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *device, unsigned index,
                                        struct nvml_device **mig);
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct nvml_device *mig,
                                                 struct nvml_device **device);
int nvmlDeviceGetGpuInstanceId(struct nvml_device *mig, unsigned *id);
int nvmlDeviceGetComputeInstanceId(struct nvml_device *mig, unsigned *id);
int nvmlDeviceGetAttributes(struct nvml_device *mig, struct nvml_attributes *attributes);
int nvmlDeviceGetAttributes_v2(struct nvml_device *mig, struct nvml_attributes *attributes);

// topology.c
int nvmlDeviceGetTopologyCommonAncestor(struct nvml_device *one, struct nvml_device *other,
                                        int *level);
int nvmlDeviceGetTopologyNearestGpus(struct nvml_device *device, int level, unsigned *count,
                                     struct nvml_device **list);
int nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, struct nvml_device **list);
int nvmlDeviceGetP2PStatus(struct nvml_device *one, struct nvml_device *other, int capability,
                           int *status);
int nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkVersion(struct nvml_device *device, unsigned link, unsigned *version);
int nvmlDeviceGetNvLinkCapability(struct nvml_device *device, unsigned link, int capability,
                                  unsigned *supported);
int nvmlDeviceGetNvLinkRemotePciInfo(struct nvml_device *device, unsigned link,
                                     struct nvml_pci_info *pci);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *device, unsigned link,
                                        struct nvml_pci_info *pci);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *device, unsigned link, int *type);
int nvmlDeviceGetNumaNodeId(struct nvml_device *device, unsigned *node);
int nvmlDeviceGetMemoryAffinity(struct nvml_device *device, unsigned words, unsigned long *nodes,
                                int scope);
int nvmlDeviceGetCpuAffinity(struct nvml_device *device, unsigned words, unsigned long *cpus);
int nvmlDeviceGetCpuAffinityWithinScope(struct nvml_device *device, unsigned words,
                                        unsigned long *cpus, int scope);

// usage.c
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory);
int nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
int nvmlDeviceSetMemoryLimits_v1(struct nvml_device *device, struct nvml_set_memory_limits *limits);
int nvmlDeviceGetMemoryLimits_v1(struct nvml_device *device, struct nvml_memory_limits *limits);
int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilisation *rates);

// processes.c: `count` is the room in and the number of processes out. Too little room:
// NVML_INSUFFICIENT_SIZE, with the number needed.
int nvmlDeviceGetComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                         struct nvml_process_v1 *list);
int nvmlDeviceGetComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list);
int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list);
int nvmlDeviceGetGraphicsRunningProcesses(struct nvml_device *device, unsigned *count,
                                          struct nvml_process_v1 *list);
int nvmlDeviceGetGraphicsRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                             struct nvml_process *list);
int nvmlDeviceGetGraphicsRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                             struct nvml_process *list);
int nvmlDeviceGetMPSComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                            struct nvml_process_v1 *list);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list);

// events.c
int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, unsigned long long *types);
int nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types,
                             struct nvml_event_set *set);
int nvmlEventSetCreate(struct nvml_event_set **set);
int nvmlEventSetFree(struct nvml_event_set *set);
int nvmlEventSetWait(struct nvml_event_set *set, struct nvml_event_v1 *event, unsigned timeout_ms);
int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event, unsigned timeout_ms);

#pragma GCC visibility pop
