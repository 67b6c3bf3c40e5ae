// image.c: the PTX text in what a program gives as code, and the compiler's options.
//
// An image is PTX text, or a fat binary that holds some uncompressed; of its texts the newest that
// the device can run is taken, else the first. What the code takes of the card is the bytes of that
// text without its zero.
#define _GNU_SOURCE
#include "code.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (256u << 20)

// ---- Fat binaries ----

#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define ELF_MAGIC 0x464c457fu
#define FATBIN_PTX 1u
#define FATBIN_COMPRESSED 0x2000u

struct fatbin_wrapper {
    uint32_t magic, version;
    const void *fatbin;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;  // of all entries
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;  // of the payload, behind the header
    uint32_t unused[3];
    uint32_t capability;  // major * 10 + minor
    uint32_t name[2];
    uint64_t flags;
};

// How well an entry serves a device; 0: it holds no text.
static uint32_t merit(const struct fatbin_entry *entry, uint32_t capability) {
    if (entry->kind != FATBIN_PTX || entry->flags & FATBIN_COMPRESSED)
        return 0;
    return entry->capability <= capability ? 2 + entry->capability : 1;
}

// Of `left` bytes of entries.
static CUresult fatbin_text(const unsigned char *at, uint64_t left, uint32_t capability,
                            struct image *image) {
    uint32_t best = 0;
    while (left >= sizeof(struct fatbin_entry)) {
        struct fatbin_entry entry;
        memcpy(&entry, at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        if (merit(&entry, capability) > best) {
            best = merit(&entry, capability);
            const char *text = (const char *)at + entry.header_bytes;
            size_t bytes = strnlen(text, (size_t)entry.bytes);
            *image = (struct image){.text = text, .bytes = bytes};
        }
        at += entry.header_bytes + entry.bytes;
        left -= entry.header_bytes + entry.bytes;
    }
    return best ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult image_find_fatbin(const void *data, size_t room, uint32_t gpu, struct image *image) {
    const struct sim_gpu_config *device = &driver.config->gpus[gpu];
    struct fatbin fatbin;
    if (room < sizeof fatbin)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&fatbin, data, sizeof fatbin);
    if (fatbin.magic != FATBIN_MAGIC || fatbin.header_bytes < sizeof fatbin ||
        fatbin.bytes > FILE_BYTES_MAX || fatbin.header_bytes + fatbin.bytes > room)
        return CUDA_ERROR_INVALID_IMAGE;
    return fatbin_text((const unsigned char *)data + fatbin.header_bytes, fatbin.bytes,
                       device->compute_major * 10 + device->compute_minor, image);
}

bool image_is_elf(const void *data, size_t bytes) {
    uint32_t magic;
    if (bytes < sizeof magic)
        return false;
    memcpy(&magic, data, sizeof magic);
    return magic == ELF_MAGIC;
}

CUresult image_find(const void *data, uint32_t gpu, struct image *image) {
    uint32_t magic = 0;
    // A text may be shorter than the word.
    for (unsigned i = 0; i < 4; i++) {
        unsigned char byte = ((const unsigned char *)data)[i];
        magic |= (uint32_t)byte << 8 * i;
        if (!byte)
            break;
    }
    if (magic == FATBIN_WRAPPER_MAGIC) {
        struct fatbin_wrapper wrapper;
        memcpy(&wrapper, data, sizeof wrapper);
        return wrapper.fatbin ? image_find_fatbin(wrapper.fatbin, SIZE_MAX, gpu, image)
                              : CUDA_ERROR_INVALID_IMAGE;
    }
    if (magic == FATBIN_MAGIC)
        return image_find_fatbin(data, SIZE_MAX, gpu, image);
    if (magic == ELF_MAGIC)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    size_t bytes = strnlen(data, SIM_PTX_TEXT_BYTES_MAX);
    *image = (struct image){.text = data, .bytes = bytes};
    return CUDA_SUCCESS;
}

uint64_t image_charge(size_t bytes) {
    return (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

CUresult image_read(const char *path, char **data, size_t *bytes) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult rc = CUDA_ERROR_INVALID_IMAGE;
    *data = NULL;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size < FILE_BYTES_MAX) {
        size_t done = 0;
        *bytes = (size_t)status.st_size;
        *data = malloc(*bytes + 1);
        rc = *data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        while (!rc && done < *bytes) {
            ssize_t n = read(fd, *data + done, *bytes - done);
            if (n <= 0)
                rc = CUDA_ERROR_INVALID_IMAGE;
            done += n > 0 ? (size_t)n : 0;
        }
        if (!rc)
            (*data)[*bytes] = 0;
    }
    close(fd);
    if (rc)
        free(*data);
    return rc;
}

// ---- The compiler's options: all are known, those for its logs are heeded ----

CUresult jit_check(const struct jit *jit) {
    if (jit->count && (!jit->options || !jit->values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < jit->count; i++)
        if ((unsigned)jit->options[i] >= CU_JIT_NUM_OPTIONS)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Writes a log where the options ask for one, and its length in the place of its size.
static void write_log(const struct jit *jit, CUjit_option buffer_option, CUjit_option size_option,
                      const char *log) {
    char *buffer = NULL;
    void **size = NULL;
    for (unsigned i = 0; i < jit->count; i++) {
        if (jit->options[i] == buffer_option)
            buffer = jit->values[i];
        else if (jit->options[i] == size_option)
            size = &jit->values[i];
    }
    if (!size)
        return;
    // An unsigned int in the place of a pointer: its low half counts.
    size_t room = (unsigned)(uintptr_t)*size, length = strlen(log);
    if (!buffer || !room) {
        *size = NULL;
        return;
    }
    length = length < room ? length : room - 1;
    memcpy(buffer, log, length);
    buffer[length] = 0;
    *size = (void *)(uintptr_t)(length ? length + 1 : 0);
}

void jit_write_log(const struct jit *jit, const char *log) {
    write_log(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, log);
    write_log(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
}
