// context.c: primary and created contexts, and each thread's stack of current ones.
//
// A context takes device memory of the machine from its creation to its end. Destroying one waits
// for its data (not for its time): nothing of it is touched afterwards. A thread's stack may hold
// a context that another thread destroyed; the pool tells.
#include "array.h"
#include "code.h"
#include "green.h"
#include "share.h"

#include <stdlib.h>
#include <time.h>

#define STACK_MOST 64

static __thread struct {
    struct context *contexts[STACK_MOST];
    uint64_t ids[STACK_MOST];
    unsigned depth;
} stack;

// ---- The current context ----

CUresult context_current(struct context **context) {
    if (!stack.depth || !stack.contexts[stack.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = pool_get(&driver.contexts, stack.contexts[stack.depth - 1]);
    if (!*context || (*context)->id != stack.ids[stack.depth - 1])
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context_error(*context);
}

CUresult context_enter(struct context **context) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = context_current(context);
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

struct context *context_get(CUcontext handle) {
    return pool_get(&driver.contexts, handle);
}

static void set_top(struct context *context) {
    stack.contexts[stack.depth - 1] = context;
    stack.ids[stack.depth - 1] = context ? context->id : 0;
}

static CUresult push(struct context *context) {
    if (stack.depth == STACK_MOST)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth++;
    set_top(context);
    return CUDA_SUCCESS;
}

// ---- Making and ending ----

static struct context *context_init(uint32_t gpu, uint32_t number, unsigned flags) {
    struct context *context = pool_take(&driver.contexts);
    struct op *ops = calloc(SIM_QUEUE_MAX, sizeof *ops);
    if (!context || !ops) {
        free(ops);
        if (context)
            pool_drop(&driver.contexts, context);
        return NULL;
    }
    context->gpu = gpu;
    context->card = driver.cards[gpu];
    context->machine = number;
    context->flags = flags;
    context->version = 3020;
    context->id = ++driver.ids;
    context->ops = ops;
    context->uses = 1;
    context->losses = device_losses(gpu);
    context->legacy = (struct stream){.context = context, .id = ++driver.ids};
    context->leftover = (struct stream){.context = context, .id = ++driver.ids};
    limits_init(context);
    driver.by_machine[number] = context;
    return context;
}

static void context_end(struct context *context) {
    uint64_t id = context->id;
    if (driver.primary[context->gpu] == context)
        driver.primary[context->gpu] = NULL;
    ranges_drop(context);
    if (!context->object.live || context->id != id)
        return;  // another thread was faster
    externals_drop(context);
    context_forget_ops(context);
    modules_drop(context);
    textures_drop(context);
    arrays_drop(context);
    mipmaps_drop(context);
    events_drop(context);
    streams_drop(context);
    memory_drop(context);
    limits_end(context);
    coredump_end(context);
    driver.by_machine[context->machine] = NULL;
    sim_context_close(driver.machine, context->machine);
    free(context->ops);
    pool_drop(&driver.contexts, context);
}

CUresult context_make(uint32_t gpu, unsigned flags, struct context **context) {
    uint64_t create_ns = driver.config->gpus[gpu].context_create_ns;
    uint32_t number;
    CUresult lost = device_error(gpu);
    if (lost)
        return lost;
    if (sim_context_open(driver.machine, driver.cards[gpu], &number))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = context_init(gpu, number, flags);
    if (!*context) {
        sim_context_close(driver.machine, number);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (create_ns) {
        struct timespec time = {.tv_sec = (time_t)(create_ns / 1000000000u),
                                .tv_nsec = (long)(create_ns % 1000000000u)};
        pthread_mutex_unlock(&driver.lock);
        nanosleep(&time, NULL);
        pthread_mutex_lock(&driver.lock);
    }
    CUresult rc = libraries_load(*context);
    if (rc)
        context_end(*context);
    return rc;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned version) {
    if (!out || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    struct context *context;
    rc = context_make((uint32_t)device, flags, &context);
    if (!rc) {
        context->version = version;
        rc = push(context);
        if (rc)
            context_end(context);
        else
            *out = (CUcontext)context;
    }
    return driver_leave(rc);
}

API cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    return create(context, flags, device, 3010);
}

API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    return create(context, flags, device, 3020);
}

// A part of a device's multiprocessors is given to contexts by MPS, which is not there.
API cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                   CUdevice device) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (count < 0 || (count && !affinity))
        return CUDA_ERROR_INVALID_VALUE;
    return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(context, flags, device, 3020);
}

API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                   CUdevice device) {
    CUresult rc = driver_check();
    if (rc || !params)
        return rc ? rc : create(context, flags, device, 3020);
    if (params->cigParams)  // shared with a graphics queue: there is none
        return params->numExecAffinityParams ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v3(context, params->execAffinityParams, params->numExecAffinityParams, flags,
                          device);
}

// Unless another thread has ended it meanwhile.
void context_destroy(struct context *context) {
    uint64_t id = context->id;
    context_wait(context);
    if (context_get((CUcontext)context) == context && context->id == id) {
        if (stack.depth && stack.contexts[stack.depth - 1] == context)
            stack.depth--;
        context_end(context);
    }
}

API cuCtxDestroy_v2(CUcontext handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    if (!context || context->primary || context->green)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    context_destroy(context);
    return driver_leave(CUDA_SUCCESS);
}

API cuCtxDestroy(CUcontext handle) {
    return cuCtxDestroy_v2(handle);
}

// The oldest way to share a context: it is counted, and ends with the last detach.
API cuCtxAttach(CUcontext *handle, unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!handle || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    context->uses++;
    *handle = (CUcontext)context;
    return driver_leave(CUDA_SUCCESS);
}

API cuCtxDetach(CUcontext handle) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if ((CUcontext)context != handle)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context->uses > 1)
        context->uses--;
    else if (context->primary || context->green)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    else
        context_destroy(context);
    return driver_leave(rc);
}

// ---- Primary contexts ----

API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || !device_ok(device))
        return driver_leave(out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    struct context *context = driver.primary[device];
    if (!context) {
        rc = context_make((uint32_t)device, driver.primary_flags[device], &context);
        if (rc)
            return driver_leave(rc);
        // Another thread may have made it while the creation took its time.
        if (driver.primary[device]) {
            context_end(context);
            context = driver.primary[device];
        }
        context->primary = true;
        driver.primary[device] = context;
    }
    driver.retained[device]++;
    *out = (CUcontext)context;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult primary_end(CUdevice device, bool reset) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!reset && !driver.retained[device])
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    struct context *context = driver.primary[device];
    if ((reset || --driver.retained[device] == 0) && context) {
        uint64_t id = context->id;
        context_wait(context);
        // Another thread may have ended it meanwhile, or retained it again.
        bool wanted = !reset && driver.retained[device];
        if (!wanted && driver.primary[device] == context && context->id == id)
            context_end(context);
    }
    return driver_leave(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return primary_end(device, false);
}
API cuDevicePrimaryCtxRelease(CUdevice device) {
    return primary_end(device, false);
}
API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return primary_end(device, true);
}
API cuDevicePrimaryCtxReset(CUdevice device) {
    return primary_end(device, true);
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!flags || !active)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *active = driver.primary[device] != NULL;
    *flags = *active ? driver.primary[device]->flags : driver.primary_flags[device];
    return driver_leave(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    driver.primary_flags[device] = flags;
    if (driver.primary[device])
        driver.primary[device]->flags = flags;
    return driver_leave(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    bool active = device_ok(device) && driver.primary[device];
    driver_leave(CUDA_SUCCESS);
    return active ? CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
                  : cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

// ---- The thread's stack ----

API cuCtxPushCurrent_v2(CUcontext handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    return driver_leave(context ? push(context) : CUDA_ERROR_INVALID_CONTEXT);
}

API cuCtxPushCurrent(CUcontext handle) {
    return cuCtxPushCurrent_v2(handle);
}

API cuCtxPopCurrent_v2(CUcontext *handle) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!stack.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    if (handle)
        *handle = (CUcontext)stack.contexts[stack.depth];
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent(CUcontext *handle) {
    return cuCtxPopCurrent_v2(handle);
}

API cuCtxSetCurrent(CUcontext handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    if (handle && !context)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!handle && stack.depth)
        stack.depth--;
    else if (handle && stack.depth)
        set_top(context);
    else if (handle)
        rc = push(context);
    return driver_leave(rc);
}

API cuCtxGetCurrent(CUcontext *handle) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = stack.depth ? (CUcontext)stack.contexts[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API cuCtxSynchronize(void) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    return rc ? rc : driver_leave(context_wait(context));
}
