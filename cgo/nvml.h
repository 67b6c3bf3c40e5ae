// nvml.h: NVML as it is loaded in this process, and the types of it that the library uses.
//
// Declared from documented facts; nothing here is NVIDIA's text. NVML is the first loaded object
// whose SONAME is libnvidia-ml.so.1; it is never loaded from here. As with the driver, a function
// is taken for NVML's by its address, and WEIR_NVML_REAL never gives NULL. There is no lock: each
// thread that binds the same library writes the same words.
#ifndef WEIR_NVML_H
#define WEIR_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};

// Sizes in bytes.
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

// What the lists of processes hold, in the first version and since.
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned version, mode, numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_t;

_Static_assert(sizeof(nvmlMemory_v2_t) == 40 && sizeof(nvmlProcessInfo_v1_t) == 16 &&
                   sizeof(nvmlProcessInfo_t) == 24 && sizeof(nvmlProcessDetail_v1_t) == 32 &&
                   sizeof(nvmlProcessDetailList_t) == 24,
               "NVML's structures resized");

typedef nvmlReturn_t nvmlShutdown_fn(void);
typedef nvmlReturn_t nvmlDeviceGetUUID_fn(nvmlDevice_t device, char *uuid, unsigned room);
typedef nvmlReturn_t nvmlDeviceGetMemoryInfo_fn(nvmlDevice_t device, nvmlMemory_t *memory);
typedef nvmlReturn_t nvmlDeviceGetMemoryInfo_v2_fn(nvmlDevice_t device, nvmlMemory_v2_t *memory);
typedef nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo_fn(nvmlDevice_t device, nvmlBAR1Memory_t *memory);
typedef nvmlReturn_t nvmlDeviceGetRunningProcessDetailList_fn(nvmlDevice_t device,
                                                              nvmlProcessDetailList_t *list);

// The nine lists are called alike. *count is the room, and then how many there are.
typedef nvmlReturn_t weir_nvml_list_fn(nvmlDevice_t device, unsigned *count, void *infos);
typedef weir_nvml_list_fn nvmlDeviceGetComputeRunningProcesses_fn;
typedef weir_nvml_list_fn nvmlDeviceGetComputeRunningProcesses_v2_fn;
typedef weir_nvml_list_fn nvmlDeviceGetComputeRunningProcesses_v3_fn;
typedef weir_nvml_list_fn nvmlDeviceGetGraphicsRunningProcesses_fn;
typedef weir_nvml_list_fn nvmlDeviceGetGraphicsRunningProcesses_v2_fn;
typedef weir_nvml_list_fn nvmlDeviceGetGraphicsRunningProcesses_v3_fn;
typedef weir_nvml_list_fn nvmlDeviceGetMPSComputeRunningProcesses_fn;
typedef weir_nvml_list_fn nvmlDeviceGetMPSComputeRunningProcesses_v2_fn;
typedef weir_nvml_list_fn nvmlDeviceGetMPSComputeRunningProcesses_v3_fn;

enum weir_nvml {
#define NVML_HOOK(name) WEIR_NVML_##name,
#define NVML_USE(name) WEIR_NVML_##name,
#include "nvml.def"
    WEIR_NVML_COUNT  // also: none of them
};

// The wrappers: weir_nvmlDeviceGetMemoryInfo and so on.
#define NVML_HOOK(name) name##_fn weir_##name;
#define NVML_USE(name)
#include "nvml.def"

// NVML's functions as found so far; NULL where not asked for yet. Tests put stand-ins here.
extern void *weir_nvml_table[WEIR_NVML_COUNT];

// The function of that name, WEIR_NVML_COUNT where it is none of nvml.def.
enum weir_nvml weir_nvml_named(const char *name);

// The wrapper of a function, NULL where it is not hooked.
void *weir_nvml_wrapper(enum weir_nvml fn);

// Looks where NVML is loaded now. Costs microseconds. False where it is not.
bool weir_nvml_refresh(void);

// NVML's function, or NULL where it lacks it or is not loaded.
void *weir_nvml_function(enum weir_nvml fn);

// The same, never NULL: else what a program would have found without this library, or a function
// that returns NVML_ERROR_FUNCTION_NOT_FOUND.
void *weir_nvml_real(enum weir_nvml fn);

#define WEIR_NVML_REAL(name) ((name##_fn *)weir_nvml_real(WEIR_NVML_##name))

#endif
