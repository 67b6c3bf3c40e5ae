// churn.c: allocates and frees one kind of memory after the other, from eight threads at once.
//
// Usage: churn PAIRS, of each kind and thread. It prints "warm RESIDENT" after a tenth of that, and
// "done RESIDENT FREE TOTAL" after the rest, all in bytes, each time waiting for a line. On the
// null driver, which gives every address out once, whatever grows is the library's.
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, PIECE_BYTES = 4096, PHYSICAL_BYTES = 2 << 20 };

typedef struct {
    int type, handle_types, location_type, location;
    void *security;
    size_t bytes_max;
    char reserved[56];
} properties;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} array_description;

int cuMemPoolCreate(void **pool, const properties *properties);
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream);
int cuMemCreate(uint64_t *handle, size_t bytes, const properties *properties, uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuArray3DCreate_v2(void **array, const array_description *description);
int cuArrayDestroy(void *array);
int cuMipmappedArrayCreate(void **array, const array_description *description, unsigned levels);
int cuMipmappedArrayDestroy(void *array);
int cuModuleUnload(void *module);

static const properties on_device = {.type = 1, .location_type = 1};
static const array_description shape = {.width = 64, .height = 64, .format = 1, .channels = 1};
static void *context, *pool;
static long pairs;
static pthread_barrier_t line;

static void check(const char *name, int code) {
    if (!code)
        return;
    printf("failed %s %d\n", name, code);
    fflush(stdout);
    _exit(1);
}

static void plain(void *stream) {
    uint64_t address;
    (void)stream;
    check("cuMemAlloc_v2", cuMemAlloc_v2(&address, PIECE_BYTES));
    check("cuMemFree_v2", cuMemFree_v2(address));
}

static void pitched(void *stream) {
    uint64_t address;
    size_t pitch;
    (void)stream;
    check("cuMemAllocPitch_v2", cuMemAllocPitch_v2(&address, &pitch, 100, 8, 4));
    check("cuMemFree_v2", cuMemFree_v2(address));
}

static void managed(void *stream) {
    uint64_t address;
    (void)stream;
    check("cuMemAllocManaged", cuMemAllocManaged(&address, PIECE_BYTES, CU_MEM_ATTACH_GLOBAL));
    check("cuMemFree_v2", cuMemFree_v2(address));
}

static void in_order(void *stream) {
    uint64_t address;
    check("cuMemAllocAsync", cuMemAllocAsync(&address, PIECE_BYTES, stream));
    check("cuMemFreeAsync", cuMemFreeAsync(address, stream));
}

static void pooled(void *stream) {
    uint64_t address;
    check("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&address, PIECE_BYTES, pool, stream));
    check("cuMemFreeAsync", cuMemFreeAsync(address, stream));
}

static void physical(void *stream) {
    uint64_t handle;
    (void)stream;
    check("cuMemCreate", cuMemCreate(&handle, PHYSICAL_BYTES, &on_device, 0));
    check("cuMemRelease", cuMemRelease(handle));
}

static void array(void *stream) {
    void *handle;
    (void)stream;
    check("cuArray3DCreate_v2", cuArray3DCreate_v2(&handle, &shape));
    check("cuArrayDestroy", cuArrayDestroy(handle));
}

static void mipmap(void *stream) {
    void *handle;
    (void)stream;
    check("cuMipmappedArrayCreate", cuMipmappedArrayCreate(&handle, &shape, 3));
    check("cuMipmappedArrayDestroy", cuMipmappedArrayDestroy(handle));
}

static void module(void *stream) {
    void *handle;
    (void)stream;
    check("cuModuleLoadData", cuModuleLoadData(&handle, ".version 8.0\n.target sm_80\n"));
    check("cuModuleUnload", cuModuleUnload(handle));
}

static void (*const kinds[])(void *stream) = {plain,    pitched, managed, in_order, pooled,
                                              physical, array,   mipmap,  module};

static void *work(void *unused) {
    void *stream;
    (void)unused;
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    check("cuStreamCreate", cuStreamCreate(&stream, 0));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (long j = 0; j < pairs / 10; j++)
            kinds[i](stream);
    pthread_barrier_wait(&line);
    pthread_barrier_wait(&line);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (long j = pairs / 10; j < pairs; j++)
            kinds[i](stream);
    return NULL;
}

static size_t resident(void) {
    size_t all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%zu %zu", &all, &pages) != 2)
        _exit(1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void wait_for_line(void) {
    char byte;
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
        ;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    int device;
    size_t free_bytes, total_bytes;
    if (count != 2 || (pairs = atol(arguments[1])) < 10)
        return 2;
    check("cuInit", cuInit(0));
    check("cuDeviceGet", cuDeviceGet(&device, 0));
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    check("cuMemPoolCreate", cuMemPoolCreate(&pool, &on_device));
    pthread_barrier_init(&line, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        check("pthread_create", pthread_create(&threads[i], NULL, work, NULL));
    pthread_barrier_wait(&line);
    printf("warm %zu\n", resident());
    wait_for_line();
    pthread_barrier_wait(&line);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check("cuMemGetInfo_v2", cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("done %zu %zu %zu\n", resident(), free_bytes, total_bytes);
    wait_for_line();
    return 0;
}
