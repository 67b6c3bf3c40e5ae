// Which GPUs there are and what they are: handles, names, addresses, fixed properties.
#include "query.h"
#include "text.h"

#include <ctype.h>
#include <string.h>

#define UUID_BYTES 41  // "GPU-8-4-4-4-12" and the zero byte
#define SERIAL_DIGITS 13

int nvmlDeviceGetCount_v2(unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = query.config->gpu_count;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (device == NULL || index >= query.config->gpu_count) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *device = sim_nvml_handle(index);
    return sim_nvml_end(sim_gpu_lost(query.machine, index) ? NVML_GPU_IS_LOST : NVML_OK);
}

int nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

// ---- Identity as text ----

static void write_uuid(const struct sim_gpu_config *gpu, const char *prefix,
                       char text[UUID_BYTES]) {
    struct sim_text out = sim_text_begin(text, UUID_BYTES);
    sim_text_string(&out, prefix);
    for (unsigned i = 0; i < sizeof(gpu->uuid); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            sim_text_char(&out, '-');
        }
        sim_text_hex(&out, gpu->uuid[i], 2, sim_text_lower);
    }
}

// A serial number made of the UUID: the machine has none of its own.
static void write_serial(const struct sim_gpu_config *gpu, char text[SERIAL_DIGITS + 1]) {
    struct sim_text out = sim_text_begin(text, SERIAL_DIGITS + 1);
    for (unsigned i = 0; i < SERIAL_DIGITS; i++) {
        sim_text_decimal(&out, gpu->uuid[sizeof(gpu->uuid) - SERIAL_DIGITS + i] % 10);
    }
}

static void write_bus_id(const struct sim_gpu_config *gpu, unsigned domain_digits, char *text,
                         size_t room) {
    struct sim_text out = sim_text_begin(text, room);
    sim_text_hex(&out, gpu->pci_domain, domain_digits, sim_text_upper);
    sim_text_char(&out, ':');
    sim_text_hex(&out, gpu->pci_bus, 2, sim_text_upper);
    sim_text_char(&out, ':');
    sim_text_hex(&out, gpu->pci_device, 2, sim_text_upper);
    sim_text_string(&out, ".0");
}

// Reads one hexadecimal number and moves on behind it. Returns false where there is none.
static bool read_hex(const char **text, uint32_t *value) {
    const char *start = *text;
    *value = 0;
    for (; isxdigit((unsigned char)**text) && *text - start < 8; (*text)++) {
        unsigned digit = isdigit((unsigned char)**text)
                             ? (unsigned)(**text - '0')
                             : (unsigned)(tolower((unsigned char)**text) - 'a' + 10);
        *value = *value << 4 | digit;
    }
    return *text > start;
}

// Whether "domain:bus:device.function", or the same without domain, is this GPU's address.
static bool at_bus_id(const struct sim_gpu_config *gpu, const char *text) {
    uint32_t parts[3];
    unsigned count = 0;
    while (count < 3 && read_hex(&text, &parts[count])) {
        count++;
        if (*text != ':') {
            break;
        }
        text++;
    }
    if (count < 2 || (strcmp(text, ".0") != 0 && *text != '\0')) {
        return false;
    }
    uint32_t domain = count == 3 ? parts[0] : 0;
    return domain == gpu->pci_domain && parts[count - 2] == gpu->pci_bus &&
           parts[count - 1] == gpu->pci_device;
}

static bool has_uuid(const struct sim_gpu_config *gpu, const char *text) {
    char uuid[UUID_BYTES];
    write_uuid(gpu, "GPU-", uuid);
    return strcmp(uuid, text) == 0;
}

static bool has_serial(const struct sim_gpu_config *gpu, const char *text) {
    char serial[SERIAL_DIGITS + 1];
    write_serial(gpu, serial);
    return strcmp(serial, text) == 0;
}

static int find(bool (*matches)(const struct sim_gpu_config *, const char *), const char *text,
                struct nvml_device **device) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (text == NULL || device == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    for (unsigned i = 0; i < query.config->gpu_count; i++) {
        if (matches(&query.config->gpus[i], text)) {
            *device = sim_nvml_handle(i);
            return sim_nvml_end(NVML_OK);
        }
    }
    return sim_nvml_end(NVML_NOT_FOUND);
}

static int find_mig(const char *uuid, struct nvml_device **device) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    for (unsigned unit = SIM_GPUS_MAX; device != NULL && unit < SIM_UNITS_MAX; unit++) {
        char text[UUID_BYTES];
        if (sim_gpu_describe(query.machine, unit, &query.device) == 0) {
            write_uuid(&query.device, "MIG-", text);
            if (strcmp(text, uuid) == 0) {
                *device = sim_nvml_handle(unit);
                return sim_nvml_end(NVML_OK);
            }
        }
    }
    return sim_nvml_end(device != NULL ? NVML_NOT_FOUND : NVML_INVALID_ARGUMENT);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device) {
    bool mig = uuid != NULL && strncmp(uuid, "MIG-", 4) == 0;
    return mig ? find_mig(uuid, device) : find(has_uuid, uuid, device);
}

int nvmlDeviceGetHandleBySerial(const char *serial, struct nvml_device **device) {
    return find(has_serial, serial, device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device) {
    return find(at_bus_id, bus_id, device);
}

int nvmlDeviceGetHandleByPciBusId(const char *bus_id, struct nvml_device **device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

int nvmlDeviceGetName(struct nvml_device *device, char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    return sim_nvml_end(sim_nvml_copy_text(query.gpu->name, text, room));
}

int nvmlDeviceGetUUID(struct nvml_device *device, char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    char uuid[UUID_BYTES];
    write_uuid(query.gpu, query.unit < SIM_GPUS_MAX ? "GPU-" : "MIG-", uuid);
    return sim_nvml_end(sim_nvml_copy_text(uuid, text, room));
}

int nvmlDeviceGetSerial(struct nvml_device *device, char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    char serial[SERIAL_DIGITS + 1];
    write_serial(query.gpu, serial);
    return sim_nvml_end(sim_nvml_copy_text(serial, text, room));
}

void sim_nvml_describe_pci(const struct sim_gpu_config *gpu, struct nvml_pci_info *pci) {
    *pci = (struct nvml_pci_info){
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
    };
    write_bus_id(gpu, 4, pci->bus_id_legacy, sizeof(pci->bus_id_legacy));
    write_bus_id(gpu, 8, pci->bus_id, sizeof(pci->bus_id));
}

// The three versions of the PCI answer are beginnings of one structure, each longer than the last.
static int pci_info(struct nvml_device *device, struct nvml_pci_info *pci, size_t bytes) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (pci == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    struct nvml_pci_info whole;
    sim_nvml_describe_pci(query.gpu, &whole);
    memcpy(pci, &whole, bytes);
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetPciInfo(struct nvml_device *device, struct nvml_pci_info *pci) {
    return pci_info(device, pci, offsetof(struct nvml_pci_info, subsystem_id));
}

int nvmlDeviceGetPciInfo_v2(struct nvml_device *device, struct nvml_pci_info *pci) {
    return pci_info(device, pci, offsetof(struct nvml_pci_info, bus_id));
}

int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci_info *pci) {
    return pci_info(device, pci, sizeof(*pci));
}
