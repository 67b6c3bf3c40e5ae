// nvml_report.c: what a program is told by NVML: of memory the same as the driver's reports say
// (report.h), and under a cap the processes of its own container only.
//
// A program may use NVML and never CUDA, as monitors do: then its first question begins the
// session. Which GPU a handle means is told by its UUID. Without a cap, and for a handle that is no
// GPU of the agent's naming, NVML's answer is given as it is.
#include <string.h>

#include "hooks.h"
#include "members.h"
#include "nvml.h"
#include "report.h"

#define UUID_TEXT_BYTES 96u
// Processes on one GPU; a list that is longer is left as it is.
#define PROCESSES_MAX 8192u

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Reads "GPU-" or "MIG-" and 32 hexadecimal digits with dashes among them. 0, or EINVAL.
static int read_uuid(const char *text, uint8_t uuid[16]) {
    unsigned digits = 0;
    while (*text && *text != '-')
        text++;
    for (; *text; text++) {
        int digit = hex_digit(*text);
        if (*text == '-')
            continue;
        if (digit < 0 || digits == 32)
            return EINVAL;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | digit : digit);
        digits++;
    }
    return digits == 32 ? 0 : EINVAL;
}

// Finds out about the GPU behind a handle. 0, or EINVAL where NVML's own answer stands.
static int ask(nvmlDevice_t device, int want_free, struct weir_report *report) {
    char text[UUID_TEXT_BYTES];
    uint8_t uuid[16];
    if (weir_passing() || WEIR_NVML_REAL(nvmlDeviceGetUUID)(device, text, sizeof(text)) != 0)
        return EINVAL;
    text[sizeof(text) - 1] = 0;
    int rc = read_uuid(text, uuid);
    if (rc == 0)
        weir_report_uuid(uuid, want_free, report);
    return rc;
}

// Lowers what NVML has answered to what the cap leaves.
static void lower(nvmlDevice_t device, unsigned long long *total, unsigned long long *free_bytes,
                  unsigned long long *used) {
    struct weir_report report;
    if (ask(device, 1, &report) != 0 || report.cap_bytes == WEIR_UNLIMITED)
        return;
    uint64_t total_now = *total, free_now = *free_bytes;
    weir_report_lower(&report, &free_now, &total_now);
    *total = total_now;
    *free_bytes = free_now;
    *used = *total > *free_bytes ? *total - *free_bytes : 0;
}

nvmlReturn_t weir_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t code = WEIR_NVML_REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (code == NVML_SUCCESS && memory)
        lower(device, &memory->total, &memory->free, &memory->used);
    return code;
}

// The second form tells apart what the driver keeps for itself; under a cap that is nobody's loss.
nvmlReturn_t weir_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t code = WEIR_NVML_REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (code != NVML_SUCCESS || !memory)
        return code;
    unsigned long long total = memory->total;
    lower(device, &memory->total, &memory->free, &memory->used);
    if (memory->total != total)
        memory->reserved = 0;
    return code;
}

nvmlReturn_t weir_nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    nvmlReturn_t code = WEIR_NVML_REAL(nvmlDeviceGetBAR1MemoryInfo)(device, memory);
    if (code == NVML_SUCCESS && memory)
        lower(device, &memory->bar1Total, &memory->bar1Free, &memory->bar1Used);
    return code;
}

// Whether a list about this device is to be narrowed.
static int narrowed(nvmlDevice_t device) {
    struct weir_report report;
    return ask(device, 0, &report) == 0 && report.cap_bytes != WEIR_UNLIMITED;
}

// Moves the container's own processes to the front of a list, whose entries begin with the pid.
// How many they are.
static unsigned keep_members(void *list, unsigned count, size_t entry_bytes) {
    char *entries = list;
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned pid;
        memcpy(&pid, entries + i * entry_bytes, sizeof(pid));
        if (!weir_is_member(pid))
            continue;
        memmove(entries + kept * entry_bytes, entries + i * entry_bytes, entry_bytes);
        kept++;
    }
    return kept;
}

// Asks NVML with room for all, so that what a caller is told of the room that it needs counts the
// kept ones only.
static nvmlReturn_t list_members(weir_nvml_list_fn *real, nvmlDevice_t device, unsigned *count,
                                 void *infos, size_t entry_bytes) {
    if (!count || (*count && !infos) || !narrowed(device))
        return real(device, count, infos);
    unsigned found = PROCESSES_MAX;
    char *all = weir_sys_map(PROCESSES_MAX * entry_bytes);
    if (!all)
        return real(device, count, infos);
    nvmlReturn_t code = real(device, &found, all);
    if (code == NVML_SUCCESS && found <= PROCESSES_MAX) {
        found = keep_members(all, found, entry_bytes);
        if (found <= *count)
            memcpy(infos, all, found * entry_bytes);
        else
            code = NVML_ERROR_INSUFFICIENT_SIZE;
        *count = found;
    } else {
        code = real(device, count, infos);
    }
    weir_sys_unmap(all, PROCESSES_MAX * entry_bytes);
    return code;
}

#define LIST(name, type)                                                                           \
    nvmlReturn_t weir_##name(nvmlDevice_t device, unsigned *count, void *infos) {                  \
        return list_members(WEIR_NVML_REAL(name), device, count, infos, sizeof(type));             \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

// The caller's own room is used: where it is too little, the number that comes back counts all.
nvmlReturn_t weir_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                        nvmlProcessDetailList_t *list) {
    nvmlReturn_t code = WEIR_NVML_REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    if (code == NVML_SUCCESS && list && list->procArray && narrowed(device))
        list->numProcArrayEntries = keep_members(list->procArray, list->numProcArrayEntries,
                                                 sizeof(nvmlProcessDetail_v1_t));
    return code;
}
