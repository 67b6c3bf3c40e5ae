// code.c: see code.h.
#include "code.h"

#include "credit.h"
#include "hooks.h"
#include "note.h"

// Modules and libraries that are remembered. What is loaded beyond that stays charged until its
// context ends, or the process.
#define CODES_MAX 65536u
// So many are looked at in one go under the lock.
#define SWEEP_STEP 1024u
// Contexts may appear while the others are balanced; not for ever.
#define BALANCE_TRIES 64

enum {
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

struct weir_code {
    uint64_t chain;  // the slab's
    uint64_t handle;
    uint64_t bytes;
    uint64_t serial;
    uint64_t context;  // serial of its context; 0: a library
};

static const struct weir_slab_shape shape = {sizeof(struct weir_code), CODES_MAX, 1024};

static struct weir_code *code_at(struct weir_state *state, uint32_t number) {
    return weir_slab_at(&state->codes, &shape, number);
}

// ---- Images ----

// major * 10 + minor; 0 where the driver does not tell.
static uint32_t capability(struct weir_state *state, CUdevice device) {
    int major = 0, minor = 0;
    if ((unsigned)device >= WEIR_ORDINALS_MAX)
        return 0;
    uint32_t *known = &state->gpus[device].capability;
    uint32_t value = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (value ||
        WEIR_REAL(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                        device) != CUDA_SUCCESS ||
        WEIR_REAL(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                        device) != CUDA_SUCCESS)
        return value;
    value = (uint32_t)(major * 10 + minor);
    __atomic_store_n(known, value, __ATOMIC_RELAXED);
    return value;
}

// Reads what an image takes; 0 where that cannot be told. CUDA_SUCCESS, or why the driver is not to
// be asked.
static CUresult read_image(struct weir_loading *loading, const void *image, const char *path,
                           uint32_t device_capability) {
    struct weir_image read = {0, 0};
    int rc = 0;
    if (path)
        rc = weir_image_file_read(&loading->file, path, device_capability, &read);
    else
        weir_image_read(image, WEIR_IMAGE_LENGTH_UNKNOWN, device_capability, &read);
    loading->bytes = read.code_bytes + read.variable_bytes;
    return rc ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

// ---- The book ----

// Remembers what was loaded. Lock held.
static void remember(struct weir_state *state, uint64_t handle, uint64_t bytes, uint64_t context) {
    uint32_t number = weir_slab_new(&state->codes, &shape, weir_slab_hash(handle));
    if (!number)
        return;
    struct weir_code *code = code_at(state, number);
    code->handle = handle;
    code->bytes = bytes;
    code->serial = ++state->code_serial;
    code->context = context;
}

static struct weir_context *context_of(struct weir_state *state, uint64_t serial) {
    for (uint32_t i = 0; i < state->contexts_used; i++)
        if (state->contexts[i].handle && state->contexts[i].serial == serial)
            return &state->contexts[i];
    return NULL;
}

void weir_unload_begin(struct weir_unloading *unloading, uint64_t handle) {
    *unloading = (struct weir_unloading){.state = NULL};
    struct weir_state *state;
    if (!weir_enforced(&state) || weir_lock(&state->lock))
        return;
    uint32_t number = weir_slab_first(&state->codes, &shape, weir_slab_hash(handle));
    while (number && code_at(state, number)->handle != handle)
        number = weir_slab_next(&state->codes, &shape, number);
    if (number)
        *unloading = (struct weir_unloading){state, number, code_at(state, number)->serial};
    weir_unlock(&state->lock);
}

void weir_unload_end(const struct weir_unloading *unloading, CUresult result) {
    struct weir_state *state = unloading->state;
    if (!state || result != CUDA_SUCCESS || weir_lock(&state->lock))
        return;
    struct weir_code *code = code_at(state, unloading->number);
    int library = 0;
    if (code->serial == unloading->serial) {
        struct weir_context *context = code->context ? context_of(state, code->context) : NULL;
        library = !code->context;
        if (library)
            __atomic_store_n(&state->library_bytes, state->library_bytes - code->bytes,
                             __ATOMIC_RELAXED);
        else if (context)
            weir_contexts_give(state, context, WEIR_PART_CODE, code->bytes);
        code->serial = 0;
        weir_slab_free(&state->codes, &shape, weir_slab_hash(code->handle), unloading->number);
    }
    weir_unlock(&state->lock);
    if (library)
        weir_libraries_balance(state);
}

void weir_codes_move(struct weir_state *state, uint64_t from_serial, uint64_t to_serial) {
    for (uint32_t number = 1; number <= state->codes.used; number++)
        if (code_at(state, number)->context == from_serial)
            code_at(state, number)->context = to_serial;
}

void weir_codes_ended(struct weir_state *state, uint32_t ticket) {
    for (uint32_t number = 1, more = 1; more;) {
        if (weir_lock(&state->lock))
            return;
        uint32_t used = state->codes.used;
        for (uint32_t end = number + SWEEP_STEP; number <= used && number < end; number++) {
            struct weir_code *code = code_at(state, number);
            if (!code->serial || !code->context)
                continue;
            const struct weir_context *context = context_of(state, code->context);
            if (context && context->ticket != ticket)
                continue;
            code->serial = 0;
            weir_slab_free(&state->codes, &shape, weir_slab_hash(code->handle), number);
        }
        more = number <= used;
        weir_unlock(&state->lock);
    }
}

// ---- Modules ----

// The record of the current context; one that was not seen to begin is entered now.
static CUresult current_context(struct weir_loading *loading) {
    struct weir_state *state = loading->state;
    struct weir_context context;
    struct weir_terms terms;
    uint32_t place;
    if (weir_contexts_look(state, loading->context, &context) == 0) {
        loading->counted = context.counted;
        return CUDA_SUCCESS;
    }
    CUresult result = weir_terms_read(state, loading->gpu, &terms);
    if (result != CUDA_SUCCESS)
        return result;
    loading->counted = terms.counted;
    context = (struct weir_context){
        .handle = loading->context, .gpu = loading->gpu, .counted = terms.counted};
    weir_contexts_enter(state, &context, &place);
    return CUDA_SUCCESS;
}

CUresult weir_module_begin(struct weir_loading *loading, const void *image, const char *path) {
    CUdevice device;
    CUcontext context;
    *loading = (struct weir_loading){.state = NULL, .file.fd = -1};
    if (weir_passing() || (!image && !path))
        return CUDA_SUCCESS;
    if (WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        WEIR_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS;  // the driver has a better word for that
    CUresult result = weir_obtain_enter(&loading->state, device);
    if (result != CUDA_SUCCESS || !loading->state)
        return result;
    struct weir_state *state = loading->state;
    loading->gpu = (uint32_t)device;
    loading->context = (uint64_t)(uintptr_t)context;
    result = current_context(loading);
    if (result == CUDA_SUCCESS && weir_slab_ready(&state->codes, &shape, &state->lock) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return result;
    result = read_image(loading, image, path, capability(state, device));
    if (result == CUDA_SUCCESS && loading->counted)
        result = weir_obtain(state, loading->gpu, WEIR_KIND_CODE, loading->bytes);
    if (result != CUDA_SUCCESS)
        weir_image_file_close(&loading->file);
    return result;
}

CUresult weir_module_end(struct weir_loading *loading, CUresult result, CUmodule module) {
    struct weir_state *state = loading->state;
    weir_image_file_close(&loading->file);
    if (!state)
        return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, loading->gpu, loading->bytes);
    if (weir_lock(&state->lock))
        return result;
    // It may have been ended by another thread meanwhile, and the module with it.
    struct weir_context *context = weir_contexts_find(state, loading->context);
    if (result == CUDA_SUCCESS && context && context->counted == loading->counted) {
        remember(state, (uint64_t)(uintptr_t)module, loading->bytes, context->serial);
        context->bytes[WEIR_PART_CODE] += loading->bytes;
        weir_contexts_show(state);
    } else if (loading->counted) {
        weir_credit_give(state, loading->gpu, loading->bytes);
    }
    weir_unlock(&state->lock);
    return result;
}

// ---- Libraries ----

// What the contexts of each GPU lack of the libraries' code; those that have too much give it back,
// those that lack some get it if `hand` has enough for all. Whether it had. Lock held.
static int share_out(struct weir_state *state, uint64_t *hand, uint64_t *lacking) {
    int enough = 1;
    for (uint32_t i = 0; i < state->contexts_used; i++) {
        struct weir_context *context = &state->contexts[i];
        uint64_t has = context->bytes[WEIR_PART_LIBRARY];
        if (!context->handle && !context->making)
            continue;
        if (has > state->library_bytes)
            weir_contexts_give(state, context, WEIR_PART_LIBRARY, has - state->library_bytes);
        else if (context->counted)
            lacking[context->gpu] += state->library_bytes - has;
    }
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        enough &= hand[i] >= lacking[i];
    for (uint32_t i = 0; enough && i < state->contexts_used; i++) {
        struct weir_context *context = &state->contexts[i];
        if (!context->handle && !context->making)
            continue;
        if (context->counted)
            hand[context->gpu] -= state->library_bytes - context->bytes[WEIR_PART_LIBRARY];
        context->bytes[WEIR_PART_LIBRARY] = state->library_bytes;
    }
    weir_contexts_show(state);
    return enough;
}

static CUresult obtain_lacking(struct weir_state *state, uint64_t *hand, const uint64_t *lacking) {
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++) {
        uint64_t more = lacking[i] > hand[i] ? lacking[i] - hand[i] : 0;
        CUresult result = weir_obtain(state, i, WEIR_KIND_CODE, more);
        if (result != CUDA_SUCCESS)
            return result;
        hand[i] += more;
    }
    return CUDA_SUCCESS;
}

CUresult weir_libraries_balance(struct weir_state *state) {
    uint64_t hand[WEIR_ORDINALS_MAX] = {0};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < BALANCE_TRIES; i++) {
        uint64_t lacking[WEIR_ORDINALS_MAX] = {0};
        if (weir_lock(&state->lock))
            break;
        int done = share_out(state, hand, lacking);
        weir_unlock(&state->lock);
        result = done ? CUDA_SUCCESS : obtain_lacking(state, hand, lacking);
        if (done || result != CUDA_SUCCESS)
            break;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        weir_give_back(state, i, hand[i]);
    return result;
}

// Changes what all libraries take in one context, and all contexts' share with it.
static CUresult change_libraries(struct weir_state *state, uint64_t change) {
    if (weir_lock(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    __atomic_store_n(&state->library_bytes, state->library_bytes + change, __ATOMIC_RELAXED);
    weir_unlock(&state->lock);
    return weir_libraries_balance(state);
}

CUresult weir_library_begin(struct weir_loading *loading, const void *image, const char *path) {
    CUdevice device;
    *loading = (struct weir_loading){.state = NULL, .file.fd = -1};
    if (weir_passing() || (!image && !path))
        return CUDA_SUCCESS;
    if (WEIR_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        device = 0;  // of several kinds of devices in one process the first counts for all
    CUresult result = weir_obtain_enter(&loading->state, device);
    struct weir_state *state = loading->state;
    if (result != CUDA_SUCCESS || !state)
        return result;
    if (weir_slab_ready(&state->codes, &shape, &state->lock) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = read_image(loading, image, path, capability(state, device));
    if (result == CUDA_SUCCESS) {
        result = change_libraries(state, loading->bytes);
        if (result != CUDA_SUCCESS)
            change_libraries(state, -loading->bytes);
    }
    if (result != CUDA_SUCCESS)
        weir_image_file_close(&loading->file);
    return result;
}

CUresult weir_library_end(struct weir_loading *loading, CUresult result, CUlibrary library) {
    struct weir_state *state = loading->state;
    weir_image_file_close(&loading->file);
    if (!state)
        return result;
    if (result != CUDA_SUCCESS) {
        change_libraries(state, -loading->bytes);
    } else if (weir_lock(&state->lock) == 0) {
        remember(state, (uint64_t)(uintptr_t)library, loading->bytes, 0);
        weir_unlock(&state->lock);
    }
    return result;
}
