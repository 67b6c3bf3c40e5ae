// linker.c: several images linked into one.
//
// Inputs are PTX texts, alone or in fat binaries, and what was linked before. They are kept and put
// together by cuLinkComplete, whose result is PTX text again: there is no other machine code here.
// It lives as long as the linker. Nothing of it takes device memory. While one call works on a
// linker, no other may.
#define _GNU_SOURCE
#include "code.h"

#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX 1024u

struct linker {
    struct object object;
    bool busy;
    struct jit jit;  // of its creation: where later logs go
    CUjit_option *options;
    uint32_t gpu;
    struct sim_ptx_source *inputs;  // copies
    uint32_t count;
    char *result;
    size_t result_bytes;
};

static struct pool linkers = {.bytes = sizeof(struct linker), .most = 1u << 14};

// ---- Calls on a linker, without the driver's lock ----

static CUresult linker_enter(CUlinkState handle, struct linker **linker) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *linker = pool_get(&linkers, handle);
    if (!*linker || (*linker)->busy)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    (*linker)->busy = true;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult linker_leave(struct linker *linker, CUresult rc) {
    pthread_mutex_lock(&driver.lock);
    linker->busy = false;
    return driver_leave(rc);
}

API cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
    struct jit jit = {.count = count, .options = options, .values = values};
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    rc = out ? jit_check(&jit) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return driver_leave(rc);
    struct linker *linker = pool_take(&linkers);
    CUjit_option *kept = malloc((count + 1) * sizeof *kept);
    if (!linker || !kept) {
        free(kept);
        if (linker)
            pool_drop(&linkers, linker);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (count)
        memcpy(kept, options, count * sizeof *kept);
    linker->options = kept;  // the values stay the program's: results are written there
    linker->jit = (struct jit){.count = count, .options = kept, .values = values};
    linker->gpu = context->gpu;
    *out = (CUlinkState)linker;
    return driver_leave(CUDA_SUCCESS);
}

API cuLinkDestroy(CUlinkState handle) {
    struct linker *linker;
    CUresult rc = linker_enter(handle, &linker);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < linker->count; i++)
        free((char *)linker->inputs[i].text);
    free(linker->inputs);
    free(linker->options);
    free(linker->result);
    pthread_mutex_lock(&driver.lock);
    pool_drop(&linkers, linker);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Inputs ----

static CUresult keep(struct linker *linker, const char *text, size_t bytes) {
    void *inputs = realloc(linker->inputs, (linker->count + 1) * sizeof *linker->inputs);
    char *copy = malloc(bytes + 1);
    if (inputs)
        linker->inputs = inputs;
    if (!inputs || !copy || linker->count == INPUTS_MAX) {
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    linker->inputs[linker->count++] = (struct sim_ptx_source){.text = copy, .bytes = bytes};
    return CUDA_SUCCESS;
}

// A text that declares nothing of others must be good by itself, and is looked at at once.
static CUresult look_alone(struct linker *linker, const char *text, size_t bytes) {
    char log[SIM_PTX_LOG_BYTES] = "";
    struct sim_ptx_module *shape;
    struct image image = {.text = text, .bytes = bytes};
    if (memmem(text, bytes, ".extern", 7))
        return CUDA_SUCCESS;
    CUresult rc = (CUresult)code_look(&shape, &image, log);
    jit_write_log(&linker->jit, log);
    if (!rc)
        sim_ptx_forget(shape);
    return rc;
}

static CUresult add(struct linker *linker, CUjitInputType type, const void *data, size_t bytes) {
    struct image image;
    if (linker->result)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_JIT_INPUT_FATBINARY) {
        CUresult rc = image_find_fatbin(data, bytes, linker->gpu, &image);
        if (rc)
            return rc;
    } else if (type == CU_JIT_INPUT_PTX ||
               (type == CU_JIT_INPUT_CUBIN && !image_is_elf(data, bytes))) {
        image = (struct image){.text = data, .bytes = strnlen(data, bytes)};  // or linked before
    } else {
        return CUDA_ERROR_NO_BINARY_FOR_GPU;  // objects, archives: code for hardware
    }
    CUresult rc = look_alone(linker, image.text, image.bytes);
    return rc ? rc : keep(linker, image.text, image.bytes);
}

API cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
                     const char *name, unsigned int count, CUjit_option *options, void **values) {
    (void)name;
    struct jit jit = {.count = count, .options = options, .values = values};
    struct linker *linker;
    CUresult rc = linker_enter(handle, &linker);
    if (rc)
        return rc;
    rc = jit_check(&jit);
    if (!rc && (!data || !bytes || (unsigned)type > CU_JIT_INPUT_NVVM))
        rc = CUDA_ERROR_INVALID_VALUE;
    return linker_leave(linker, rc ? rc : add(linker, type, data, bytes));
}

API cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path, unsigned int count,
                     CUjit_option *options, void **values) {
    char *data;
    size_t bytes;
    CUresult rc = driver_check();
    if (!rc)
        rc = path ? image_read(path, &data, &bytes) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    rc = cuLinkAddData_v2(handle, type, data, bytes, path, count, options, values);
    free(data);
    return rc;
}

// ---- The result ----

static CUresult link_all(struct linker *linker) {
    char log[SIM_PTX_LOG_BYTES] = "", *text;
    struct sim_ptx_module *shape;
    size_t bytes;
    if (!linker->count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = (CUresult)sim_ptx_merge(linker->inputs, linker->count, &text, &bytes);
    if (rc)
        return rc;
    struct image image = {.text = text, .bytes = bytes};
    rc = (CUresult)code_look(&shape, &image, log);
    jit_write_log(&linker->jit, log);
    if (rc) {
        free(text);
        return rc;
    }
    sim_ptx_forget(shape);
    linker->result = text;
    linker->result_bytes = bytes + 1;  // with its zero
    return CUDA_SUCCESS;
}

API cuLinkComplete(CUlinkState handle, void **image, size_t *bytes) {
    struct linker *linker;
    CUresult rc = linker_enter(handle, &linker);
    if (rc)
        return rc;
    if (!image)
        return linker_leave(linker, CUDA_ERROR_INVALID_VALUE);
    if (!linker->result)
        rc = link_all(linker);
    if (!rc) {
        *image = linker->result;
        if (bytes)
            *bytes = linker->result_bytes;
    }
    return linker_leave(linker, rc);
}

// ---- The older names, whose arguments are the same where addresses have 64 bits ----

API cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *state) {
    return cuLinkCreate_v2(count, options, values, state);
}

API cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                  const char *name, unsigned int count, CUjit_option *options, void **values) {
    return cuLinkAddData_v2(state, type, data, bytes, name, count, options, values);
}

API cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                  CUjit_option *options, void **values) {
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}
