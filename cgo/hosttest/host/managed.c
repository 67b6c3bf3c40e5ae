// managed.c: managed memory of the test driver, from the command `swap` on, and commands about it.
// An allocation has a range of addresses of its own, of which nothing is ever touched; a prefetch
// is work of 200 us in its stream.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../hooks.h"
#include "../../movable.h"
#include "driver.h"
#include "host.h"

#define RANGES 4096
#define PREFETCH_US 200

struct range {
    uint64_t pointer, bytes;
    uint64_t context;
    int gpu;
};

static struct range ranges[RANGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t in_bytes, out_bytes, prefetches;
static int no_faults, no_peers;
static uint64_t next_stream = 5000;
static uint32_t streams;     // that there are
static uint32_t streamless;  // so many streams more the driver refuses to make
static cuMemFree_v2_fn *free_plain;
static cuMemFreeAsync_fn *free_plain_async;

static CUresult take(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    CUcontext context;
    int code = test_driver_failure();
    if (code || flags != CU_MEM_ATTACH_GLOBAL)
        return code ? code : CUDA_ERROR_INVALID_VALUE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    WEIR_REAL(cuCtxGetCurrent)(&context);
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < RANGES - 1 && ranges[i].pointer)
        i++;
    ranges[i] = (struct range){(uint64_t)(uintptr_t)at, bytes, (uint64_t)(uintptr_t)context,
                               test_driver_device()};
    pthread_mutex_unlock(&lock);
    *pointer = (uint64_t)(uintptr_t)at;
    test_driver_dawdle();
    return CUDA_SUCCESS;
}

// Lock held.
static struct range *find(CUdeviceptr pointer) {
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].pointer && pointer - ranges[i].pointer < ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

static CUresult give(CUdeviceptr pointer) {
    pthread_mutex_lock(&lock);
    struct range *range = find(pointer);
    int code = range ? test_driver_failure() : 0;
    struct range was = range ? *range : (struct range){0};
    if (range && !code)
        range->pointer = 0;
    pthread_mutex_unlock(&lock);
    if (!range)
        return free_plain(pointer);
    if (!code)
        munmap((void *)(uintptr_t)was.pointer, was.bytes);
    return code;
}

// Managed memory is not freed in the order of a stream.
static CUresult give_async(CUdeviceptr pointer, CUstream stream) {
    pthread_mutex_lock(&lock);
    int managed = find(pointer) != NULL;
    pthread_mutex_unlock(&lock);
    return managed ? CUDA_ERROR_INVALID_VALUE : free_plain_async(pointer, stream);
}

static CUresult synchronize(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

// A stream that is none of this driver's, or memory that is not there, would be a fault of the
// library's.
static CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream) {
    pthread_mutex_lock(&lock);
    const struct range *range = find(pointer);
    int fits = range && bytes <= range->pointer + range->bytes - pointer &&
               (device == CU_DEVICE_CPU || device == range->gpu) && (uintptr_t)stream >= 5000;
    if (fits) {
        prefetches++;
        *(device == CU_DEVICE_CPU ? &out_bytes : &in_bytes) += bytes;
    }
    pthread_mutex_unlock(&lock);
    int code = fits ? test_driver_failure() : CUDA_ERROR_INVALID_VALUE;
    return code ? code : test_work_submit(stream, PREFETCH_US);
}

static CUresult new_stream(CUstream *stream, unsigned flags, int priority) {
    if (flags != CU_STREAM_NON_BLOCKING || priority != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (streamless) {
        streamless--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    __atomic_fetch_add(&streams, 1, __ATOMIC_RELAXED);
    *stream = (CUstream)(uintptr_t)__atomic_add_fetch(&next_stream, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult end_stream(CUstream stream) {
    if ((uintptr_t)stream < 5000)
        return CUDA_ERROR_INVALID_VALUE;
    __atomic_fetch_sub(&streams, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult priorities(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, int number, CUdevice device) {
    *value = number == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
                 ? !(no_faults && device == TEST_GPUS - 1)
                 : 1;
    return CUDA_SUCCESS;
}

static CUresult peer(int *can, CUdevice device, CUdevice other) {
    *can = device != other && !no_peers;
    return CUDA_SUCCESS;
}

static CUresult attribute(void *value, int what, CUdeviceptr pointer) {
    pthread_mutex_lock(&lock);
    const struct range *range = find(pointer);
    pthread_mutex_unlock(&lock);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    switch (what) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = 1;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = CU_DEVICE_CPU;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = range->bytes;
        break;
    default:
        *(uint64_t *)value = range->pointer;
    }
    return CUDA_SUCCESS;
}

static CUresult attributes(unsigned count, int *which, void **values, CUdeviceptr pointer) {
    for (unsigned i = 0; i < count; i++)
        attribute(values[i], which[i], pointer);
    return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    attribute(bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer);
    return attribute(base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer);
}

static CUresult ipc(CUipcMemHandle *handle, CUdeviceptr pointer) {
    memset(handle, 0, sizeof(*handle));
    pthread_mutex_lock(&lock);
    int managed = find(pointer) != NULL;
    pthread_mutex_unlock(&lock);
    return managed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult wait_value(CUstream stream, CUdeviceptr pointer, uint32_t value, unsigned flags) {
    CUipcMemHandle handle;
    (void)stream, (void)value, (void)flags;
    return ipc(&handle, pointer);
}

// Every function has one parameter of two words.
static CUresult parameter(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    (void)function;
    *offset = 0;
    *bytes = 16;
    return index ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static void install(void) {
    free_plain = WEIR_REAL(cuMemFree_v2);
    free_plain_async = WEIR_REAL(cuMemFreeAsync);
    INSTALL(cuMemAllocManaged, take);
    INSTALL(cuMemFreeAsync, give_async);
    INSTALL(cuStreamSynchronize, synchronize);
    INSTALL(cuMemFree_v2, give);
    INSTALL(cuMemPrefetchAsync, prefetch);
    INSTALL(cuStreamCreateWithPriority, new_stream);
    INSTALL(cuStreamDestroy_v2, end_stream);
    INSTALL(cuCtxGetStreamPriorityRange, priorities);
    INSTALL(cuDeviceGetAttribute, device_attribute);
    INSTALL(cuDeviceCanAccessPeer, peer);
    INSTALL(cuPointerGetAttribute, attribute);
    INSTALL(cuPointerGetAttributes, attributes);
    INSTALL(cuMemGetAddressRange_v2, address_range);
    INSTALL(cuIpcGetMemHandle, ipc);
    INSTALL(cuStreamWaitValue32_v2, wait_value);
    INSTALL(cuFuncGetParamInfo, parameter);
}

// ---- Commands ----

static void tell_answers(CUdeviceptr pointer) {
    static const int which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    enum { COUNT = sizeof(which) / sizeof(which[0]) };
    uint64_t alone[COUNT] = {0}, together[COUNT] = {0};
    void *values[COUNT];
    size_t bytes = 0;
    CUdeviceptr base = 0;
    CUresult result = 0;
    for (int i = 0; i < COUNT; i++) {
        values[i] = &together[i];
        result = weir_cuPointerGetAttribute(&alone[i], which[i], pointer);
    }
    weir_cuPointerGetAttributes(COUNT, (int *)which, values, pointer);
    weir_cuMemGetAddressRange_v2(&base, &bytes, pointer);
    int same = !memcmp(alone, together, sizeof(alone));
    printf("ok %u %u %d %" PRIu64 " host %d range %" PRIu64 " %zu same %d\n", (unsigned)alone[0],
           (unsigned)alone[1], (int)alone[2], alone[3], result, base, bytes, same);
}

static void tell_book(void) {
    struct weir_state *state = weir_state_page;
    struct weir_swap *swap = state ? state->swap : NULL;
    if (state)
        weir_lock(&state->lock);
    uint32_t places = swap ? swap->places_used : 0, records = swap ? swap->movables.live : 0;
    if (state)
        weir_unlock(&state->lock);
    pthread_mutex_lock(&lock);
    printf("ok %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", places, records, prefetches,
           in_bytes, out_bytes, __atomic_load_n(&streams, __ATOMIC_RELAXED));
    pthread_mutex_unlock(&lock);
}

static void launch_with(char **words) {
    uint64_t parameter[2] = {number(words[1]), number(words[2])};
    void *params[] = {parameter};
    say(weir_cuLaunchKernel((CUfunction)(uintptr_t)100, 1, 1, 1, 1, 1, 1, 0, (CUstream)7, params,
                            NULL),
        0);
}

#define EXCHANGERS 4
#define EXCHANGES 500

struct exchange {
    uint64_t context;
    pthread_barrier_t all;
    int refused;
};

// Frees what it has and allocates as much, over and over.
static void *exchange(void *argument) {
    struct exchange *of = argument;
    CUdeviceptr pointer;
    test_driver_use_context(of->context);
    weir_cuMemAlloc_v2(&pointer, WEIR_MOVABLE_UNIT);
    pthread_barrier_wait(&of->all);
    for (int i = 0; i < EXCHANGES; i++) {
        weir_cuMemFree_v2(pointer);
        if (weir_cuMemAlloc_v2(&pointer, WEIR_MOVABLE_UNIT) == CUDA_SUCCESS)
            continue;
        __atomic_fetch_add(&of->refused, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    weir_cuMemFree_v2(pointer);
    return NULL;
}

static void exchange_all(void) {
    pthread_t threads[EXCHANGERS];
    CUcontext context = NULL;
    struct exchange of = {.refused = 0};
    WEIR_REAL(cuCtxGetCurrent)(&context);
    of.context = (uint64_t)(uintptr_t)context;
    pthread_barrier_init(&of.all, NULL, EXCHANGERS);
    for (int i = 0; i < EXCHANGERS; i++)
        pthread_create(&threads[i], NULL, exchange, &of);
    for (int i = 0; i < EXCHANGERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&of.all);
    say(0, (uint64_t)of.refused);
}

int test_managed(char **words) {
    if (!strcmp(words[0], "swap")) {
        no_faults = words[1] && !strcmp(words[1], "card");
        no_peers = words[1] && !strcmp(words[1], "peers");
        install();
        say(0, 0);
    } else if (!strcmp(words[0], "streamless")) {
        streamless = (uint32_t)number(words[1]);
        say(0, 0);
    } else if (!strcmp(words[0], "exchange")) {
        exchange_all();
    } else if (!strcmp(words[0], "answers")) {
        tell_answers(number(words[1]));
    } else if (!strcmp(words[0], "book")) {
        tell_book();
    } else if (!strcmp(words[0], "useof")) {
        launch_with(words);
    } else if (!strcmp(words[0], "prefetch")) {
        say(weir_cuMemPrefetchAsync(number(words[1]), 4096, 0, NULL), 0);
    } else if (!strcmp(words[0], "waitvalue")) {
        say(weir_cuStreamWaitValue32_v2(NULL, number(words[1]), 0, 0), 0);
    } else if (!strcmp(words[0], "tryipc")) {
        CUipcMemHandle handle;
        say(weir_cuIpcGetMemHandle(&handle, number(words[1])), 0);
    } else {
        return 0;
    }
    return 1;
}
