// limit.c: cuCtxSetLimit. Three limits of a context take device memory, by this reckoning:
//   malloc heap, printf buffer   the bytes beyond what a context begins with
//   stack                        the bytes beyond that x the threads that the device can hold
// each rounded up to the charge unit; less than the beginning takes nothing. It is charged before
// the driver is called and settled with the values that the driver then has.
#include "charge.h"
#include "contexts.h"
#include "hooks.h"

// How long a thread waits for another that changes limits of the same context.
#define TURN_WAIT_MS 1000u

enum { LIMIT_STACK = 0 };

enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
};

struct change {
    struct weir_state *state;  // NULL: nothing is charged
    uint64_t context;          // handle
    uint32_t gpu;
    uint32_t counted;
    uint64_t threads;  // that the device can hold
    uint64_t before;   // the limit's value
    uint64_t stands;   // what is charged for all limits
    uint64_t hand;     // obtained
};

static uint64_t attribute(CUdevice device, int number) {
    int value = 0;
    if (WEIR_REAL(cuDeviceGetAttribute)(&value, number, device) != CUDA_SUCCESS || value < 0)
        return 0;
    return (uint64_t)value;
}

// Reads all three; one that the device does not have is 0. Anything else that the driver says but
// success is returned: then nothing is known.
static CUresult read_limits(uint64_t values[WEIR_LIMITS]) {
    for (int limit = 0; limit < (int)WEIR_LIMITS; limit++) {
        size_t value = 0;
        CUresult result = WEIR_REAL(cuCtxGetLimit)(&value, limit);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_UNSUPPORTED_LIMIT)
            return result;
        values[limit] = result == CUDA_SUCCESS ? value : 0;
    }
    return CUDA_SUCCESS;
}

// What values take beyond the defaults; more than any device has where it cannot be said.
static uint64_t bytes_of(const struct change *change, const uint64_t values[WEIR_LIMITS]) {
    const uint64_t *defaults = change->state->gpus[change->gpu].limit_defaults;
    uint64_t sum = 0;
    for (uint32_t limit = 0; limit < WEIR_LIMITS; limit++) {
        uint64_t beyond = values[limit] > defaults[limit] ? values[limit] - defaults[limit] : 0;
        uint64_t units = limit == LIMIT_STACK ? change->threads : 1, bytes;
        if (__builtin_mul_overflow(beyond, units, &bytes) || bytes > WEIR_ALLOCATION_BYTES_MAX)
            return WEIR_ALLOCATION_BYTES_MAX + 1;
        sum += (bytes + WEIR_CHARGE_UNIT - 1) / WEIR_CHARGE_UNIT * WEIR_CHARGE_UNIT;
    }
    return sum;
}

// Takes the turn to change limits of the context, if no other thread has it. Whether it has, or
// there is no such context. Lock held.
static bool take_turn(struct change *change) {
    struct weir_context *context = weir_contexts_find(change->state, change->context);
    if (!context)
        return true;
    change->counted = context->counted;
    change->stands = context->bytes[WEIR_PART_LIMIT];
    bool mine = !context->changing;
    context->changing = 1;
    return mine;
}

// Waits for the turn, at the latest until another thread must have got lost.
static void wait_for_turn(struct change *change) {
    for (uint32_t left_ms = TURN_WAIT_MS; left_ms; left_ms--) {
        if (weir_lock(&change->state->lock))
            return;
        bool mine = take_turn(change);
        weir_unlock(&change->state->lock);
        if (mine)
            return;
        weir_sys_sleep_ms(1);
    }
}

// A context that was not seen to begin is entered now.
static CUresult know_context(struct change *change) {
    struct weir_context context;
    struct weir_terms terms;
    uint32_t place;
    if (weir_contexts_look(change->state, change->context, &context) == 0)
        return CUDA_SUCCESS;
    CUresult result = weir_terms_read(change->state, change->gpu, &terms);
    if (result != CUDA_SUCCESS)
        return result;
    context = (struct weir_context){
        .handle = change->context, .gpu = change->gpu, .counted = terms.counted};
    weir_contexts_enter(change->state, &context, &place);
    return CUDA_SUCCESS;
}

// What contexts of the GPU begin with: the first values that are seen, since all changes come
// through here.
static void learn_defaults(struct change *change, const uint64_t values[WEIR_LIMITS]) {
    struct weir_gpu *gpu = &change->state->gpus[change->gpu];
    if (weir_lock(&change->state->lock))
        return;
    for (uint32_t limit = 0; limit < WEIR_LIMITS && !gpu->limits_known; limit++)
        gpu->limit_defaults[limit] = values[limit];
    __atomic_store_n(&gpu->limits_known, 1, __ATOMIC_RELEASE);
    weir_unlock(&change->state->lock);
}

// Makes what stands for the context's limits what they take, out of that and what is in hand, and
// ends the turn. Where the driver does not tell, all of it stands until the next change. What is
// missing: then nothing has changed.
static uint64_t settle(struct change *change) {
    struct weir_state *state = change->state;
    uint64_t values[WEIR_LIMITS], missing = 0;
    const uint32_t *known = &state->gpus[change->gpu].limits_known;
    bool told = __atomic_load_n(known, __ATOMIC_ACQUIRE) && read_limits(values) == CUDA_SUCCESS;
    uint64_t takes = told ? bytes_of(change, values) : 0;
    if (weir_lock(&state->lock))
        return 0;
    struct weir_context *context = weir_contexts_find(state, change->context);
    uint64_t *stands = context ? &context->bytes[WEIR_PART_LIMIT] : NULL;
    if (context && context->counted != change->counted)
        stands = NULL;  // another context has its handle now
    if (stands && !told)
        takes = *stands + change->hand;
    if (stands && context->counted && takes > *stands + change->hand)
        missing = takes - *stands - change->hand;
    if (stands && !missing) {
        *stands += change->counted ? change->hand : takes;
        change->hand = 0;
        weir_contexts_give(state, context, WEIR_PART_LIMIT, *stands - takes);
    }
    if (context && !missing)
        context->changing = 0;
    weir_unlock(&state->lock);
    return missing;
}

// Ends a change. Where the driver has taken more than was asked for, and that is not to be had, it
// is undone.
static CUresult end(struct change *change, CUresult result, int limit) {
    uint64_t missing = settle(change);
    if (missing && weir_obtain(change->state, change->gpu, WEIR_KIND_LIMIT, missing) == 0) {
        change->hand += missing;
        missing = settle(change);
    }
    if (missing) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        WEIR_REAL(cuCtxSetLimit)(limit, (size_t)change->before);
        settle(change);
    }
    weir_give_back(change->state, change->gpu, change->hand);
    return result;
}

static CUresult begin(struct change *change, int limit, uint64_t value) {
    CUdevice device;
    CUcontext context;
    uint64_t values[WEIR_LIMITS];
    *change = (struct change){.state = NULL};
    if (weir_passing() || (unsigned)limit >= WEIR_LIMITS ||
        WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        WEIR_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = weir_obtain_enter(&change->state, device);
    if (result != CUDA_SUCCESS || !change->state)
        return result;
    change->gpu = (uint32_t)device;
    change->context = (uint64_t)(uintptr_t)context;
    change->threads = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                      attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    result = know_context(change);
    if (result != CUDA_SUCCESS)
        return result;
    wait_for_turn(change);
    result = read_limits(values);
    if (result != CUDA_SUCCESS)
        return end(change, result, limit);
    learn_defaults(change, values);
    change->before = values[limit];
    values[limit] = value;
    uint64_t takes = bytes_of(change, values);
    uint64_t more = change->counted && takes > change->stands ? takes - change->stands : 0;
    result = weir_obtain(change->state, change->gpu, WEIR_KIND_LIMIT, more);
    if (result == CUDA_SUCCESS)
        change->hand = more;
    else
        end(change, result, limit);
    return result;
}

CUresult weir_cuCtxSetLimit(int limit, size_t value) {
    struct change change;
    CUresult result = begin(&change, limit, value);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuCtxSetLimit)(limit, value);
    return change.state ? end(&change, result, limit) : result;
}
