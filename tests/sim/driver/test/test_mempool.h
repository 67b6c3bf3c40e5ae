// test_mempool.h: short names for what tests of memory pools do all the time.
#ifndef SIM_TEST_MEMPOOL_H
#define SIM_TEST_MEMPOOL_H

#include "test_driver.h"

#define CHUNK (512u << 10)  // 32 MiB / scale
#define GRANULE 512u

static inline CUmemPoolProps device_props(int device) {
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static inline CUmemoryPool make_pool(uint64_t bytes_max) {
    CUmemPoolProps props = device_props(0);
    CUmemoryPool pool;
    props.maxSize = bytes_max;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static inline uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value = 0;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static inline void set_policy(CUmemoryPool pool, CUmemPool_attribute which, int value) {
    OK(cuMemPoolSetAttribute(pool, which, &value));
}

static inline void set_bytes(CUmemoryPool pool, CUmemPool_attribute which, uint64_t value) {
    OK(cuMemPoolSetAttribute(pool, which, &value));
}

static inline uint64_t reserved(CUmemoryPool pool) {
    return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static inline uint64_t used(CUmemoryPool pool) {
    return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static inline CUdeviceptr take(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr at = 0;
    OK(cuMemAllocFromPoolAsync(&at, bytes, pool, stream));
    CHECK(at && at % GRANULE == 0);
    return at;
}

static inline CUstream make_stream(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

#endif
