// puppet_share.c: the puppet's commands about created memory, mappings, and memory between
// processes.
#define _GNU_SOURCE
#include "puppet.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIST_MAX = 1024, SHAREABLE_BYTES = 64, FILE_DESCRIPTOR = 1 };

struct location {
    int type, id;
};

struct creation {
    int type, handle_types;
    struct location location;
    void *windows;
    unsigned char flags[8];
};

struct access {
    struct location location;
    int flags;
};

struct pool_making {
    int type, handle_types;
    struct location location;
    void *windows;
    size_t most_bytes;
    unsigned char reserved[56];
};

struct shareable {
    unsigned char bytes[SHAREABLE_BYTES];
};

int cuMemCreate(uint64_t *handle, size_t bytes, const struct creation *creation, uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t align, uint64_t at, uint64_t flags);
int cuMemAddressFree(uint64_t address, size_t bytes);
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags);
int cuMemUnmap(uint64_t address, size_t bytes);
int cuMemSetAccess(uint64_t address, size_t bytes, const struct access *access, size_t count);
int cuMemRetainAllocationHandle(uint64_t *handle, void *address);
int cuMemGetAllocationGranularity(size_t *bytes, const struct creation *creation, int option);
int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type, uint64_t flags);
int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type);
int cuIpcGetMemHandle(struct shareable *handle, uint64_t address);
int cuIpcOpenMemHandle_v2(uint64_t *address, struct shareable handle, unsigned flags);
int cuIpcCloseMemHandle(uint64_t address);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuMemFree_v2(uint64_t address);
int cuCtxSynchronize(void);
int cuMemPoolCreate(void **pool, const struct pool_making *making);
int cuMemPoolDestroy(void *pool);
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream);
int cuMemPoolExportToShareableHandle(void *shareable, void *pool, int type, uint64_t flags);
int cuMemPoolImportFromShareableHandle(void **pool, void *shareable, int type, uint64_t flags);
int cuMemPoolExportPointer(struct shareable *data, uint64_t address);
int cuMemPoolImportPointer(uint64_t *address, void *pool, struct shareable *data);

// What the puppet has, by number: handles, then places in memory with their lengths.
static uint64_t handles[LIST_MAX];
static int handle_count;
static struct {
    uint64_t address;
    size_t bytes;
} places[LIST_MAX];
static int place_count;
static void *pools[LIST_MAX];
static int pool_count;

static struct creation creation_on(const char *gpu, const char *location) {
    struct creation creation = {.type = 1, .handle_types = FILE_DESCRIPTOR};
    creation.location.type = location ? (int)puppet_number(location) : 1;
    creation.location.id = (int)puppet_number(gpu);
    return creation;
}

static void answer_handle(int code, uint64_t handle) {
    if (code || handle_count == LIST_MAX) {
        puppet_answer_code(code ? code : -1);
        return;
    }
    handles[handle_count] = handle;
    puppet_answer("ok %d", handle_count++);
}

static void answer_place(int code, uint64_t address, size_t bytes) {
    if (code || place_count == LIST_MAX) {
        puppet_answer_code(code ? code : -1);
        return;
    }
    places[place_count].address = address;
    places[place_count].bytes = bytes;
    puppet_answer("ok %d", place_count++);
}

static void answer_shareable(int code, const struct shareable *handle) {
    char text[2 * SHAREABLE_BYTES + 1];
    for (int i = 0; i < SHAREABLE_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", handle->bytes[i]);
    if (code)
        puppet_answer_code(code);
    else
        puppet_answer("ok %s", text);
}

static struct shareable shareable_of(const char *text) {
    struct shareable handle = {{0}};
    for (int i = 0; text && i < SHAREABLE_BYTES && text[2 * i] && text[2 * i + 1]; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        handle.bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return handle;
}

// A descriptor of another puppet: PID and number. It is that puppet's own open file where the
// kernel gives it: to open anew what it names would not do where that is a device, as with NVIDIA's
// driver.
static int descriptor_of(const char *pid, const char *number) {
    char path[64];
    int process = (int)syscall(SYS_pidfd_open, (pid_t)puppet_number(pid), 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, (int)puppet_number(number), 0);
    close(process);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid ? pid : "", number ? number : "");
    return open(path, O_RDWR | O_CLOEXEC);
}

// "granularity": of created memory on GPU 0.
static void do_granularity(char **words) {
    struct creation creation = creation_on(NULL, NULL);
    size_t bytes = 0;
    (void)words;
    int code = cuMemGetAllocationGranularity(&bytes, &creation, 0);
    if (code)
        puppet_answer_code(code);
    else
        puppet_answer("ok %zu", bytes);
}

// "create BYTES [GPU [LOCATION TYPE]]"
static void do_create(char **words) {
    struct creation creation = creation_on(words[2], words[2] ? words[3] : NULL);
    uint64_t handle = 0;
    int code = cuMemCreate(&handle, puppet_number(words[1]), &creation, 0);
    answer_handle(code, handle);
}

static void *run_create(void *words) {
    do_create(words);
    return NULL;
}

// "thread-create …": the same on a new thread, which has no context.
static void do_thread_create(char **words) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_create, words))
        puppet_answer("wrong thread");
    else
        pthread_join(thread, NULL);
}

// "unhandle HANDLE"
static void do_unhandle(char **words) {
    puppet_answer_code(cuMemRelease(handles[puppet_number(words[1]) % LIST_MAX]));
}

// "map HANDLE BYTES [GPU]": at a new address, to be read and written.
static void do_map(char **words) {
    uint64_t address = 0, handle = handles[puppet_number(words[1]) % LIST_MAX];
    size_t bytes = puppet_number(words[2]);
    struct access access = {{1, (int)puppet_number(words[3])}, 3};
    int code = cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (!code)
        code = cuMemMap(address, bytes, 0, handle, 0);
    if (!code)
        code = cuMemSetAccess(address, bytes, &access, 1);
    answer_place(code, address, bytes);
}

// "unmap PLACE"
static void do_unmap(char **words) {
    uint64_t place = puppet_number(words[1]) % LIST_MAX;
    int code = cuMemUnmap(places[place].address, places[place].bytes);
    if (!code)
        code = cuMemAddressFree(places[place].address, places[place].bytes);
    puppet_answer_code(code);
}

// "retain-handle PLACE"
static void do_retain_handle(char **words) {
    uint64_t handle = 0, address = places[puppet_number(words[1]) % LIST_MAX].address;
    int code = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    answer_handle(code, handle);
}

// "fd HANDLE": a descriptor's number.
static void do_fd(char **words) {
    int fd = -1, code = cuMemExportToShareableHandle(
                     &fd, handles[puppet_number(words[1]) % LIST_MAX], FILE_DESCRIPTOR, 0);
    if (code)
        puppet_answer_code(code);
    else
        puppet_answer("ok %d", fd);
}

// "close-fd FD", "forget": handles and places are numbered from 0 again.
static void do_close_fd(char **words) {
    if (close((int)puppet_number(words[1])))
        puppet_answer("wrong descriptor");
    else
        puppet_answer("ok");
}

static void do_forget(char **words) {
    (void)words;
    handle_count = place_count = 0;
    puppet_answer("ok");
}

// "import-fd PID FD"
static void do_import_fd(char **words) {
    uint64_t handle = 0;
    int fd = descriptor_of(words[1], words[2]);
    int code = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, FILE_DESCRIPTOR);
    close(fd);
    answer_handle(code, handle);
}

// "ipc SLOT": of an allocation.
static void do_ipc(char **words) {
    struct shareable handle = {{0}};
    int code = cuIpcGetMemHandle(&handle, puppet_address(words[1]));
    answer_shareable(code, &handle);
}

// "open HANDLE": a place of unknown length.
static void do_open(char **words) {
    uint64_t address = 0;
    int code = cuIpcOpenMemHandle_v2(&address, shareable_of(words[1]), 1);
    answer_place(code, address, 0);
}

// "close PLACE"
static void do_close(char **words) {
    puppet_answer_code(cuIpcCloseMemHandle(places[puppet_number(words[1]) % LIST_MAX].address));
}

// "poke PLACE VALUE", "peek PLACE": the first word there.
static void do_poke(char **words) {
    uint64_t value = puppet_number(words[2]);
    uint64_t address = places[puppet_number(words[1]) % LIST_MAX].address;
    puppet_answer_code(cuMemcpyHtoD_v2(address, &value, sizeof(value)));
}

static void do_peek(char **words) {
    uint64_t value = 0;
    int code =
        cuMemcpyDtoH_v2(&value, places[puppet_number(words[1]) % LIST_MAX].address, sizeof(value));
    if (code)
        puppet_answer_code(code);
    else
        puppet_answer("ok %llu", (unsigned long long)value);
}

static void answer_pool(int code, void *pool) {
    if (code || pool_count == LIST_MAX) {
        puppet_answer_code(code ? code : -1);
        return;
    }
    pools[pool_count] = pool;
    puppet_answer("ok %d", pool_count++);
}

// "pool": one that can be exported, on GPU 0.
static void do_pool(char **words) {
    struct pool_making making = {.type = 1, .handle_types = FILE_DESCRIPTOR, .location = {1, 0}};
    void *pool = NULL;
    (void)words;
    int code = cuMemPoolCreate(&pool, &making);
    answer_pool(code, pool);
}

static void do_unpool(char **words) {
    puppet_answer_code(cuMemPoolDestroy(pools[puppet_number(words[1]) % LIST_MAX]));
}

// "pool-alloc POOL BYTES"
static void do_pool_alloc(char **words) {
    uint64_t address = 0;
    size_t bytes = puppet_number(words[2]);
    int code =
        cuMemAllocFromPoolAsync(&address, bytes, pools[puppet_number(words[1]) % LIST_MAX], NULL);
    if (!code)
        code = cuCtxSynchronize();
    answer_place(code, address, bytes);
}

// "free-place PLACE"
static void do_free_place(char **words) {
    puppet_answer_code(cuMemFree_v2(places[puppet_number(words[1]) % LIST_MAX].address));
}

// "pool-fd POOL", "import-pool PID FD"
static void do_pool_fd(char **words) {
    int fd = -1, code = cuMemPoolExportToShareableHandle(
                     &fd, pools[puppet_number(words[1]) % LIST_MAX], FILE_DESCRIPTOR, 0);
    if (code)
        puppet_answer_code(code);
    else
        puppet_answer("ok %d", fd);
}

static void do_import_pool(char **words) {
    void *pool = NULL;
    int fd = descriptor_of(words[1], words[2]);
    int code = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, FILE_DESCRIPTOR, 0);
    close(fd);
    answer_pool(code, pool);
}

// "export-place PLACE", "import-place POOL HANDLE"
static void do_export_place(char **words) {
    struct shareable data = {{0}};
    int code = cuMemPoolExportPointer(&data, places[puppet_number(words[1]) % LIST_MAX].address);
    answer_shareable(code, &data);
}

static void do_import_place(char **words) {
    struct shareable data = shareable_of(words[2]);
    uint64_t address = 0;
    int code = cuMemPoolImportPointer(&address, pools[puppet_number(words[1]) % LIST_MAX], &data);
    answer_place(code, address, 0);
}

const struct puppet_command puppet_share_commands[] = {
    {"granularity", do_granularity},
    {"create", do_create},
    {"thread-create", do_thread_create},
    {"unhandle", do_unhandle},
    {"map", do_map},
    {"unmap", do_unmap},
    {"retain-handle", do_retain_handle},
    {"fd", do_fd},
    {"close-fd", do_close_fd},
    {"forget", do_forget},
    {"import-fd", do_import_fd},
    {"ipc", do_ipc},
    {"open", do_open},
    {"close", do_close},
    {"poke", do_poke},
    {"peek", do_peek},
    {"pool", do_pool},
    {"unpool", do_unpool},
    {"pool-alloc", do_pool_alloc},
    {"free-place", do_free_place},
    {"pool-fd", do_pool_fd},
    {"import-pool", do_import_pool},
    {"export-place", do_export_place},
    {"import-place", do_import_place},
    {NULL, NULL},
};
