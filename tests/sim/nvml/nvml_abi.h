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
    NVML_OUT_OF_MEMORY = 20,
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

struct nvml_device;     // a handle: points at one GPU's entry
struct nvml_event_set;  // a handle: points at an allocated set

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

_Static_assert(sizeof(struct nvml_pci_info) == 68, "nvml_pci_info resized");
_Static_assert(offsetof(struct nvml_pci_info, bus_id) == 36, "nvml_pci_info.bus_id moved");
_Static_assert(sizeof(struct nvml_memory) == 24, "nvml_memory resized");
_Static_assert(sizeof(struct nvml_memory_v2) == 40, "nvml_memory_v2 resized");
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvml_process_v1 resized");
_Static_assert(sizeof(struct nvml_process) == 24, "nvml_process resized");
_Static_assert(sizeof(struct nvml_event_v1) == 24, "nvml_event_v1 resized");
_Static_assert(sizeof(struct nvml_event) == 32, "nvml_event resized");

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
int nvmlDeviceGetIndex(struct nvml_device *device, unsigned *index);
int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned *minor);
int nvmlDeviceGetPciInfo(struct nvml_device *device, struct nvml_pci_info *pci);
int nvmlDeviceGetPciInfo_v2(struct nvml_device *device, struct nvml_pci_info *pci);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci_info *pci);
int nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor);
int nvmlDeviceGetComputeMode(struct nvml_device *device, unsigned *mode);
int nvmlDeviceGetPersistenceMode(struct nvml_device *device, unsigned *enabled);
int nvmlDeviceGetDisplayMode(struct nvml_device *device, unsigned *enabled);
int nvmlDeviceGetDisplayActive(struct nvml_device *device, unsigned *enabled);
int nvmlDeviceGetMigMode(struct nvml_device *device, unsigned *current, unsigned *pending);
int nvmlDeviceIsMigDeviceHandle(struct nvml_device *device, unsigned *is_mig);
int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *device, unsigned *count);

// usage.c
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory);
int nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
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
