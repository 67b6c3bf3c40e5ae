// What the simulated NVML says of the driver, of itself and of processes' names.
#include "query.h"
#include "text.h"

#include <fcntl.h>
#include <unistd.h>

// NVML's own version begins with the major version of CUDA that it came with.
#define NVML_VERSION_PREFIX "12."

static const struct {
    int code;
    const char *text;
} errors[] = {
    {NVML_OK, "success"},
    {NVML_UNINITIALISED, "not initialised"},
    {NVML_INVALID_ARGUMENT, "invalid argument"},
    {NVML_NOT_SUPPORTED, "not supported by the simulated GPU"},
    {NVML_NO_PERMISSION, "no permission"},
    {NVML_NOT_FOUND, "not found"},
    {NVML_INSUFFICIENT_SIZE, "the buffer is too small"},
    {NVML_NO_DRIVER, "driver not loaded: no simulated machine is up"},
    {NVML_TIMEOUT, "timeout"},
    {NVML_GPU_IS_LOST, "the GPU is lost: it fell off the bus, or the simulated machine is down"},
    {NVML_OPERATING_SYSTEM, "the operating system refused"},
    {NVML_IN_USE, "in use"},
    {NVML_OUT_OF_MEMORY, "out of memory"},
    {NVML_INSUFFICIENT_RESOURCES, "no room beside what is there"},
    {NVML_VERSION_MISMATCH, "unknown version of a structure"},
};

const char *nvmlErrorString(int code) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            return errors[i].text;
        }
    }
    return "unknown error";
}

int sim_nvml_copy_text(const char *from, char *to, unsigned room) {
    if (to == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    struct sim_text text = sim_text_begin(to, room);
    sim_text_string(&text, from);
    return text.length < room ? NVML_OK : NVML_INSUFFICIENT_SIZE;
}

int nvmlSystemGetDriverVersion(char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    return sim_nvml_end(sim_nvml_copy_text(query.config->driver_version, text, room));
}

int nvmlSystemGetNVMLVersion(char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    char version[sizeof(NVML_VERSION_PREFIX) + sizeof(query.config->driver_version)];
    struct sim_text whole = sim_text_begin(version, sizeof(version));
    sim_text_string(&whole, NVML_VERSION_PREFIX);
    sim_text_string(&whole, query.config->driver_version);
    return sim_nvml_end(sim_nvml_copy_text(version, text, room));
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (version == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *version = (int)query.config->cuda_version;
    return sim_nvml_end(NVML_OK);
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

// The first word of the process's command line, cut to the room there is.
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned room) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    sim_nvml_end(NVML_OK);
    if (text == NULL || room == 0) {
        return NVML_INVALID_ARGUMENT;
    }
    char file[64];
    struct sim_text name = sim_text_begin(file, sizeof(file));
    sim_text_string(&name, "/proc/");
    sim_text_decimal(&name, pid);
    sim_text_string(&name, "/cmdline");
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NVML_NOT_FOUND;
    }
    ssize_t length = read(fd, text, room - 1);
    close(fd);
    if (length < 0) {
        return NVML_UNKNOWN;
    }
    text[length] = '\0';
    return NVML_OK;
}

// Units are chassis of several GPUs; the simulated machine has none.
int nvmlUnitGetCount(unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = 0;
    return sim_nvml_end(NVML_OK);
}
