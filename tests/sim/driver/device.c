// device.c: the GPUs of the machine and their attributes.
#include "driver.h"

#include <string.h>

static const struct sim_gpu_config *gpu(CUdevice device) {
    return &driver.config->gpus[device];
}

// What each call on a device checks: the driver, a place for the answer, the device.
static CUresult check(const void *out, CUdevice device) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    return device_ok(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult rc = check(device, ordinal);
    if (!rc)
        *device = ordinal;
    return rc;
}

API cuDeviceGetCount(int *count) {
    CUresult rc = check(count, 0);
    if (!rc)
        *count = (int)driver.config->gpu_count;
    return rc;
}

API cuDeviceGetName(char *name, int bytes, CUdevice device) {
    CUresult rc = check(name, device);
    if (rc || bytes <= 0)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    size_t length = strlen(gpu(device)->name);
    if (length >= (size_t)bytes)
        length = (size_t)bytes - 1;
    memcpy(name, gpu(device)->name, length);
    name[length] = 0;
    return CUDA_SUCCESS;
}

// The first form gives the UUID of the card, the second that of the MIG device, where it is one.
API cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    CUresult rc = check(uuid, device);
    struct sim_gpu_config card;
    if (rc || sim_gpu_describe(driver.machine, sim_mig_card(driver.cards[device]), &card))
        return rc ? rc : CUDA_ERROR_UNKNOWN;
    memcpy(uuid->bytes, card.uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CUresult rc = check(uuid, device);
    if (!rc)
        memcpy(uuid->bytes, gpu(device)->uuid, sizeof uuid->bytes);
    return rc;
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult rc = check(bytes, device);
    if (!rc)
        *bytes = gpu(device)->memory_bytes;
    return rc;
}

API cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    CUresult rc = check(bytes, device);
    if (!rc) {
        uint64_t total = gpu(device)->memory_bytes;
        *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned int)total;
    }
    return rc;
}

API cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CUresult rc = check(value, device);
    if (rc)
        return rc;
    const struct sim_gpu_config *g = gpu(device);
    switch (attribute) {
#define A(number, what)                                                                            \
    case number:                                                                                   \
        *value = what;                                                                             \
        return CUDA_SUCCESS;
#include "device_attributes.inc"
#undef A
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuDeviceGetProperties(CUdevprop *properties, CUdevice device) {
    CUresult rc = check(properties, device);
    if (rc)
        return rc;
    *properties = (CUdevprop){.maxThreadsPerBlock = 1024,
                              .maxThreadsDim = {1024, 1024, 64},
                              .maxGridSize = {2147483647, 65535, 65535},
                              .sharedMemPerBlock = 49152,
                              .totalConstantMemory = 65536,
                              .SIMDWidth = 32,
                              .memPitch = 2147483647,
                              .regsPerBlock = 65536,
                              .clockRate = (int)gpu(device)->clock_khz,
                              .textureAlign = 512};
    return CUDA_SUCCESS;
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    CUresult rc = check(major, device);
    if (rc || !minor)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *major = (int)gpu(device)->compute_major;
    *minor = (int)gpu(device)->compute_minor;
    return CUDA_SUCCESS;
}

// ---- PCI bus ids: dddd:bb:dd.0 ----

static void put_hex(char **at, uint32_t value, int digits) {
    while (digits--)
        *(*at)++ = "0123456789abcdef"[value >> (4 * digits) & 15];
}

API cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
    CUresult rc = check(id, device);
    if (rc || bytes <= 0)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    char text[16], *at = text;
    put_hex(&at, gpu(device)->pci_domain, 4);
    *at++ = ':';
    put_hex(&at, gpu(device)->pci_bus, 2);
    *at++ = ':';
    put_hex(&at, gpu(device)->pci_device, 2);
    memcpy(at, ".0", 3);
    size_t length = strlen(text);
    if (length >= (size_t)bytes)
        length = (size_t)bytes - 1;
    memcpy(id, text, length);
    id[length] = 0;
    return CUDA_SUCCESS;
}

// Reads hexadecimal digits; false where there are none, or more than eight.
static bool get_hex(const char **at, uint32_t *value) {
    const char *start = *at;
    *value = 0;
    for (;; ++*at) {
        char c = **at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return *at > start && *at <= start + 8;
        *value = *value << 4 | (uint32_t)digit;
    }
}

// Accepts [domain]:bus:device.function, domain:bus:device and bus:device.function.
API cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    CUresult rc = check(device, 0);
    if (rc || !id)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    uint32_t field[3] = {0, 0, 0}, function;
    unsigned fields = 0;
    do {
        if (fields == 3 || !get_hex(&id, &field[fields++]))
            return CUDA_ERROR_INVALID_VALUE;
    } while (*id == ':' && id++);
    if (*id == '.' && (id++, !get_hex(&id, &function) || function))
        return CUDA_ERROR_INVALID_VALUE;
    if (*id || fields < 2)
        return CUDA_ERROR_INVALID_VALUE;
    const uint32_t *last = &field[fields - 2];
    uint32_t domain = fields == 3 ? field[0] : 0;
    for (uint32_t i = 0; i < driver.config->gpu_count; i++) {
        const struct sim_gpu_config *g = &driver.config->gpus[i];
        if (g->pci_domain == domain && g->pci_bus == last[0] && g->pci_device == last[1]) {
            *device = (CUdevice)i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

// ---- Between devices ----

API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CUresult rc = check(can, device);
    if (rc || !device_ok(peer))
        return rc ? rc : CUDA_ERROR_INVALID_DEVICE;
    *can =
        sim_peer_ok(sim_machine_config(driver.machine), driver.cards[device], driver.cards[peer]);
    return CUDA_SUCCESS;
}

// 1: performance rank (0 is best), 2: access, 3: native atomics, 4: arrays. Only NVLink has the
// latter two.
API cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                            CUdevice peer) {
    CUresult rc = check(value, device);
    if (rc || !device_ok(peer))
        return rc ? rc : CUDA_ERROR_INVALID_DEVICE;
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute < 1 || attribute > 4)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_config *machine = sim_machine_config(driver.machine);
    unsigned from = driver.cards[device], to = driver.cards[peer];
    bool ok = sim_peer_ok(machine, from, to), linked = ok && machine->nvlinks[from][to];
    *value = attribute == 1 ? !linked : attribute == 2 ? ok : linked;
    return CUDA_SUCCESS;
}
