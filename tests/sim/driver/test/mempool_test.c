// mempool_test.c: memory pools of the simulated driver: what they reserve of the card, what they
// give out, when they reuse it and when they give it back.
#define _GNU_SOURCE
#include "test_mempool.h"

// ---- Pools ----

static void pool_objects(void) {
    CUmemPoolProps props = device_props(0);
    CUmemoryPool pool, current, standard;
    CHECK_EQ(cuMemPoolCreate(NULL, &props), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
    props.allocType = 0;
    CHECK_EQ(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props = device_props(7);
    CHECK_EQ(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
    props = device_props(0);
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    CHECK_EQ(cuMemPoolCreate(&pool, &props), CUDA_ERROR_NOT_SUPPORTED);
    props = device_props(0);
    props.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
    CHECK_EQ(cuMemPoolCreate(&pool, &props), CUDA_ERROR_NOT_SUPPORTED);

    int have = 0;
    OK(cuDeviceGetAttribute(&have, 115, 0));
    CHECK_EQ(have, 1);
    OK(cuDeviceGetAttribute(&have, 119, 0));
    CHECK_EQ(have, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuDeviceGetDefaultMemPool(&standard, 0));
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(standard == current);
    CHECK_EQ(cuDeviceGetMemPool(&current, 9), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    pool = make_pool(0);
    CHECK_EQ(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == pool);
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, 1, NULL));
    CHECK_EQ(used(pool), GRANULE);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == standard);
    CHECK_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocFromPoolAsync(&at, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocAsync(NULL, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocAsync(&at, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
}

static void pool_attributes(void) {
    CUmemoryPool pool = make_pool(0);
    int policy = -1;
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &policy));
    CHECK_EQ(policy, 1);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &policy));
    CHECK_EQ(policy, 0);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    set_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), UINT64_MAX);
    CUdeviceptr at = take(pool, CHUNK + 1, NULL);
    OK(cuMemFreeAsync(at, NULL));
    at = take(pool, 1000, NULL);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), CHUNK + GRANULE);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * CHUNK);
    uint64_t one = 1;
    CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolGetAttribute(pool, 99, &one), CUDA_ERROR_INVALID_VALUE);
    set_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2 * GRANULE);
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), CHUNK);
    set_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    CHECK_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuMemPoolDestroy(pool));
    OK(cuCtxSynchronize());
}

static void access_rights(void) {
    CUmemoryPool pool = make_pool(0);
    CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemAccess_flags flags;
    OK(cuMemPoolGetAccess(&flags, pool, &own));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolGetAccess(&flags, pool, &other));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc desc = {other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess(pool, &desc, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &other));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemPoolSetAccess(pool, &desc, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &other));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    desc.location = own;
    CHECK_EQ(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    desc.location.id = 8;
    CHECK_EQ(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemPoolSetAccess(pool, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(pool));
}

// ---- What the card gives and gets back ----

static void growth(void) {
    uint64_t before = free_bytes();
    CUmemoryPool pool = make_pool(0);
    CHECK_EQ(free_bytes(), before);
    CUdeviceptr small = take(pool, 1, NULL);
    CHECK_EQ(used(pool), GRANULE);
    CHECK_EQ(reserved(pool), CHUNK);
    CHECK_EQ(before - free_bytes(), CHUNK);
    CUdeviceptr rest = take(pool, CHUNK - GRANULE, NULL);
    CHECK_EQ(reserved(pool), CHUNK);
    CUdeviceptr large = take(pool, 3 * CHUNK + 1, NULL);
    CHECK_EQ(reserved(pool), 5 * CHUNK);
    CHECK_EQ(before - free_bytes(), 5 * CHUNK);
    OK(cuMemFreeAsync(large, NULL));
    CHECK_EQ(used(pool), CHUNK);
    CHECK_EQ(reserved(pool), 5 * CHUNK);  // nothing goes back before a synchronisation
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(reserved(pool), CHUNK);
    CHECK_EQ(before - free_bytes(), CHUNK);
    // A threshold keeps what is below it.
    set_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 3 * CHUNK);
    large = take(pool, 8 * CHUNK, NULL);
    OK(cuMemFreeAsync(large, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(reserved(pool), 3 * CHUNK);
    // An event's synchronisation applies it, too.
    CUevent event;
    OK(cuEventCreate(&event, 0));
    set_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
    OK(cuMemFreeAsync(rest, NULL));
    OK(cuEventRecord(event, NULL));
    OK(cuEventSynchronize(event));
    CHECK_EQ(reserved(pool), CHUNK);
    OK(cuEventDestroy_v2(event));
    OK(cuMemFreeAsync(small, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(reserved(pool), 0);
    OK(cuMemPoolDestroy(pool));
    CHECK_EQ(free_bytes(), before);
}

static void trim(void) {
    CUmemoryPool pool = make_pool(0);
    set_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CUdeviceptr at = take(pool, 10 * CHUNK, NULL);
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 10 * CHUNK);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(reserved(pool), 10 * CHUNK);
    OK(cuMemPoolTrimTo(pool, 4 * CHUNK + 1));
    CHECK_EQ(reserved(pool), 5 * CHUNK);  // at least so much stays
    OK(cuMemPoolTrimTo(pool, 100 * CHUNK));
    CHECK_EQ(reserved(pool), 5 * CHUNK);
    // A piece in the middle holds its chunk, and no other.
    CUdeviceptr pieces[5];
    for (unsigned i = 0; i < 5; i++)
        pieces[i] = take(pool, CHUNK, NULL);
    for (unsigned i = 0; i < 5; i++)
        if (i != 2)
            OK(cuMemFreeAsync(pieces[i], NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), CHUNK);
    OK(cuMemFree_v2(pieces[2]));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 0);
    OK(cuMemPoolDestroy(pool));
}

static void out_of_memory(void) {
    uint64_t before = free_bytes();
    CUmemoryPool one = make_pool(0), two = make_pool(4 * CHUNK);
    CUdeviceptr at, rest;
    CHECK_EQ(cuMemAllocFromPoolAsync(&at, before + CHUNK, one, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuMemAllocFromPoolAsync(&at, SIZE_MAX, one, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(reserved(one), 0);
    CHECK_EQ(used(one), 0);
    // A bound of the pool's own.
    at = take(two, 4 * CHUNK, NULL);
    CHECK_EQ(cuMemAllocFromPoolAsync(&rest, 1, two, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(at, NULL));
    // What another pool holds and does not use is given back before an allocation fails.
    set_bytes(one, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    OK(cuStreamSynchronize(NULL));
    uint64_t most = before / CHUNK * CHUNK;
    at = take(one, most, NULL);
    CHECK_EQ(cuMemAllocFromPoolAsync(&rest, CHUNK, two, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(reserved(one), most);
    rest = take(two, CHUNK, NULL);
    CHECK_EQ(reserved(one), 0);
    OK(cuMemFree_v2(rest));
    OK(cuMemPoolDestroy(one));
    OK(cuMemPoolDestroy(two));
    OK(cuCtxSynchronize());
    CHECK_EQ(free_bytes(), before);
}

// A pool without a handle lives for what it has given out.
static void destroyed_pool(void) {
    uint64_t before = free_bytes();
    uint32_t word = 0;
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr at = take(pool, 4096, NULL);
    OK(cuMemPoolDestroy(pool));
    CHECK_EQ(before - free_bytes(), CHUNK);
    OK(cuMemsetD32Async(at, 77, 1024, NULL));
    OK(cuMemcpyDtoH_v2(&word, at + 4092, 4));
    CHECK_EQ(word, 77);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(free_bytes(), before);
}

// ---- Reuse ----

// All policies of a pool off.
static CUmemoryPool strict_pool(uint64_t bytes_max) {
    CUmemoryPool pool = make_pool(bytes_max);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    return pool;
}

static void same_stream(void) {
    CUmemoryPool pool = strict_pool(0);
    CUstream stream = make_stream();
    CUdeviceptr first = take(pool, CHUNK, stream);
    int go;
    hold(stream, &go);
    OK(cuMemFreeAsync(first, stream));
    CHECK(take(pool, CHUNK, stream) == first);  // at once: the stream says that it is free by then
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    let_go(&go);
    CHECK_EQ(reserved(pool), CHUNK);
    OK(cuMemFreeAsync(first, stream));
    // In halves, which become one again.
    CUdeviceptr half = take(pool, CHUNK / 2, stream), other = take(pool, CHUNK / 2, stream);
    OK(cuMemFreeAsync(half, stream));
    OK(cuMemFreeAsync(other, stream));
    CHECK(take(pool, CHUNK, stream) == first);
    CHECK_EQ(reserved(pool), CHUNK);
    OK(cuMemFreeAsync(first, stream));
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(reserved(pool), 0);
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy_v2(stream));
}

static void other_stream(void) {
    CUmemoryPool pool = strict_pool(0);
    CUstream one = make_stream(), two = make_stream();
    CUevent event;
    int go;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr first = take(pool, CHUNK, one), second;
    OK(cuMemFreeAsync(first, one));
    OK(cuStreamQuery(one));
    second = take(pool, CHUNK, two);  // done, but no policy lets anybody look
    CHECK(second != first);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
    CHECK(take(pool, CHUNK, two) == first);
    // Not while it is in use.
    hold(one, &go);
    OK(cuMemFreeAsync(first, one));
    CUdeviceptr third = take(pool, CHUNK, two);
    CHECK(third != first);
    // An event makes the other stream follow.
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
    OK(cuEventRecord(event, one));
    OK(cuStreamWaitEvent(two, event, 0));
    CHECK(take(pool, CHUNK, two) == first);
    CHECK_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    let_go(&go);
    OK(cuMemFreeAsync(first, two));
    OK(cuMemFreeAsync(second, two));
    OK(cuMemFreeAsync(third, two));
    OK(cuStreamSynchronize(two));
    CHECK_EQ(reserved(pool), 0);
    OK(cuMemPoolDestroy(pool));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(one));
    OK(cuStreamDestroy_v2(two));
}

// The default stream and blocking streams follow one another without an event.
static void default_stream(void) {
    CUmemoryPool pool = strict_pool(CHUNK);
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
    CUdeviceptr at = take(pool, CHUNK, NULL);
    spin_for(20000000, NULL);
    OK(cuMemFreeAsync(at, NULL));
    CHECK(take(pool, CHUNK, blocking) == at);
    spin_for(1000000, blocking);
    OK(cuMemFreeAsync(at, blocking));
    CHECK(take(pool, CHUNK, NULL) == at);
    OK(cuMemFreeAsync(at, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy_v2(blocking));
}

// A stream is made to wait for a free of another one, rather than fail.
static void internal_dependency(void) {
    CUmemoryPool pool = strict_pool(CHUNK);
    CUstream one = make_stream(), two = make_stream();
    CUdeviceptr at = take(pool, CHUNK, one), none;
    int go;
    hold(one, &go);
    OK(cuMemFreeAsync(at, one));
    CHECK_EQ(cuMemAllocFromPoolAsync(&none, CHUNK, pool, two), CUDA_ERROR_OUT_OF_MEMORY);
    set_policy(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    CHECK(take(pool, CHUNK, two) == at);
    CHECK_EQ(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
    let_go(&go);
    OK(cuStreamSynchronize(two));
    OK(cuMemFreeAsync(at, two));
    OK(cuStreamSynchronize(two));
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy_v2(one));
    OK(cuStreamDestroy_v2(two));
}

// ---- Frees ----

static void frees(void) {
    uint64_t before = free_bytes();
    uint32_t word = 0;
    CUstream stream = make_stream();
    CUdeviceptr plain = alloc(CHUNK), at;
    int go;
    // Plain memory, in stream order: it is the card's again when the stream is there.
    hold(stream, &go);
    OK(cuMemFreeAsync(plain, stream));
    CHECK_EQ(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyDtoH_v2(&word, plain, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(before - free_bytes(), CHUNK);
    let_go(&go);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(free_bytes(), before);
    // A pool's memory, without a stream.
    OK(cuMemAllocAsync(&at, CHUNK, stream));
    CHECK_EQ(cuMemFree_v2(at + GRANULE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFreeAsync(12345, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8Async(at, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(free_bytes(), before);
    OK(cuStreamDestroy_v2(stream));
}

// What is in flight when memory is freed and given to somebody else still finds its own data.
static void data_in_flight(void) {
    uint32_t *host;
    CUmemoryPool pool = make_pool(CHUNK);
    CUstream stream = make_stream();
    OK(cuMemHostAlloc((void **)&host, 200 * 4096, 0));
    for (uint32_t i = 0; i < 200; i++) {
        CUdeviceptr at = take(pool, CHUNK / 2, stream);
        OK(cuMemsetD32Async(at, i, 1024, stream));
        add_to(at, 1024, 1000, stream);
        OK(cuMemcpyDtoHAsync_v2(host + i * 1024, at, 4096, stream));
        OK(cuMemFreeAsync(at, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < 200; i++) {
        CHECK_EQ(host[i * 1024], i + 1000);
        CHECK_EQ(host[i * 1024 + 1023], i + 1000);
    }
    OK(cuMemFreeHost(host));
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy_v2(stream));
}

static void range_and_pointer(void) {
    CUdeviceptr at, base;
    size_t bytes;
    unsigned value;
    int ordinal;
    OK(cuMemAllocAsync(&at, 5000, NULL));
    OK(cuMemGetAddressRange_v2(&base, &bytes, at + 4000));
    CHECK_EQ(base, at);
    CHECK_EQ(bytes, 5000);
    OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    CHECK_EQ(value, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    CHECK_EQ(ordinal, 0);
    OK(cuMemFreeAsync(at, NULL));
    CHECK_EQ(cuMemGetAddressRange_v2(&base, &bytes, at), CUDA_ERROR_NOT_FOUND);
    OK(cuStreamSynchronize(NULL));
}

// ---- Contexts ----

// Pools are the device's, not a context's: what a context has freed is free when it ends.
static void end_of_context(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    CUmemoryPool pool = make_pool(0);
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUstream stream = make_stream();
    CUdeviceptr kept = take(pool, CHUNK, stream), freed = take(pool, CHUNK, stream);
    OK(cuMemsetD8Async(freed, 1, CHUNK, stream));
    OK(cuMemFreeAsync(freed, stream));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(used(pool), CHUNK);
    uint32_t word;
    OK(cuMemsetD32_v2(kept, 5, 1));
    OK(cuMemcpyDtoH_v2(&word, kept, 4));
    CHECK_EQ(word, 5);
    OK(cuCtxSynchronize());
    CHECK_EQ(reserved(pool), CHUNK);
    OK(cuMemFreeAsync(kept, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(pool_objects),   TEST(pool_attributes),   TEST(access_rights),       TEST(growth),
        TEST(trim),           TEST(out_of_memory),     TEST(destroyed_pool),      TEST(same_stream),
        TEST(other_stream),   TEST(default_stream),    TEST(internal_dependency), TEST(frees),
        TEST(data_in_flight), TEST(range_and_pointer), TEST(end_of_context),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
