// convert.c: see convert.h.
#include "convert.h"

#include "ask.h"
#include "driver.h"
#include "gpu.h"
#include "helper.h"
#include "mover.h"
#include "note.h"
#include "objects.h"
#include "obtain.h"
#include "reserve.h"

// How often, and each time for how long, who has freed waits for another thread that tells of it.
#define TELL_LOOKS_MAX 50u
#define TELL_LOOK_US 20u

// ---- Whether ----

// Whether a name begins with that of a library, up to its ".so".
static int is_library(const char *name, const char *library) {
    while (*library && *name == *library)
        name++, library++;
    return !*library && name[0] == '.' && name[1] == 's' && name[2] == 'o';
}

static const char *base_name(const char *path) {
    const char *base = path;
    for (; *path; path++)
        if (*path == '/')
            base = path + 1;
    return base;
}

// Which of the exporters an object is. NCCL is loaded by all of PyTorch's programs, and exports
// only between cards: `context` tells of how many the process sees.
static int find_exporter(const struct weir_object *object, void *context) {
    const char *name = object->soname ? object->soname : base_name(object->path);
    if (is_library(name, "libucp"))
        return WEIR_EXPORTER_UCX;
    if (is_library(name, "libnvshmem_host"))
        return WEIR_EXPORTER_NVSHMEM;
    return *(const int *)context > 1 && is_library(name, "libnccl") ? WEIR_EXPORTER_NCCL : 0;
}

static int can_fault(CUdevice device) {
    int can = 0;
    return WEIR_REAL(cuDeviceGetAttribute)(&can, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                           device) == CUDA_SUCCESS &&
           can;
}

static int can_reach(CUdevice device, CUdevice peer) {
    int can = 0;
    return device == peer ||
           (WEIR_REAL(cuDeviceCanAccessPeer)(&can, device, peer) == CUDA_SUCCESS && can);
}

static int has_calls(void) {
    static const enum weir_fn calls[] = {WEIR_FN_cuMemAllocManaged, WEIR_FN_cuMemPrefetchAsync,
                                         WEIR_FN_cuStreamCreateWithPriority};
    int all = 1;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        all &= weir_real_known(calls[i]) || weir_driver_function(calls[i]);
    return all;
}

// 0, or enum weir_plain_reason.
static uint32_t look(struct weir_swap *swap) {
    int count = 0;
    if (__atomic_load_n(&swap->state->plain, __ATOMIC_RELAXED))
        return WEIR_PLAIN_EXPORTED;
    if (!has_calls() || WEIR_REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return WEIR_PLAIN_DRIVER;
    for (int i = 0; i < count; i++)
        if (!can_fault(i))
            return WEIR_PLAIN_CARD;
    for (int i = 0; i < count * count; i++)
        if (!can_reach(i / count, i % count))
            return WEIR_PLAIN_PEERS;
    int exporter = weir_objects_each(find_exporter, &count);
    __atomic_store_n(&swap->exporter, (uint32_t)exporter, __ATOMIC_RELAXED);
    return exporter ? WEIR_PLAIN_LIBRARY : 0;
}

// Decides once; of several threads at the same time each finds the same.
static int decide(struct weir_swap *swap) {
    uint32_t undecided = 0, plain = look(swap) + 1;
    if (__atomic_compare_exchange_n(&swap->plain, &undecided, plain, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) &&
        plain != 1)
        weir_note_swap(swap->state);
    return __atomic_load_n(&swap->plain, __ATOMIC_ACQUIRE) == 1;
}

int weir_convertible(struct weir_state *state, uint32_t gpu) {
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    uint32_t index = __atomic_load_n(&state->gpus[gpu].index, __ATOMIC_RELAXED);
    if (!page || index >= WEIR_GPUS_MAX ||
        !__atomic_load_n(&page->gpus[index].swap_bytes, __ATOMIC_RELAXED))
        return 0;
    struct weir_swap *swap = weir_swap_make(state);
    uint32_t plain = swap ? __atomic_load_n(&swap->plain, __ATOMIC_ACQUIRE) : 2;
    return plain ? plain == 1 : decide(swap);
}

// ---- Allocation and free ----

static CUresult refusal(struct weir_state *state, uint32_t gpu, uint64_t bytes, int rc) {
    if (rc == ENODEV)
        weir_note(state, WEIR_NOTE_BIT_UNKNOWN, gpu, 0);
    else if (rc != EDQUOT)
        weir_note(state, WEIR_NOTE_BIT_REFUSED, gpu, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

// Has the driver make what was granted.
static CUresult make(struct weir_swap *swap, uint32_t number, CUdeviceptr *pointer) {
    struct weir_state *state = swap->state;
    struct weir_movable *movable = weir_movable_at(swap, number);
    uint64_t bytes = movable->bytes;
    uint32_t gpu = movable->gpu;
    CUdeviceptr made = 0;
    CUresult result = WEIR_REAL(cuMemAllocManaged)(&made, bytes, CU_MEM_ATTACH_GLOBAL);
    if (weir_lock(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && made)
        weir_movable_made(swap, number, made);
    else
        weir_movable_unwanted(swap, number);
    weir_unlock(&state->lock);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, gpu, bytes);
    if (result == CUDA_SUCCESS)
        *pointer = made;
    else
        weir_movables_tell(state);
    return result;
}

// Whether the container has swap on any GPU: without, allocations cost no call of the driver more.
static int has_swap(const struct weir_state *state) {
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    uint32_t count = page ? __atomic_load_n(&state->gpu_count, __ATOMIC_RELAXED) : 0;
    int has = 0;
    for (uint32_t i = 0; i < count && i < WEIR_GPUS_MAX && !has; i++)
        has = __atomic_load_n(&page->gpus[i].swap_bytes, __ATOMIC_RELAXED) != 0;
    return has;
}

int weir_convert_slow(CUdeviceptr *pointer, uint64_t bytes, CUresult *result) {
    struct weir_state *state;
    CUdevice device;
    CUcontext context;
    if (!weir_enforced(&state) || !has_swap(state) || bytes > WEIR_ALLOCATION_BYTES_MAX ||
        WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        WEIR_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || weir_gpu_know(state, device) != 0 ||
        !weir_convertible(state, (uint32_t)device) || weir_lock(&state->lock))
        return 0;
    struct weir_swap *swap = state->swap;
    uint32_t number = weir_movable_new(swap, (uint32_t)device, (uint64_t)(uintptr_t)context, bytes);
    weir_unlock(&state->lock);
    if (!number)
        return 0;  // beyond so many it is plain
    weir_helper_start(state);
    int rc = weir_ask_movable(state, number);
    *result = rc ? refusal(state, (uint32_t)device, bytes, rc) : make(swap, number, pointer);
    return 1;
}

// Claims what begins at an address, for its end. Its number, or 0.
static uint32_t free_begin(struct weir_swap *swap, CUdeviceptr pointer) {
    if (weir_lock(&swap->state->lock))
        return 0;
    uint32_t number = weir_movable_beginning(swap, pointer);
    if (number)
        weir_movable_freeing(swap, number);
    weir_unlock(&swap->state->lock);
    if (number)
        weir_mover_leave(swap, number);
    return number;
}

static int is_telling(struct weir_swap *swap) {
    if (weir_lock(&swap->state->lock))
        return 0;
    int telling = swap->telling != 0;
    weir_unlock(&swap->state->lock);
    return telling;
}

// Tells the agent what is gone. Another thread may be telling it: what this one asks for next is
// not to come before that, else it would be refused for want of what was freed.
static void tell(struct weir_swap *swap) {
    uint32_t never = 0;
    weir_movables_tell(swap->state);
    for (uint32_t looks = 0; looks < TELL_LOOKS_MAX && is_telling(swap); looks++) {
        weir_sys_futex_wait(&never, 0, TELL_LOOK_US);
        weir_movables_tell(swap->state);
    }
}

static void free_end(struct weir_swap *swap, uint32_t number, CUresult result) {
    if (weir_lock(&swap->state->lock))
        return;
    if (result == CUDA_SUCCESS)
        weir_movable_freed(swap, number);
    else
        weir_movable_kept(swap, number);
    weir_unlock(&swap->state->lock);
    tell(swap);
    weir_settle_if_loose();
}

int weir_convert_free_slow(struct weir_swap *swap, CUdeviceptr pointer, CUresult *result) {
    uint32_t number = free_begin(swap, pointer);
    if (!number)
        return 0;
    *result = WEIR_REAL(cuMemFree_v2)(pointer);
    free_end(swap, number, *result);
    return 1;
}

// A driver that does not free managed memory so waits for the stream first, as for a plain free.
int weir_convert_free_async_slow(struct weir_swap *swap, CUdeviceptr pointer,
                                 cuMemFreeAsync_fn *real, CUstream stream, CUresult *result) {
    uint32_t number = free_begin(swap, pointer);
    if (!number)
        return 0;
    *result = real(pointer, stream);
    if (*result == CUDA_ERROR_INVALID_VALUE &&
        WEIR_REAL(cuStreamSynchronize)(stream) == CUDA_SUCCESS)
        *result = WEIR_REAL(cuMemFree_v2)(pointer);
    free_end(swap, number, *result);
    return 1;
}

// ---- Exports ----

void weir_exported_slow(struct weir_swap *swap, CUdeviceptr pointer, enum weir_exported what) {
    uint32_t none = 0;
    if (weir_lock(&swap->state->lock))
        return;
    int movable = weir_movable_holding(swap, pointer) != 0;
    weir_unlock(&swap->state->lock);
    if (!movable || !__atomic_compare_exchange_n(&swap->exported, &none, what, 0, __ATOMIC_ACQ_REL,
                                                 __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&swap->plain, WEIR_PLAIN_EXPORTED + 1, __ATOMIC_RELEASE);
    weir_note_swap(swap->state);
}
