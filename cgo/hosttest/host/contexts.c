// contexts.c: the driver's contexts, modules, libraries and limits where these take memory, and
// threads that make and end them at random. Installed on demand: other tests have contexts that
// take nothing.
//
// Handles are used again at once. A context's modules and limits end with it; its allocations are
// in other books and none are made here.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../hooks.h"
#include "../../state.h"
#include "driver.h"
#include "host.h"

enum { PLACES = 128, MODULES = 256, THREADS_MAX = 16, OWN = 6, LIMITS = 3 };
#define FIRST_HANDLE 50000u
#define MODULE_HANDLE 0x10000u
#define LIBRARY_HANDLE 0x20000u
#define DEVICE_THREADS 4096u

static const size_t limit_defaults[LIMITS] = {1024, 1 << 20, 8 << 20};

struct context {
    int alive, device;
    uint64_t limit_bytes;
    size_t limits[LIMITS];
};

struct code {
    int context;  // place + 1; 0: this place is free
    uint64_t bytes;
};

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[PLACES];
static struct code modules[MODULES];
static uint64_t libraries[MODULES];  // bytes
static uint64_t context_bytes, library_bytes;
static int primary[TEST_GPUS], retained[TEST_GPUS];  // place + 1

static const char images[4][128] = {
    ".version 7.0\n.visible .global .align 4 .b8 a[1000];\n",
    ".version 7.0\n.visible .global .b64 a[100][10];\n.const .u32 b;\n",
    ".version 7.0\n.entry f() { ret; }\n",
    ".version 7.0\n.global .v4 .f32 big[20000];\n",
};
static const uint64_t variables[4] = {1024, 8192 + 512, 0, 320000};

static uint64_t image_bytes(const char *image) {
    uint64_t which = (uint64_t)(image - images[0]) / sizeof(images[0]);
    return test_driver_round(strlen(image), 512) + variables[which];
}

static int place_of(CUcontext context) {
    uint64_t place = (uint64_t)(uintptr_t)context - FIRST_HANDLE;
    return place < PLACES && contexts[place].alive ? (int)place : -1;
}

static int current_place(void) {
    CUcontext current;
    WEIR_REAL(cuCtxGetCurrent)(&current);
    return place_of(current);
}

// ---- Contexts ----

static CUresult make(int device, int *place) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    int code = test_driver_failure();
    if (code)
        return code;
    for (*place = 0; *place < PLACES && contexts[*place].alive; ++*place) {
    }
    if (*place == PLACES || !test_driver_take(device, context_bytes + library_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct context *context = &contexts[*place];
    *context = (struct context){.alive = 1, .device = device};
    memcpy(context->limits, limit_defaults, sizeof(context->limits));
    test_driver_place_context(FIRST_HANDLE + (uint64_t)*place, device);
    return CUDA_SUCCESS;
}

static void end(int place) {
    struct context *context = &contexts[place];
    uint64_t bytes = context_bytes + library_bytes + context->limit_bytes;
    for (int i = 0; i < MODULES; i++)
        if (modules[i].context == place + 1) {
            bytes += modules[i].bytes;
            modules[i].context = 0;
        }
    context->alive = 0;
    test_driver_give(context->device, bytes);
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device) {
    int place;
    (void)flags;
    test_driver_dawdle();
    pthread_mutex_lock(&driver_lock);
    CUresult result = make(device, &place);
    pthread_mutex_unlock(&driver_lock);
    if (result)
        return result;
    *out = (CUcontext)(uintptr_t)(FIRST_HANDLE + (uint64_t)place);
    test_driver_use_context(FIRST_HANDLE + (uint64_t)place);
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext context) {
    pthread_mutex_lock(&driver_lock);
    int place = place_of(context);
    CUresult result = place < 0 ? CUDA_ERROR_INVALID_CONTEXT : test_driver_failure();
    for (int i = 0; i < TEST_GPUS; i++)
        if (place >= 0 && primary[i] == place + 1)
            result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        end(place);
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult retain(CUcontext *out, CUdevice device) {
    CUresult result = CUDA_SUCCESS;
    test_driver_dawdle();
    pthread_mutex_lock(&driver_lock);
    if (!primary[device]) {
        int place;
        result = make(device, &place);
        if (result == CUDA_SUCCESS)
            primary[device] = place + 1;
    }
    if (result == CUDA_SUCCESS) {
        retained[device]++;
        *out = (CUcontext)(uintptr_t)(FIRST_HANDLE + (uint64_t)primary[device] - 1);
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult end_primary(CUdevice device, int reset) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver_lock);
    if (!reset && !retained[device])
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if ((reset || --retained[device] == 0) && primary[device]) {
        end(primary[device] - 1);
        primary[device] = 0;
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult release(CUdevice device) {
    return end_primary(device, 0);
}

static CUresult reset(CUdevice device) {
    return end_primary(device, 1);
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active) {
    pthread_mutex_lock(&driver_lock);
    *flags = 0;
    *active = primary[device] != 0;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

// ---- Limits ----

static uint64_t limit_bytes(const size_t limits[LIMITS]) {
    uint64_t sum = 0;
    for (int i = 0; i < LIMITS; i++)
        if (limits[i] > limit_defaults[i])
            sum +=
                test_driver_round((limits[i] - limit_defaults[i]) * (i ? 1 : DEVICE_THREADS), 512);
    return sum;
}

static CUresult get_limit(size_t *value, int limit) {
    pthread_mutex_lock(&driver_lock);
    int place = current_place();
    CUresult result = place < 0 || limit >= LIMITS ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *value = contexts[place].limits[limit];
    pthread_mutex_unlock(&driver_lock);
    return result;
}

static CUresult set_limit(int limit, size_t value) {
    test_driver_dawdle();
    pthread_mutex_lock(&driver_lock);
    int place = current_place();
    CUresult result =
        place < 0 || limit >= LIMITS ? CUDA_ERROR_INVALID_CONTEXT : test_driver_failure();
    if (result == CUDA_SUCCESS) {
        struct context *context = &contexts[place];
        size_t limits[LIMITS];
        memcpy(limits, context->limits, sizeof(limits));
        limits[limit] = value;
        uint64_t wanted = limit_bytes(limits), has = context->limit_bytes;
        if (wanted > has && !test_driver_take(context->device, wanted - has))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (wanted < has)
            test_driver_give(context->device, has - wanted);
        if (result == CUDA_SUCCESS) {
            context->limit_bytes = wanted;
            context->limits[limit] = value;
        }
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult attribute(int *value, int number, CUdevice device) {
    (void)device;
    *value = number == 75 ? 8 : number == 76 ? 0 : number == 16 ? 4 : 1024;
    return CUDA_SUCCESS;
}

// ---- Code ----

static CUresult load(CUmodule *module, const void *image) {
    test_driver_dawdle();
    pthread_mutex_lock(&driver_lock);
    int place = current_place(), at = 0;
    while (at < MODULES && modules[at].context)
        at++;
    CUresult result = place < 0 ? CUDA_ERROR_INVALID_CONTEXT : test_driver_failure();
    uint64_t bytes = image_bytes(image);
    if (result == CUDA_SUCCESS &&
        (at == MODULES || !test_driver_take(contexts[place].device, bytes)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        modules[at] = (struct code){place + 1, bytes};
        *module = (CUmodule)(uintptr_t)(MODULE_HANDLE + (uint64_t)at);
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult unload(CUmodule module) {
    uint64_t at = (uint64_t)(uintptr_t)module - MODULE_HANDLE;
    pthread_mutex_lock(&driver_lock);
    CUresult result =
        at < MODULES && modules[at].context ? test_driver_failure() : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        test_driver_give(contexts[modules[at].context - 1].device, modules[at].bytes);
        modules[at].context = 0;
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

// Takes or gives what a library is in all contexts; with too little it takes nothing.
static CUresult spread(uint64_t bytes, int take) {
    uint64_t count[TEST_GPUS] = {0};
    for (int i = 0; i < PLACES; i++)
        if (contexts[i].alive)
            count[contexts[i].device]++;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        if (!take)
            test_driver_give(gpu, count[gpu] * bytes);
        else if (!test_driver_take(gpu, count[gpu] * bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;  // cards are large: never
    }
    library_bytes += take ? bytes : -bytes;
    return CUDA_SUCCESS;
}

static CUresult load_library(CUlibrary *library, const void *image, int *jit_options,
                             void **jit_values, unsigned jit_count, int *options, void **values,
                             unsigned count) {
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    pthread_mutex_lock(&driver_lock);
    int at = 0;
    while (at < MODULES && libraries[at])
        at++;
    CUresult result = at == MODULES ? CUDA_ERROR_OUT_OF_MEMORY : test_driver_failure();
    if (result == CUDA_SUCCESS)
        result = spread(image_bytes(image), 1);
    if (result == CUDA_SUCCESS) {
        libraries[at] = image_bytes(image);
        *library = (CUlibrary)(uintptr_t)(LIBRARY_HANDLE + (uint64_t)at);
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static CUresult unload_library(CUlibrary library) {
    uint64_t at = (uint64_t)(uintptr_t)library - LIBRARY_HANDLE;
    pthread_mutex_lock(&driver_lock);
    CUresult result = at < MODULES && libraries[at] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        spread(libraries[at], 0);
        libraries[at] = 0;
    }
    pthread_mutex_unlock(&driver_lock);
    test_driver_dawdle();
    return result;
}

static void install(uint64_t bytes) {
    context_bytes = bytes;
    INSTALL(cuCtxCreate_v2, create);
    INSTALL(cuCtxDestroy_v2, destroy);
    INSTALL(cuDevicePrimaryCtxRetain, retain);
    INSTALL(cuDevicePrimaryCtxRelease_v2, release);
    INSTALL(cuDevicePrimaryCtxReset_v2, reset);
    INSTALL(cuDevicePrimaryCtxGetState, primary_state);
    INSTALL(cuCtxGetLimit, get_limit);
    INSTALL(cuCtxSetLimit, set_limit);
    INSTALL(cuDeviceGetAttribute, attribute);
    INSTALL(cuModuleLoadData, load);
    INSTALL(cuModuleUnload, unload);
    INSTALL(cuLibraryLoadData, load_library);
    INSTALL(cuLibraryUnload, unload_library);
}

// ---- Threads at random ----

struct worker {
    pthread_t thread;
    uint64_t seed;
    double deadline_ms;
    CUcontext own[OWN];
    CUmodule module[OWN];
    CUcontext module_of[OWN];  // its context
    CUlibrary library[OWN];
    int retains[TEST_GPUS];
    int failures;  // some calls are told to fail
    int wrong;
};

static uint64_t draw(struct worker *worker, uint64_t below) {
    return test_random(&worker->seed) % below;
}

static void check(struct worker *worker, const char *call, CUresult result) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY || worker->failures)
        return;
    fprintf(stderr, "%s: %d\n", call, result);
    worker->wrong++;
}

// A context is about to end, or may be: what was loaded into it is not the worker's any more. (The
// handle of a module that has ended may be another's.)
static void forget_modules(struct worker *worker, CUcontext context) {
    for (int i = 0; i < OWN; i++)
        if (worker->module_of[i] == context)
            worker->module[i] = NULL;
}

// Makes one of the worker's contexts current, or the primary one that it has retained; NULL where
// there is none.
static CUcontext use_some(struct worker *worker) {
    CUcontext context = worker->own[draw(worker, OWN)];
    int gpu = (int)draw(worker, TEST_GPUS);
    if (!context && worker->retains[gpu]) {
        pthread_mutex_lock(&driver_lock);
        if (primary[gpu])
            context = (CUcontext)(uintptr_t)(FIRST_HANDLE + (uint64_t)primary[gpu] - 1);
        pthread_mutex_unlock(&driver_lock);
    }
    if (context)
        test_driver_use_context((uint64_t)(uintptr_t)context);
    return context;
}

static void change_context(struct worker *worker) {
    CUcontext *own = &worker->own[draw(worker, OWN)], made;
    if (!*own) {
        CUresult result = weir_cuCtxCreate_v2(&made, 0, (int)draw(worker, TEST_GPUS));
        check(worker, "create", result);
        if (result == CUDA_SUCCESS)
            *own = made;
    } else {
        CUresult result = weir_cuCtxDestroy_v2(*own);
        if (result == CUDA_SUCCESS)
            forget_modules(worker, *own);
        check(worker, "destroy", result);
        if (result == CUDA_SUCCESS)
            *own = NULL;
    }
}

static void change_primary(struct worker *worker) {
    int gpu = (int)draw(worker, TEST_GPUS);
    CUcontext context;
    if (worker->retains[gpu] && draw(worker, 2)) {
        if (worker->retains[gpu] == 1)
            forget_modules(worker,
                           (CUcontext)(uintptr_t)(FIRST_HANDLE + (uint64_t)primary[gpu] - 1));
        check(worker, "release", weir_cuDevicePrimaryCtxRelease_v2(gpu));
        worker->retains[gpu]--;
    } else if (worker->retains[gpu] < 3) {
        CUresult result = weir_cuDevicePrimaryCtxRetain(&context, gpu);
        check(worker, "retain", result);
        worker->retains[gpu] += result == CUDA_SUCCESS;
    }
}

static void change_module(struct worker *worker) {
    int i = (int)draw(worker, OWN);
    if (worker->module[i]) {
        CUresult result = weir_cuModuleUnload(worker->module[i]);
        check(worker, "unload", result);
        if (result == CUDA_SUCCESS)
            worker->module[i] = NULL;
        return;
    }
    worker->module_of[i] = use_some(worker);
    if (worker->module_of[i])
        check(worker, "load", weir_cuModuleLoadData(&worker->module[i], images[draw(worker, 4)]));
}

static void change_library(struct worker *worker) {
    CUlibrary *library = &worker->library[draw(worker, OWN)];
    if (*library) {
        check(worker, "unload library", weir_cuLibraryUnload(*library));
        *library = NULL;
    } else {
        check(
            worker, "library",
            weir_cuLibraryLoadData(library, images[draw(worker, 3)], NULL, NULL, 0, NULL, NULL, 0));
    }
}

static void change_limit(struct worker *worker) {
    static const size_t steps[LIMITS] = {64, 100000, 1 << 20};
    int limit = (int)draw(worker, LIMITS);
    size_t value = limit_defaults[limit] + (draw(worker, 8) - 2) * steps[limit];
    if (use_some(worker))
        check(worker, "limit", weir_cuCtxSetLimit(limit, value));
}

static void *work(void *argument) {
    struct worker *worker = argument;
    while (now_ms() < worker->deadline_ms) {
        if (worker->failures && draw(worker, 10) == 0)
            __atomic_store_n(&test_driver.fail_code, 999, __ATOMIC_RELAXED);
        switch (draw(worker, 8)) {
        case 0:
        case 1:
            change_context(worker);
            break;
        case 2:
        case 3:
            change_primary(worker);
            break;
        case 4:
        case 5:
            change_module(worker);
            break;
        case 6:
            change_library(worker);
            break;
        default:
            change_limit(worker);
        }
    }
    return NULL;
}

static void give_all(struct worker *worker) {
    __atomic_store_n(&test_driver.fail_code, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < OWN; i++) {
        if (worker->own[i])
            check(worker, "destroy", weir_cuCtxDestroy_v2(worker->own[i]));
        if (worker->library[i])
            check(worker, "unload library", weir_cuLibraryUnload(worker->library[i]));
        worker->own[i] = NULL;
        worker->library[i] = NULL;
        worker->module[i] = NULL;
    }
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        for (; worker->retains[gpu]; worker->retains[gpu]--)
            check(worker, "release", weir_cuDevicePrimaryCtxRelease_v2(gpu));
}

static int compare(const char *when) {
    int wrong = 0;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        uint64_t owned = weir_state_page->gpus[gpu].owned_bytes;
        if (owned == test_driver.used_bytes[gpu])
            continue;
        fprintf(stderr, "%s, GPU %d: %" PRIu64 " bytes owned, %" PRIu64 " used\n", when, gpu, owned,
                test_driver.used_bytes[gpu]);
        wrong++;
    }
    return wrong;
}

static int test_contexts(int threads, int ms, int rounds, uint64_t seed, int failures) {
    static struct worker workers[THREADS_MAX];
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        double deadline_ms = now_ms() + ms;
        for (int i = 0; i < threads; i++) {
            workers[i].seed = seed + (uint64_t)(round * 100 + i) * 7919 + 1;
            workers[i].deadline_ms = deadline_ms;
            workers[i].failures = failures;
            pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        for (int i = 0; i < threads; i++)
            pthread_join(workers[i].thread, NULL);
        wrong += compare("at rest");
    }
    for (int i = 0; i < threads; i++) {
        give_all(&workers[i]);
        wrong += workers[i].wrong;
    }
    wrong += compare("in the end");
    return wrong + (int)test_driver.violations;
}

int test_contexts_command(char **words) {
    uint64_t handle = number(words[1]);
    void *made = NULL;
    CUresult result;
    if (!strcmp(words[0], "contexts-take")) {
        install(handle);
        say(0, 0);
    } else if (!strcmp(words[0], "ctx-create")) {
        result = weir_cuCtxCreate_v2((CUcontext *)&made, 0, (int)handle);
        say(result, (uint64_t)(uintptr_t)made);
    } else if (!strcmp(words[0], "ctx-load")) {
        result = weir_cuModuleLoadData((CUmodule *)&made, images[handle % 4]);
        say(result, (uint64_t)(uintptr_t)made);
    } else if (!strcmp(words[0], "ctx-unload")) {
        say(weir_cuModuleUnload((CUmodule)(uintptr_t)handle), 0);
    } else if (!strcmp(words[0], "ctx-limit")) {
        say(weir_cuCtxSetLimit((int)handle, number(words[2])), 0);
    } else if (!strcmp(words[0], "contexts")) {
        say(0, (uint64_t)test_contexts((int)number(words[1]), (int)number(words[2]),
                                       (int)number(words[3]), number(words[4]),
                                       (int)number(words[5])));
    } else {
        return 0;
    }
    return 1;
}
