// chunk.c: physical memory in this process (share.h has the idea).
//
// One file a device, and one for the host's memory, holds all chunks that only this process has.
// Its descriptor maps parts of it; where the program has closed that, the kernel doubles a mapping.
#define _GNU_SOURCE
#include "chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOME_MIN (UINT64_C(1) << 30)

static struct pool chunks = {.bytes = sizeof(struct chunk), .most = 1u << 20};

// The files of chunks that only this process has, by device; the last is of the host's memory.
static struct home {
    struct arena *arena;
    char *data;
    int fd;
    uint64_t inode;
} homes[SIM_GPUS_MAX + 1];

bool file_is(int fd, uint64_t inode) {
    struct stat status;
    return fd >= 0 && !fstat(fd, &status) && status.st_ino == inode && S_ISREG(status.st_mode);
}

int file_make(const char *name, uint64_t bytes, unsigned flags) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < bytes)
        return -1;  // to make it longer would be a signal to the program
    int fd = memfd_create(name, MFD_CLOEXEC | flags);
    if (fd >= 0 && fd <= 2) {
        int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        close(fd);
        fd = higher;
    }
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct home *home_of(int gpu) {
    return &homes[gpu < 0 ? SIM_GPUS_MAX : (unsigned)gpu];
}

// Four times the memory: what can fit then finds room, however scattered the rest is.
static int home_make(struct home *home, uint64_t memory_bytes) {
    uint64_t bytes = memory_bytes * 4 > HOME_MIN ? memory_bytes * 4 : HOME_MIN;
    struct stat status;
    int fd = file_make("weir-sim-memory", bytes, 0), anonymous = fd < 0 ? MAP_ANONYMOUS : 0;
    void *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | anonymous, fd, 0);
    if (data == MAP_FAILED || madvise(data, bytes, MADV_DONTFORK) ||
        madvise(data, bytes, MADV_DONTDUMP) || (fd >= 0 && fstat(fd, &status)) ||
        arena_make_over(&home->arena, data, bytes)) {
        if (data != MAP_FAILED)
            munmap(data, bytes);
        if (fd >= 0)
            close(fd);
        return ENOMEM;
    }
    home->data = data;
    home->fd = fd;
    home->inode = fd >= 0 ? status.st_ino : 0;
    return 0;
}

static uint64_t memory_bytes(int gpu) {
    if (gpu >= 0)
        return driver.config->gpus[gpu].memory_bytes;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
}

struct chunk *chunk_new(int gpu, uint64_t bytes) {
    struct chunk *chunk = pool_take(&chunks);
    if (chunk) {
        chunk->gpu = gpu;
        chunk->card = gpu < 0 ? 0 : driver.cards[gpu];
        chunk->references = 1;
        chunk->bytes = bytes;
        chunk->card_bytes = gpu < 0 ? 0 : bytes;
        chunk->fd = -1;
    }
    return chunk;
}

void chunk_delete(struct chunk *chunk) {
    pool_drop(&chunks, chunk);
}

struct chunk *chunk_next(uint32_t *i) {
    return pool_next(&chunks, i);
}

CUresult chunk_make(int gpu, uint64_t bytes, struct chunk **out) {
    struct home *home = home_of(gpu);
    if (!home->arena && home_make(home, memory_bytes(gpu)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct chunk *chunk = chunk_new(gpu, bytes);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (gpu >= 0 && sim_memory_take(driver.machine, chunk->card, bytes)) {
        chunk_delete(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->home = arena_take(home->arena, bytes, BLOCK_PLAIN);
    if (!chunk->home) {
        if (gpu >= 0)
            sim_memory_give(driver.machine, chunk->card, bytes);
        chunk_delete(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->data = arena_data(home->arena, arena_address(home->arena, chunk->home));
    *out = chunk;
    return CUDA_SUCCESS;
}

bool chunk_written(const struct chunk *chunk, uint64_t *at, uint64_t *end) {
    const struct home *home = home_of(chunk->gpu);
    if (*at >= chunk->bytes)
        return false;
    *end = chunk->bytes;
    if (!file_is(home->fd, home->inode))
        return true;  // nobody tells
    off_t start = (off_t)(chunk->home->first * SIM_GRANULE);
    off_t data = lseek(home->fd, start + (off_t)*at, SEEK_DATA);
    if (data < 0)
        return errno != ENXIO;
    off_t hole = lseek(home->fd, data, SEEK_HOLE);
    *at = (uint64_t)(data - start);
    if (hole >= 0 && (uint64_t)(hole - start) < *end)
        *end = (uint64_t)(hole - start);
    return *at < *end;
}

void chunk_leave_home(struct chunk *chunk) {
    struct home *home = home_of(chunk->gpu);
    madvise(home->data + chunk->home->first * SIM_GRANULE, chunk->bytes, MADV_REMOVE);
    arena_give(home->arena, chunk->home);
    chunk->home = NULL;
}

void chunk_keep(struct chunk *chunk) {
    chunk->references++;
}

void chunk_drop(struct chunk *chunk) {
    if (--chunk->references)
        return;
    if (chunk->home)
        chunk_leave_home(chunk);
    else
        data_unmap(chunk->data, chunk->bytes);
    if (file_is(chunk->fd, chunk->inode))
        close(chunk->fd);
    if (chunk->card_bytes && chunk->share)
        sim_share_drop(driver.machine, chunk->share);
    else if (chunk->card_bytes)
        sim_memory_give(driver.machine, chunk->card, chunk->card_bytes);
    chunk_delete(chunk);
}

struct chunk *chunk_get(uint64_t handle) {
    struct chunk *chunk = pool_get(&chunks, (void *)(uintptr_t)handle);
    return chunk && chunk->handles ? chunk : NULL;
}

// The program may close any descriptor. A mapping can be doubled all the same.
int chunk_map(const struct chunk *chunk, uint64_t offset, uint64_t bytes, void *at) {
    const struct home *home = home_of(chunk->gpu);
    int fd = chunk->home ? home->fd : chunk->fd;
    uint64_t start = chunk->home ? chunk->home->first * SIM_GRANULE : 0;
    void *mapped;
    if (file_is(fd, chunk->home ? home->inode : chunk->inode))
        mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                      (off_t)(start + offset));
    else
        mapped = mremap(chunk->data + offset, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    if (mapped == MAP_FAILED)
        return ENOMEM;
    madvise(at, bytes, MADV_DONTFORK);
    madvise(at, bytes, MADV_DONTDUMP);
    return 0;
}

void chunk_unmap(void *at, uint64_t bytes, int protection) {
    mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    madvise(at, bytes, MADV_DONTDUMP);
}
