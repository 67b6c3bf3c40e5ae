// acrobat_pool.c: the acrobat's acts about memory in stream order: pools, what comes out of them,
// and how both are handed to other processes.
#include "acrobat.h"

#include "../../sim/driver/cuda_abi.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static CUstream streams[GPUS_MAX];  // one a device, made at the first use

void forget_stream(void) {
    streams[gpu_now] = NULL;
}

void *stream_of(const char *word) {
    if (!number_of(word))
        return NULL;
    if (!streams[gpu_now])
        cuStreamCreate(&streams[gpu_now], CU_STREAM_NON_BLOCKING);
    return streams[gpu_now];
}

static int free_async(uint64_t address, uint64_t which) {
    return (int)cuMemFreeAsync(address, which ? streams[gpu_now] : NULL);
}

// "async BYTES STREAM", "pool-alloc POOL BYTES STREAM"
static void do_async(char **words) {
    CUdeviceptr address = 0;
    CUresult code = cuMemAllocAsync(&address, number_of(words[1]), stream_of(words[2]));
    answer_slot(code, free_async, address, number_of(words[2]));
}

static void do_pool_alloc(char **words) {
    CUdeviceptr address = 0;
    CUmemoryPool pool = (CUmemoryPool)handle_in(words[1]);
    CUresult code =
        cuMemAllocFromPoolAsync(&address, number_of(words[2]), pool, stream_of(words[3]));
    answer_slot(code, free_async, address, number_of(words[3]));
}

static int free_pool(uint64_t pool, uint64_t bytes) {
    (void)bytes;
    return (int)cuMemPoolDestroy((CUmemoryPool)pool);
}

// "pool THRESHOLD"
static void do_pool(char **words) {
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_now},
    };
    uint64_t threshold = number_of(words[1]);
    CUresult code = cuMemPoolCreate(&pool, &props);
    if (!code)
        code = cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    answer_slot(code, free_pool, (uint64_t)pool, 0);
}

// "trim", "trim POOL": all that the device has reserved and nobody uses, or a pool.
static void do_trim(char **words) {
    CUmemoryPool pool = (CUmemoryPool)(words[1] ? handle_in(words[1]) : 0);
    CUresult code = words[1] ? CUDA_SUCCESS : cuDeviceGetDefaultMemPool(&pool, gpu_now);
    if (!code)
        code = cuMemPoolTrimTo(pool, 0);
    if (!code && !words[1])
        code = cuDeviceGraphMemTrim(gpu_now);
    answer_code(code);
}

static void do_sync(char **words) {
    (void)words;
    answer_code(cuCtxSynchronize());
}

// ---- Between processes ----

// "pool-fd POOL": a descriptor of it, which stays open.
static void do_pool_fd(char **words) {
    int fd = -1;
    CUmemoryPool pool = (CUmemoryPool)handle_in(words[1]);
    CUresult code =
        cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code)
        answer_code(code);
    else
        answer("ok %d", fd);
}

// "pool-import PID FD"
static void do_pool_import(char **words) {
    char path[64];
    CUmemoryPool pool = NULL;
    snprintf(path, sizeof(path), "/proc/%s/fd/%s", words[1], words[2]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CUresult code = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(fd);
    answer_slot(code, free_pool, (uint64_t)pool, 0);
}

// "pool-ipc ALLOCATION": what others import it by.
static void do_pool_ipc(char **words) {
    CUmemPoolPtrExportData data;
    CUresult code = cuMemPoolExportPointer(&data, handle_in(words[1]));
    answer_bytes((int)code, &data, sizeof(data));
}

static int free_pooled(uint64_t address, uint64_t bytes) {
    (void)bytes;
    return (int)cuMemFree_v2(address);
}

// "pool-open POOL DATA HOW": what another process has allocated; to be freed at once (HOW 0), or in
// the order of the default stream (1) or another one (2).
static void do_pool_open(char **words) {
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    uint64_t how = number_of(words[3]);
    bytes_of(&data, sizeof(data), words[2]);
    if (how)
        stream_of(how > 1 ? "1" : "0");
    CUresult code = cuMemPoolImportPointer(&address, (CUmemoryPool)handle_in(words[1]), &data);
    answer_slot(code, how ? free_async : free_pooled, address, how > 1);
}

const struct act pool_acts[] = {
    {"async", do_async},         {"pool-alloc", do_pool_alloc},
    {"pool", do_pool},           {"trim", do_trim},
    {"sync", do_sync},           {"pool-fd", do_pool_fd},
    {"pool-ipc", do_pool_ipc},   {"pool-import", do_pool_import},
    {"pool-open", do_pool_open}, {NULL, NULL},
};
