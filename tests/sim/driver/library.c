// library.c: libraries: code that is loaded for the process, and into each context as it is needed.
//
// A library takes no device memory by itself; its module in a context takes what any module takes.
// It is loaded into a context when a kernel, a variable or the module of it is wanted there or,
// where CUDA_MODULE_LOADING says EAGER, into all contexts at once and into each new one. The text
// is kept, and decoded once without memory to be asked for names and attributes. Managed variables
// are there once for all contexts; they end with the context that was the first to need them. One
// load of a library at a time.
#include "code.h"

#include <stdlib.h>
#include <string.h>

static struct pool libraries = {.bytes = sizeof(struct library), .most = 1u << 14};

struct library *library_get(CUlibrary handle) {
    return pool_get(&libraries, handle);
}

void library_forget(struct library *library, struct context *context) {
    library->modules[context->machine] = NULL;
    if (library->managed_context == context) {
        library->managed_context = NULL;
        library->managed = 0;
        library->managed_ready = false;
    }
}

// ---- The library's module in a context ----

static bool is_there(const struct library *library, uint64_t id) {
    return library->object.live && library->id == id;
}

// Waits until nobody loads it any more. False: it is gone.
static bool wait_idle(struct library *library) {
    uint64_t id = library->id;
    while (is_there(library, id) && library->busy)
        data_wait();
    return is_there(library, id);
}

CUresult library_module(struct library *library, struct context *context, struct module **out) {
    uint64_t id = context->id;
    char log[SIM_PTX_LOG_BYTES];
    if (!library->modules[context->machine] && !wait_idle(library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!context->object.live || context->id != id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    struct module *module = library->modules[context->machine];
    if (!module) {
        module = module_make(context, library);
        if (!module)
            return CUDA_ERROR_OUT_OF_MEMORY;
        library->busy = true;
        CUresult rc = module_load(module, &library->image, log);
        library->busy = false;
        if (rc)
            return rc;
        library->modules[context->machine] = module;
    }
    *out = module;
    return CUDA_SUCCESS;
}

CUresult libraries_load(struct context *context) {
    struct library *library;
    struct module *module;
    CUresult rc = CUDA_SUCCESS;
    for (uint32_t i = 0; !modules_lazy() && !rc && (library = pool_next(&libraries, &i)); i++)
        rc = library_module(library, context, &module);
    return rc;
}

static CUresult load_everywhere(struct library *library) {
    struct context *context;
    struct module *module;
    CUresult rc = CUDA_SUCCESS;
    for (uint32_t i = 0; !rc && (context = pool_next(&driver.contexts, &i)); i++)
        rc = library_module(library, context, &module);
    return rc;
}

// ---- Loading and the end ----

// Room and data for variables while the text is only looked at.
static int pretend_allocate(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                            uint64_t *address) {
    (void)user, (void)space, (void)bytes, (void)align;
    *address = SIM_GRANULE;
    return 0;
}

static int pretend_write(void *user, uint64_t address, const void *data, uint64_t bytes) {
    (void)user, (void)address, (void)data, (void)bytes;
    return 0;
}

int code_look(struct sim_ptx_module **shape, const struct image *image, char *log) {
    struct sim_ptx_memory memory = {.allocate = pretend_allocate, .write = pretend_write};
    return sim_ptx_load(shape, image->text, image->bytes, &memory, log);
}

// Nobody is let in meanwhile: the lock is dropped now and then.
static void unload(struct library *library) {
    library->busy = true;
    for (uint32_t i = 0; i < SIM_CONTEXTS_MAX; i++) {
        struct module *module = library->modules[i];
        if (!module)
            continue;
        context_settle(module->context);
        if (library->modules[i] == module) {
            library->modules[i] = NULL;
            module_unload(module);
        }
    }
    if (library->managed)
        memory_give(library->managed);
    kernels_drop(library);
    struct sim_ptx_module *shape = library->shape;
    free(library->text);
    pool_drop(&libraries, library);
    sim_ptx_forget(shape);
}

static CUresult library_add(char *text, const struct image *image, struct sim_ptx_module *shape,
                            CUlibrary *out) {
    struct library *library = pool_take(&libraries);
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->id = ++driver.ids;
    library->text = text;
    library->image = (struct image){.text = text, .bytes = image->bytes};
    library->shape = shape;
    CUresult rc = modules_lazy() ? CUDA_SUCCESS : load_everywhere(library);
    if (rc) {
        library->text = NULL;  // the caller's, as the shape is
        library->shape = NULL;
        unload(library);
    } else {
        *out = (CUlibrary)library;
    }
    return rc;
}

static CUresult library_load(CUlibrary *out, const void *data, const struct jit *jit) {
    char log[SIM_PTX_LOG_BYTES] = "";
    struct image image;
    struct sim_ptx_module *shape = NULL;
    char *text = NULL;
    CUresult rc = image_find(data, 0, &image);  // one choice for all devices
    if (!rc)
        rc = (CUresult)code_look(&shape, &image, log);
    jit_write_log(jit, log);
    if (!rc) {
        text = malloc(image.bytes + 1);
        rc = text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!rc)
        rc = driver_enter_unsafe();
    if (!rc) {
        memcpy(text, image.text, image.bytes);
        text[image.bytes] = 0;
        rc = driver_leave(library_add(text, &image, shape, out));
    }
    if (rc) {
        free(text);
        sim_ptx_forget(shape);
    }
    return rc;
}

static CUresult options_check(const struct jit *jit, const CUlibraryOption *options, void **values,
                              unsigned count) {
    if (count && !options)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)options[i] > CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_INVALID_VALUE;
        // The one is a table of host functions; the other, a promise, has no value.
        if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE && !values)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return jit_check(jit);
}

API cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *options, void **values,
                      unsigned int count, CUlibraryOption *library_options, void **library_values,
                      unsigned int library_count) {
    struct jit jit = {.count = count, .options = options, .values = values};
    CUresult rc = driver_check();
    if (rc)
        return rc;
    rc = options_check(&jit, library_options, library_values, library_count);
    if (!rc && (!out || !data))
        rc = CUDA_ERROR_INVALID_VALUE;
    return rc ? rc : library_load(out, data, &jit);
}

API cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *options, void **values,
                          unsigned int count, CUlibraryOption *library_options,
                          void **library_values, unsigned int library_count) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    char *data;
    size_t bytes;
    rc = image_read(path, &data, &bytes);
    if (rc)
        return rc;
    rc = cuLibraryLoadData(out, data, options, values, count, library_options, library_values,
                           library_count);
    free(data);
    return rc;
}

static CUresult library_enter(CUlibrary handle, struct library **library) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *library = library_get(handle);
    return *library ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuLibraryUnload(CUlibrary handle) {
    struct library *library;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    rc = capture_unsafe();
    if (!rc && !wait_idle(library))
        rc = CUDA_ERROR_INVALID_HANDLE;
    if (rc)
        return driver_leave(rc);
    unload(library);
    return driver_leave(CUDA_SUCCESS);
}

// ---- What a library has in the current context ----

static CUresult current_module(CUlibrary handle, struct module **module) {
    struct library *library;
    struct context *context;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    rc = context_current(&context);
    if (!rc)
        rc = library_module(library, context, module);
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

API cuLibraryGetModule(CUmodule *out, CUlibrary handle) {
    struct module *module;
    CUresult rc = driver_check();
    if (!rc)
        rc = out ? current_module(handle, &module) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    *out = (CUmodule)module;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult variable(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name,
                         bool managed) {
    struct module *module;
    CUresult rc = driver_check();
    if (!rc)
        rc = name ? current_module(handle, &module) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    const struct sim_ptx_variable *variable = sim_ptx_variable(module->ptx, name);
    if (!variable || (managed && variable->space != SIM_PTX_MANAGED))
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (address)
        *address = variable->address;
    if (bytes)
        *bytes = variable->bytes;
    return driver_leave(CUDA_SUCCESS);
}

API cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    return variable(address, bytes, library, name, false);
}

API cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    return variable(address, bytes, library, name, true);
}

// No device here has pointers that hold on host and device alike.
API cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *name) {
    struct library *library;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    return driver_leave(function && name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE);
}
