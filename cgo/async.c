// async.c: memory that is allocated and freed in stream order. It comes out of pools, which are
// charged by what they have reserved (reserve.h): so an allocation costs something only where it
// makes its pool grow, and a free gives something back only once the pool gives it up.
//
// On a stream that is being captured, an allocation becomes a node of the graph (graph.c), and no
// pool grows.
#include "capture.h"
#include "charge.h"
#include "convert.h"
#include "graph.h"
#include "note.h"
#include "pool.h"
#include "streams.h"

// How long an allocation that was refused waits for its memory to be free again, lest it be held
// beyond the call: it is freed in stream order, and the stream may have other work to do first.
#define UNDO_WAIT_MS 20u

// One allocation, in whatever form the program has asked for it.
struct request {
    CUdeviceptr *pointer;
    size_t bytes;
    CUmemoryPool pool;  // NULL: the current one of the stream's device
    CUstream stream;
    int per_thread;  // the default stream is each thread's own
};

static CUresult call_driver(const struct request *request) {
    if (request->pool)
        return (request->per_thread ? WEIR_REAL(cuMemAllocFromPoolAsync_ptsz)
                                    : WEIR_REAL(cuMemAllocFromPoolAsync))(
            request->pointer, request->bytes, request->pool, request->stream);
    return (request->per_thread ? WEIR_REAL(cuMemAllocAsync_ptsz) : WEIR_REAL(cuMemAllocAsync))(
        request->pointer, request->bytes, request->stream);
}

static CUresult free_again(const struct request *request) {
    return (request->per_thread ? WEIR_REAL(cuMemFreeAsync_ptsz)
                                : WEIR_REAL(cuMemFreeAsync))(*request->pointer, request->stream);
}

static CUresult query_stream(const struct request *request) {
    return (request->per_thread ? WEIR_REAL(cuStreamQuery_ptsz)
                                : WEIR_REAL(cuStreamQuery))(request->stream);
}

static int is_capturing(const struct request *request) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return (request->per_thread
                ? WEIR_REAL(cuStreamIsCapturing_ptsz)
                : WEIR_REAL(cuStreamIsCapturing))(request->stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Undoes what the driver has done and the agent has refused.
static void undo(const struct request *request, const struct weir_growth *growth) {
    int mode = weir_capture_relax();
    uint64_t used = weir_reserve_used(growth->kind, growth->handle);
    free_again(request);
    uint64_t used_now = weir_reserve_used(growth->kind, growth->handle);
    CUresult busy = query_stream(request);
    if (busy == CUDA_ERROR_NOT_READY)
        weir_growth_learn(growth, used, used_now);
    for (unsigned i = 0; i < UNDO_WAIT_MS && busy == CUDA_ERROR_NOT_READY; i++) {
        weir_sys_sleep_ms(1);
        busy = query_stream(request);
    }
    weir_capture_restore(mode);
    *request->pointer = 0;
}

// Begins the growth of the pool that an allocation comes from. CUDA_SUCCESS, or the code for the
// program.
static CUresult begin(struct weir_growth *growth, struct weir_state *state,
                      const struct request *request) {
    CUmemoryPool pool = request->pool;
    CUdevice device;
    CUresult result = pool ? CUDA_SUCCESS : weir_stream_device(request->stream, &device);
    growth->state = NULL;
    if (!pool && result == CUDA_SUCCESS)
        result = WEIR_REAL(cuDeviceGetMemPool)(&pool, device);
    if (result != CUDA_SUCCESS)
        return result;  // nothing is taken out of a pool that is not known
    uint64_t handle = (uint64_t)(uintptr_t)pool;
    result = weir_growth_begin(growth, state, WEIR_KIND_POOL, handle, request->bytes);
    if (result != CUDA_ERROR_NOT_FOUND)
        return result;
    if (weir_pool_know(state, pool) == 0)
        return weir_growth_begin(growth, state, WEIR_KIND_POOL, handle, request->bytes);
    weir_note(state, WEIR_NOTE_BIT_UNKNOWN, 0, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(struct weir_state *state, const struct request *request) {
    struct weir_growth growth;
    CUresult result = begin(&growth, state, request);
    if (result == CUDA_SUCCESS && !growth.state)
        return call_driver(request);
    if (result == CUDA_SUCCESS && !growth.fits && !is_capturing(request))
        result = weir_growth_prepare(&growth, request->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = call_driver(request);
    if (weir_growth_end(&growth) != CUDA_SUCCESS) {
        if (result == CUDA_SUCCESS)
            undo(request, &growth);
        weir_growth_undone(&growth);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, growth.gpu, request->bytes);
    return result;
}

// Does what the program has asked for, charged or not.
static CUresult serve(const struct request *request) {
    struct weir_state *state;
    if (!request->pointer || !request->bytes || weir_passing())
        return call_driver(request);
    enum weir_mode mode = weir_enter(&state);
    if (mode == WEIR_MODE_PASS)
        return call_driver(request);
    if (mode == WEIR_MODE_NEW)
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_graphs_may_allocate(state);
    return allocate(state, request);
}

CUresult weir_cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return serve(&(struct request){pointer, bytes, NULL, stream, 0});
}

CUresult weir_cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return serve(&(struct request){pointer, bytes, NULL, stream, 1});
}

// Without a pool it is the driver's to say what is wrong.
CUresult weir_cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    if (!pool)
        return WEIR_REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream);
    return serve(&(struct request){pointer, bytes, pool, stream, 0});
}

CUresult weir_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                           CUstream stream) {
    if (!pool)
        return WEIR_REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool, stream);
    return serve(&(struct request){pointer, bytes, pool, stream, 1});
}

// Plain memory may be freed in stream order too. Its charge ends with the call, at most the length
// of the stream's work too early.
static CUresult free_async(cuMemFreeAsync_fn *real, CUdeviceptr pointer, CUstream stream) {
    struct weir_discharge discharge;
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    CUresult result;
    if (weir_convert_free_async(pointer, real, stream, &result))
        return result;
    if (state && !weir_table_may_have(&state->table, pointer)) {
        result = real(pointer, stream);
        weir_loosen(state);
        return result;
    }
    result = weir_discharge_begin(&discharge, pointer);
    if (result != CUDA_SUCCESS)
        return result;
    result = real(pointer, stream);
    if (discharge.state && !weir_discharge_end(&discharge, result, pointer))
        weir_loosen(discharge.state);
    return result;
}

CUresult weir_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return free_async(WEIR_REAL(cuMemFreeAsync), pointer, stream);
}

CUresult weir_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return free_async(WEIR_REAL(cuMemFreeAsync_ptsz), pointer, stream);
}
