// pool.c: see pool.h.
//
// A pool that is destroyed while memory of it is in use lives on in the driver until that is freed,
// but could be asked about no more. So the driver is asked to destroy it only then (reserve.c), and
// until then it is one that keeps nothing, and that the program can no longer allocate from.
#include "pool.h"

#include "gpu.h"
#include "hooks.h"
#include "tie.h"

static uint64_t handle_of(CUmemoryPool pool) {
    return (uint64_t)(uintptr_t)pool;
}

// The device whose default pool it is, or WEIR_NO_INDEX. *told: whether every device has said which
// is its own, or that it has none.
static uint32_t device_of_default(CUmemoryPool pool, int *told) {
    int count = 0;
    *told = WEIR_REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS;
    for (int i = 0; i < count && i < (int)WEIR_ORDINALS_MAX; i++) {
        CUmemoryPool of_device;
        CUresult result = WEIR_REAL(cuDeviceGetDefaultMemPool)(&of_device, i);
        if (result == CUDA_SUCCESS && of_device == pool)
            return (uint32_t)i;
        *told &= result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED;
    }
    return WEIR_NO_INDEX;
}

int weir_pool_know(struct weir_state *state, CUmemoryPool pool) {
    int told, rc = 0;
    uint32_t gpu = device_of_default(pool, &told);
    if (gpu != WEIR_NO_INDEX)
        rc = weir_gpu_know(state, (CUdevice)gpu);
    else if (!told)
        return ENODEV;
    return rc ? rc : weir_reserve_add(state, WEIR_KIND_POOL, handle_of(pool), gpu);
}

uint32_t weir_pool_find(struct weir_state *state, CUmemoryPool pool, uint32_t *gpu) {
    *gpu = WEIR_NO_INDEX;
    uint32_t number = weir_reserve_find(state, WEIR_KIND_POOL, handle_of(pool), gpu);
    if (number == WEIR_NO_RESERVE && weir_pool_know(state, pool) == 0)
        number = weir_reserve_find(state, WEIR_KIND_POOL, handle_of(pool), gpu);
    return *gpu == WEIR_NO_INDEX ? WEIR_NO_RESERVE : number;
}

// Gets to know a pool that was just made; one that is not charged, too, so that it is known as
// such. As weir_pool_know.
static int know(struct weir_state *state, CUmemoryPool pool, const CUmemPoolProps *props) {
    int on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    uint32_t gpu;
    // One that the driver has destroyed without our knowledge may have had the same handle.
    uint32_t number = weir_reserve_find(state, WEIR_KIND_POOL, handle_of(pool), &gpu);
    if (number != WEIR_NO_RESERVE)
        weir_reserve_remove(state, number, handle_of(pool));
    if (!on_device)
        return weir_reserve_add(state, WEIR_KIND_POOL, handle_of(pool), WEIR_NO_INDEX);
    int rc = weir_gpu_know(state, props->location.id);
    return rc ? rc
              : weir_reserve_add(state, WEIR_KIND_POOL, handle_of(pool),
                                 (uint32_t)props->location.id);
}

CUresult weir_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuMemPoolCreate)(pool, props);
    if (result != CUDA_SUCCESS || weir_passing() || weir_enter(&state) != WEIR_MODE_ENFORCED)
        return result;
    if (know(state, *pool, props) == 0)
        return result;
    WEIR_REAL(cuMemPoolDestroy)(*pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

// Makes an orphan one that keeps nothing and that no device allocates from: the driver, too, goes
// back to the default pool where the current one is destroyed.
static void leave_behind(CUmemoryPool pool, CUdevice device) {
    CUmemoryPool current, of_device;
    uint64_t keep_bytes = 0;
    WEIR_REAL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes);
    if (WEIR_REAL(cuDeviceGetMemPool)(&current, device) == CUDA_SUCCESS && current == pool &&
        WEIR_REAL(cuDeviceGetDefaultMemPool)(&of_device, device) == CUDA_SUCCESS)
        WEIR_REAL(cuDeviceSetMemPool)(device, of_device);
}

// One that is not charged here. If it was imported, its tie ends (poolshare.c).
static CUresult destroy_foreign(CUmemoryPool pool) {
    struct weir_untie untie;
    CUresult result = weir_untie_begin(&untie, WEIR_TIE_POOL, handle_of(pool));
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemPoolDestroy)(pool);
    weir_untie_end(&untie, result);
    return result;
}

CUresult weir_cuMemPoolDestroy(CUmemoryPool pool) {
    struct weir_state *state;
    uint32_t gpu = WEIR_NO_INDEX, number = WEIR_NO_RESERVE;
    int told;
    if (weir_enforced(&state))
        number = weir_reserve_find(state, WEIR_KIND_POOL, handle_of(pool), &gpu);
    if (gpu == WEIR_NO_INDEX || device_of_default(pool, &told) != WEIR_NO_INDEX) {
        CUresult result = destroy_foreign(pool);
        if (result == CUDA_SUCCESS && number != WEIR_NO_RESERVE)
            weir_reserve_remove(state, number, handle_of(pool));
        return result;
    }
    if (!weir_reserve_orphan(state, number, handle_of(pool)))
        return CUDA_ERROR_INVALID_VALUE;
    leave_behind(pool, (CUdevice)gpu);
    weir_reserve_orphaned(state, number);  // destroys it, if none of its memory is in use
    return CUDA_SUCCESS;
}

CUresult weir_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
    struct weir_state *state;
    uint32_t gpu = WEIR_NO_INDEX;
    CUresult result = WEIR_REAL(cuMemPoolTrimTo)(pool, keep_bytes);
    if (result != CUDA_SUCCESS || !weir_enforced(&state))
        return result;
    uint32_t number = weir_reserve_find(state, WEIR_KIND_POOL, handle_of(pool), &gpu);
    if (gpu != WEIR_NO_INDEX)
        weir_reserve_settle(state, number);
    return result;
}

CUresult weir_cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    struct weir_state *state;
    uint32_t gpu;
    CUresult result = WEIR_REAL(cuMemPoolSetAttribute)(pool, attribute, value);
    if (result != CUDA_SUCCESS || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ||
        weir_passing() || weir_enter(&state) != WEIR_MODE_ENFORCED)
        return result;
    uint32_t number = weir_pool_find(state, pool, &gpu);
    if (number != WEIR_NO_RESERVE)
        weir_reserve_keep(state, number, handle_of(pool), *(const uint64_t *)value);
    return result;
}
