// shared.c: created memory, mappings, and memory between processes, of the tests' driver. Handles
// of created memory are small numbers from 0 on that are given out anew at once. A descriptor is a
// file of memory; a handle of 64 bytes tells the process and the allocation.
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../hooks.h"
#include "driver.h"

#define MEMORIES 4096
#define NOBODYS_MAGIC 0x6e6f626f6479ull
// Where what is opened is mapped, each at a place of its own that is used again.
#define OPENED_AT 0x200000000000ull

struct memory {
    int references;
    int mappings;
    int gpu;  // -1: on the host
    int imported;
    uint64_t bytes;
    uint64_t serial;
    uint64_t inode;  // of its descriptors; 0 before the first
    int fd;
};

struct mapping {
    uint64_t address, bytes;
    int memory;  // number + 1; 0: none
};

// What another process's handle of 64 bytes tells. The rest is zero.
struct ticket {
    uint64_t magic;
    uint64_t process;
    uint64_t serial;
    uint64_t bytes;
    uint64_t gpu;
    uint64_t rest[3];
};

struct opened {
    struct ticket ticket;
    uint64_t address;
    int count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory memories[MEMORIES];
static struct mapping mappings[MEMORIES];
static struct opened openings[MEMORIES];
static uint64_t serials;

static int used(const struct memory *memory) {
    return memory->references || memory->mappings;
}

static void end_unused(struct memory *memory) {
    if (used(memory))
        return;
    if (memory->gpu >= 0 && !memory->imported)
        test_driver_give(memory->gpu, memory->bytes);
    if (memory->inode)
        close(memory->fd);
    memset(memory, 0, sizeof(*memory));
}

static struct memory *make(int gpu, uint64_t bytes) {
    for (int i = 0; i < MEMORIES; i++)
        if (!used(&memories[i])) {
            memories[i] =
                (struct memory){.references = 1, .gpu = gpu, .bytes = bytes, .serial = ++serials};
            return &memories[i];
        }
    return NULL;
}

static struct memory *memory_of(CUmemGenericAllocationHandle handle) {
    return handle < MEMORIES && used(&memories[handle]) ? &memories[handle] : NULL;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *prop, uint64_t flags) {
    int code = test_driver_failure();
    test_driver_dawdle();
    if (code)
        return code;
    int on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (flags || !bytes || bytes % TEST_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (on_device && !test_driver_take(prop->location.id, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    struct memory *memory = make(on_device ? prop->location.id : -1, bytes);
    pthread_mutex_unlock(&lock);
    *handle = (uint64_t)(memory - memories);
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle) {
    int code = test_driver_failure();
    if (code)
        return code;
    pthread_mutex_lock(&lock);
    struct memory *memory = memory_of(handle);
    int known = memory && memory->references;
    if (known) {
        memory->references--;
        end_unused(memory);
    }
    pthread_mutex_unlock(&lock);
    test_driver_dawdle();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map(CUdeviceptr pointer, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, uint64_t flags) {
    int code = test_driver_failure();
    if (code)
        return code;
    pthread_mutex_lock(&lock);
    struct memory *memory = memory_of(handle);
    int fits = memory && !flags && offset + bytes <= memory->bytes;
    for (int i = 0; fits && i < MEMORIES; i++)
        if (!mappings[i].memory) {
            mappings[i] = (struct mapping){pointer, bytes, (int)handle + 1};
            memory->mappings++;
            break;
        }
    pthread_mutex_unlock(&lock);
    test_driver_dawdle();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unmap(CUdeviceptr pointer, size_t bytes) {
    int code = test_driver_failure(), found = 0;
    if (code)
        return code;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MEMORIES; i++) {
        struct mapping *mapping = &mappings[i];
        if (!mapping->memory || mapping->address < pointer || mapping->address >= pointer + bytes)
            continue;
        struct memory *memory = &memories[mapping->memory - 1];
        memory->mappings--;
        end_unused(memory);
        *mapping = (struct mapping){0};
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    test_driver_dawdle();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult retain(CUmemGenericAllocationHandle *handle, void *address) {
    uint64_t at = (uint64_t)(uintptr_t)address;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MEMORIES; i++)
        if (mappings[i].memory && at - mappings[i].address < mappings[i].bytes) {
            *handle = (uint64_t)mappings[i].memory - 1;
            memories[*handle].references++;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    const struct memory *memory = memory_of(handle);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    int on_device = memory->gpu >= 0;
    memset(prop, 0, sizeof(*prop));
    prop->type = 1;
    prop->location.type = on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_DEVICE + 1;
    prop->location.id = on_device ? memory->gpu : 0;
    return CUDA_SUCCESS;
}

// The file of a memory: as long as the memory, with the GPU's number in it.
static int file_of(struct memory *memory) {
    struct stat status;
    if (!memory->inode) {
        memory->fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (ftruncate(memory->fd, (off_t)memory->bytes) != 0 ||
            pwrite(memory->fd, &memory->gpu, sizeof(memory->gpu), 0) != sizeof(memory->gpu))
            return -1;
        fstat(memory->fd, &status);
        memory->inode = status.st_ino;
    }
    return dup(memory->fd);
}

static struct ticket ticket_of(uint64_t serial, uint64_t bytes, int gpu) {
    return (struct ticket){NOBODYS_MAGIC, (uint64_t)getpid(), serial, bytes, (uint64_t)gpu, {0}};
}

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle, int type,
                       uint64_t flags) {
    pthread_mutex_lock(&lock);
    struct memory *memory = memory_of(handle);
    int known = memory && !flags;
    if (known && type == CU_MEM_HANDLE_TYPE_FABRIC) {
        struct ticket ticket = ticket_of(memory->serial, memory->bytes, memory->gpu);
        memcpy(shareable, &ticket, sizeof(ticket));
    } else if (known) {
        *(int *)shareable = test_driver.nodes_only ? open("/dev/null", O_RDWR) : file_of(memory);
    }
    pthread_mutex_unlock(&lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
    struct stat status = {0};
    uint64_t bytes = TEST_GRANULARITY;
    int gpu = 0, fd = (int)(intptr_t)shareable, code = test_driver_failure();
    struct memory *memory = NULL;
    if (code)
        return code;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        const struct ticket *ticket = shareable;
        bytes = ticket->bytes;
        gpu = (int)ticket->gpu;
        if (ticket->magic != NOBODYS_MAGIC)
            return CUDA_ERROR_INVALID_VALUE;
    } else if (fstat(fd, &status) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    } else if (S_ISREG(status.st_mode)) {
        bytes = (uint64_t)status.st_size;
        if (pread(fd, &gpu, sizeof(gpu), 0) != sizeof(gpu))
            return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MEMORIES && S_ISREG(status.st_mode); i++)
        if (used(&memories[i]) && memories[i].inode == status.st_ino)
            memory = &memories[i];
    if (memory) {
        memory->references++;
    } else {
        memory = make(gpu, bytes);
        memory->imported = 1;
        memory->inode = S_ISREG(status.st_mode) ? status.st_ino : 0;
        memory->fd = memory->inode ? dup(fd) : -1;
    }
    pthread_mutex_unlock(&lock);
    *handle = (uint64_t)(memory - memories);
    return CUDA_SUCCESS;
}

static CUresult ipc_get(CUipcMemHandle *handle, CUdeviceptr pointer) {
    uint64_t bytes, serial;
    int gpu;
    if (!test_driver_block(pointer, &bytes, &serial, &gpu))
        return CUDA_ERROR_INVALID_VALUE;
    struct ticket ticket = ticket_of(serial << 32, bytes, gpu);
    memcpy(handle, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
    int code = test_driver_failure();
    struct ticket ticket;
    struct opened *place = NULL;
    memcpy(&ticket, &handle, sizeof(ticket));
    if (code || ticket.magic != NOBODYS_MAGIC || flags > 1)
        return code ? code : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MEMORIES; i++) {
        if (openings[i].count && memcmp(&openings[i].ticket, &ticket, sizeof(ticket)) == 0)
            place = &openings[i];
        else if (!openings[i].count && !place)
            place = &openings[i];
    }
    if (!place->count)
        *place = (struct opened){ticket, OPENED_AT + ((uint64_t)(place - openings) << 30), 0};
    place->count++;
    *pointer = place->address;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult ipc_close(CUdeviceptr pointer) {
    int code = test_driver_failure();
    CUresult result = code ? code : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; !code && i < MEMORIES; i++)
        if (openings[i].count && openings[i].address == pointer) {
            openings[i].count--;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult range(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    uint64_t serial;
    int gpu;
    *base = pointer;
    for (int i = 0; i < MEMORIES; i++)
        if (openings[i].count && openings[i].address == pointer) {
            *bytes = openings[i].ticket.bytes;
            return CUDA_SUCCESS;
        }
    return test_driver_block(pointer, bytes, &serial, &gpu) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

static CUresult attribute(void *value, int what, CUdeviceptr pointer) {
    for (int i = 0; i < MEMORIES; i++)
        if (what == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && openings[i].count &&
            openings[i].address == pointer) {
            *(int *)value = (int)openings[i].ticket.gpu;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult import_external(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    int code = test_driver_failure();
    if (code || desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return code ? code : CUDA_ERROR_INVALID_VALUE;
    *memory = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult destroy_external(CUexternalMemory memory) {
    int code = test_driver_failure();
    if (!code)
        free(memory);
    return code;
}

void test_shared_install(void) {
    INSTALL(cuMemCreate, create);
    INSTALL(cuMemRelease, release);
    INSTALL(cuMemMap, map);
    INSTALL(cuMemUnmap, unmap);
    INSTALL(cuMemRetainAllocationHandle, retain);
    INSTALL(cuMemGetAllocationPropertiesFromHandle, properties);
    INSTALL(cuMemExportToShareableHandle, export);
    INSTALL(cuMemImportFromShareableHandle, import);
    INSTALL(cuIpcGetMemHandle, ipc_get);
    INSTALL(cuIpcOpenMemHandle_v2, ipc_open);
    INSTALL(cuIpcCloseMemHandle, ipc_close);
    INSTALL(cuMemGetAddressRange_v2, range);
    INSTALL(cuPointerGetAttribute, attribute);
    INSTALL(cuImportExternalMemory, import_external);
    INSTALL(cuDestroyExternalMemory, destroy_external);
}
