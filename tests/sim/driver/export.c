// export.c: chunks that other processes can have: files of their own, and names of them.
//
// The label in a file's last page says which share of which GPU it is; it is checked, since anybody
// may pass any descriptor. Files are sealed: a truncated mapping would kill its user. While a
// chunk's data go to their file no other data move.
#define _GNU_SOURCE
#include "chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define LABEL_MAGIC 0x4c485357u  // "WSHL"
#define NAME_MAGIC 0x4e485357u   // "WSHN"

struct label {
    uint32_t magic;
    uint32_t host;  // 1: memory of the host
    uint64_t share;
    uint64_t bytes;
    uint64_t card_bytes;
    uint8_t uuid[16];
    CUmemAllocationProp properties;
};

// ---- Files ----

// A chunk's own file: its place in the chunk.
struct own {
    char *data;
    int fd;
    uint64_t inode;
    uint64_t share;
};

static uint64_t inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}

static char *map_file(int fd, uint64_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return NULL;
    madvise(data, bytes, MADV_DONTFORK);
    madvise(data, bytes, MADV_DONTDUMP);
    return data;
}

static void own_drop(const struct own *own, uint64_t bytes) {
    munmap(own->data, bytes);
    close(own->fd);
}

// Into a new file: what is zero need not take memory there.
static void copy_pages(char *to, const char *from, uint64_t bytes) {
    static const char zeros[PAGE];
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        size_t part = bytes - at < PAGE ? bytes - at : PAGE;
        if (memcmp(from + at, zeros, part))
            memcpy(to + at, from + at, part);
    }
}

// What was never written is not even looked at: to read it would take memory.
static void copy_written(char *to, const struct chunk *chunk) {
    for (uint64_t at = 0, end; chunk_written(chunk, &at, &end); at = end)
        copy_pages(to + at, chunk->data + at, end - at);
}

// Makes an empty one.
static CUresult own_make(const struct chunk *chunk, struct own *own) {
    struct label label = {.magic = LABEL_MAGIC,
                          .host = chunk->gpu < 0,
                          .share = sim_share_name(driver.machine),
                          .bytes = chunk->bytes,
                          .card_bytes = chunk->card_bytes,
                          .properties = chunk->properties};
    if (chunk->gpu >= 0)
        memcpy(label.uuid, driver.config->gpus[chunk->gpu].uuid, sizeof label.uuid);
    int fd = file_make("weir-sim-share", chunk->bytes + PAGE, MFD_ALLOW_SEALING);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *own = (struct own){
        .data = map_file(fd, chunk->bytes), .fd = fd, .inode = inode_of(fd), .share = label.share};
    bool whole = own->data &&
                 pwrite(fd, &label, sizeof label, (off_t)chunk->bytes) == (ssize_t)sizeof label &&
                 !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (!whole) {
        if (own->data)
            munmap(own->data, chunk->bytes);
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static void put(struct chunk *chunk, const struct own *own, struct block *home) {
    chunk->data = own->data;
    chunk->fd = own->fd;
    chunk->inode = own->inode;
    chunk->share = own->share;
    chunk->home = home;
}

// In the machine's books it becomes a share. A share of the host's memory is in none.
static int enter_books(const struct chunk *chunk) {
    return chunk->card_bytes
               ? sim_share_move(driver.machine, chunk->card, chunk->share, chunk->card_bytes)
               : 0;
}

// ---- Export ----

// Moves a chunk out of this process's file, with all of its ranges. All stands still.
static CUresult leave_home(struct chunk *chunk) {
    struct own own, before = {.data = chunk->data, .fd = -1};
    struct block *home = chunk->home;
    CUresult rc = own_make(chunk, &own);
    if (rc)
        return rc;
    copy_written(own.data, chunk);
    put(chunk, &own, NULL);
    if (range_follow(chunk) || enter_books(chunk)) {
        put(chunk, &before, home);
        range_follow(chunk);
        own_drop(&own, chunk->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->home = home;
    chunk_leave_home(chunk);
    return CUDA_SUCCESS;
}

// Has the chunk be in a file of its own. [drops]
static CUresult make_own(struct chunk *chunk) {
    CUresult rc = CUDA_SUCCESS;
    if (chunk->home) {
        data_still();
        if (chunk->home)  // no other thread was faster
            rc = leave_home(chunk);
    }
    if (!rc && !file_is(chunk->fd, chunk->inode))
        rc = CUDA_ERROR_OPERATING_SYSTEM;
    return rc;
}

CUresult chunk_export(struct chunk *chunk, int *fd) {
    chunk_keep(chunk);
    CUresult rc = make_own(chunk);
    if (!rc) {
        *fd = fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);
        rc = *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    chunk_drop(chunk);
    return rc;
}

CUresult chunk_name(struct chunk *chunk, uint64_t offset, uint64_t bytes, struct share_name *name) {
    if (chunk->imported)
        return CUDA_ERROR_INVALID_VALUE;
    chunk_keep(chunk);
    CUresult rc = make_own(chunk);
    if (!rc) {
        *name = (struct share_name){.magic = NAME_MAGIC,
                                    .pid = (int32_t)getpid(),
                                    .fd = chunk->fd,
                                    .inode = chunk->inode,
                                    .share = chunk->share,
                                    .offset = offset,
                                    .bytes = bytes};
        if (chunk->gpu >= 0)
            memcpy(name->uuid, driver.config->gpus[chunk->gpu].uuid, sizeof name->uuid);
    }
    chunk_drop(chunk);
    return rc;
}

// Takes a block out of its arena, as far as its data go. All stands still.
static CUresult adopt(struct arena *arena, struct block *block, struct chunk **out) {
    uint64_t bytes = block->count * SIM_GRANULE;
    char *from = arena_data(arena, arena_address(arena, block));
    struct own own;
    struct chunk *chunk = chunk_new((int)block->gpu, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    chunk->card_bytes = bytes;
    CUresult rc = own_make(chunk, &own);
    if (rc) {
        chunk_delete(chunk);
        return rc;
    }
    copy_pages(own.data, from, bytes);
    put(chunk, &own, NULL);
    if (enter_books(chunk)) {
        own_drop(&own, chunk->bytes);
        chunk_delete(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    arena_move(arena, block, chunk);
    data_redirect(from, bytes, chunk->data);
    *out = chunk;
    return CUDA_SUCCESS;
}

CUresult chunk_adopt(uint64_t address, uint64_t id, struct chunk **chunk) {
    struct arena *arena;
    data_still();
    struct block *block = memory_begins_at(address, BLOCK_PLAIN, BLOCK_PLAIN, &arena);
    CUresult rc = CUDA_SUCCESS;
    if (!block || block->id != id)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (block->chunk)
        *chunk = block->chunk;
    else
        rc = adopt(arena, block, chunk);
    return rc;
}

// ---- Import ----

static bool read_label(int fd, struct label *label) {
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size <= (off_t)PAGE)
        return false;
    uint64_t bytes = (uint64_t)status.st_size - PAGE;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK &&
           pread(fd, label, sizeof *label, (off_t)bytes) == (ssize_t)sizeof *label &&
           label->magic == LABEL_MAGIC && label->share && label->bytes == bytes &&
           bytes % PAGE == 0 && label->card_bytes <= bytes && label->host == !label->card_bytes;
}

static int device_of(const uint8_t uuid[16]) {
    for (uint32_t i = 0; i < driver.config->gpu_count; i++)
        if (!memcmp(driver.config->gpus[i].uuid, uuid, 16))
            return (int)i;
    return -1;
}

static struct chunk *find_share(uint64_t share) {
    struct chunk *chunk;
    for (uint32_t i = 0; (chunk = chunk_next(&i)); i++)
        if (chunk->share == share)
            return chunk;
    return NULL;
}

// A chunk over another's file; the descriptor is kept in a copy, if there may be one more.
static struct chunk *chunk_over(int fd, int gpu, uint64_t bytes) {
    struct chunk *chunk = chunk_new(gpu, bytes);
    char *data = chunk ? map_file(fd, bytes) : NULL;
    if (!data) {
        if (chunk)
            chunk_delete(chunk);
        return NULL;
    }
    chunk->data = data;
    chunk->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    chunk->inode = inode_of(fd);
    chunk->imported = true;
    return chunk;
}

static void undo_over(struct chunk *chunk) {
    chunk->card_bytes = 0;
    chunk_drop(chunk);
}

CUresult chunk_import(int fd, struct chunk **out) {
    struct label label;
    if (!read_label(fd, &label))
        return CUDA_ERROR_INVALID_VALUE;
    *out = find_share(label.share);
    if (*out) {
        chunk_keep(*out);
        return CUDA_SUCCESS;
    }
    int gpu = label.host ? -1 : device_of(label.uuid);
    if (!label.host && gpu < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct chunk *chunk = chunk_over(fd, gpu, label.bytes);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    chunk->properties = label.properties;
    if (gpu >= 0)
        chunk->properties.location.id = gpu;
    int rc = label.card_bytes
                 ? sim_share_hold(driver.machine, chunk->card, label.share, label.card_bytes)
                 : 0;
    if (rc) {
        undo_over(chunk);
        return rc == EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->share = label.share;
    chunk->card_bytes = label.card_bytes;
    *out = chunk;
    return CUDA_SUCCESS;
}

CUresult chunk_import_unknown(int fd, uint64_t bytes, uint32_t gpu, struct chunk **out) {
    struct stat status;
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || !bytes || pages < bytes ||
        (uint64_t)status.st_size < bytes ||
        (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) && !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)))
        return CUDA_ERROR_INVALID_VALUE;
    struct chunk *chunk = chunk_over(fd, (int)gpu, pages);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    chunk->card_bytes = (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
    if (sim_memory_take(driver.machine, chunk->card, chunk->card_bytes)) {
        undo_over(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = chunk;
    return CUDA_SUCCESS;
}

static char *put_number(char *at, uint32_t number) {
    char digits[10];
    unsigned count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

// Opens "<before><number><between>...": a file that /proc shows, if it is the one that is wanted.
static int open_proc(const struct share_name *name) {
    char path[64], *at = path;
    at = stpcpy(at, "/proc/");
    at = put_number(at, (uint32_t)name->pid);
    at = stpcpy(at, "/fd/");
    *put_number(at, (uint32_t)name->fd) = 0;
    int seen = open(path, O_PATH | O_CLOEXEC);  // which opens nothing that may be there instead
    if (seen < 0)
        return -1;
    int fd = -1;
    if (file_is(seen, name->inode)) {
        at = stpcpy(path, "/proc/self/fd/");
        *put_number(at, (uint32_t)seen) = 0;
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    close(seen);
    return fd;
}

CUresult chunk_open(const struct share_name *name, struct chunk **out) {
    if (name->magic != NAME_MAGIC || name->pid <= 0 || name->fd < 0 || !name->share)
        return CUDA_ERROR_INVALID_HANDLE;
    struct chunk *chunk = find_share(name->share);
    CUresult rc = CUDA_SUCCESS;
    if (chunk) {
        chunk_keep(chunk);
    } else {
        if (device_of(name->uuid) < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        int fd = sim_share_held(driver.machine, name->share) ? open_proc(name) : -1;
        if (fd < 0)
            return CUDA_ERROR_INVALID_HANDLE;
        rc = chunk_import(fd, &chunk);
        close(fd);
        if (rc == CUDA_ERROR_INVALID_VALUE)
            rc = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!rc && (chunk->share != name->share || name->offset > chunk->bytes ||
                name->bytes > chunk->bytes - name->offset)) {
        chunk_drop(chunk);
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!rc)
        *out = chunk;
    return rc;
}
