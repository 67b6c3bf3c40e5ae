// kernel.c: kernels: functions of a library that no context has yet, to be launched in any.
//
// In each context a kernel is a function of the library's module there, found again in a list.
#include "code.h"

#include <string.h>

static struct pool kernels = {.bytes = sizeof(struct kernel), .most = 1u << 18};

struct kernel *kernel_get(const void *handle) {
    return pool_get(&kernels, handle);
}

static struct kernel *kernel_of(struct library *library, const struct sim_ptx_function *ptx) {
    for (struct kernel *k = library->kernels; k; k = k->next)
        if (k->ptx == ptx)
            return k;
    struct kernel *kernel = pool_take(&kernels);
    if (!kernel)
        return NULL;
    kernel->id = ++driver.ids;
    kernel->library = library;
    kernel->ptx = ptx;
    kernel->next = library->kernels;
    library->kernels = kernel;
    for (uint32_t device = 0; device < driver.config->gpu_count; device++)
        attributes_init(kernel->settings[device], ptx);
    return kernel;
}

// Without their functions, which went with their modules.
void kernels_drop(struct library *library) {
    struct kernel *next;
    for (struct kernel *k = library->kernels; k; k = next) {
        next = k->next;
        pool_drop(&kernels, k);
    }
    library->kernels = NULL;
}

static struct function *find(const struct kernel *kernel, const struct context *context) {
    for (struct function *f = kernel->functions; f; f = f->next_of_kernel)
        if (f->module->context == context)
            return f;
    return NULL;
}

CUresult kernel_function(struct kernel *kernel, struct context *context, struct function **out) {
    *out = find(kernel, context);
    if (*out)
        return CUDA_SUCCESS;
    uint64_t id = kernel->id;
    struct module *module;
    CUresult rc = library_module(kernel->library, context, &module);
    if (rc)
        return rc;
    if (!kernel->object.live || kernel->id != id)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = find(kernel, context);  // another thread may have made it
    if (*out)
        return CUDA_SUCCESS;
    struct function *function = module_function(module, sim_ptx_info(kernel->ptx)->name);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->kernel = kernel;
    function->next_of_kernel = kernel->functions;
    kernel->functions = function;
    memcpy(function->attributes, kernel->settings[context->gpu], sizeof function->attributes);
    *out = function;
    return CUDA_SUCCESS;
}

// ---- Out of a library ----

static CUresult library_enter(CUlibrary handle, struct library **library) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *library = library_get(handle);
    return *library ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name) {
    struct library *library;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    if (!out || !name || !*name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct sim_ptx_function *ptx = sim_ptx_function(library->shape, name);
    if (!ptx)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    struct kernel *kernel = kernel_of(library, ptx);
    if (kernel)
        *out = (CUkernel)kernel;
    return driver_leave(kernel ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle) {
    struct library *library;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    if (!count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (*count = 0; sim_ptx_function_at(library->shape, *count);)
        ++*count;
    return driver_leave(CUDA_SUCCESS);
}

API cuLibraryEnumerateKernels(CUkernel *out, unsigned int most, CUlibrary handle) {
    struct library *library;
    CUresult rc = library_enter(handle, &library);
    if (rc)
        return rc;
    if (!out)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct sim_ptx_function *ptx;
    for (unsigned i = 0; i < most && (ptx = sim_ptx_function_at(library->shape, i)); i++) {
        struct kernel *kernel = kernel_of(library, ptx);
        if (!kernel)
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        out[i] = (CUkernel)kernel;
    }
    return driver_leave(CUDA_SUCCESS);
}

// ---- Kernels ----

static CUresult kernel_enter(CUkernel handle, struct kernel **kernel) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *kernel = kernel_get(handle);
    return *kernel ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuKernelGetFunction(CUfunction *out, CUkernel handle) {
    struct kernel *kernel;
    struct context *context;
    struct function *function;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    rc = out ? context_current(&context) : CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = kernel_function(kernel, context, &function);
    if (!rc) {
        function->loaded = true;
        *out = (CUfunction)function;
    }
    return driver_leave(rc);
}

API cuKernelGetLibrary(CUlibrary *library, CUkernel handle) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    if (library)
        *library = (CUlibrary)kernel->library;
    return driver_leave(library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuKernelGetName(const char **name, CUkernel handle) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    if (name)
        *name = sim_ptx_info(kernel->ptx)->name;
    return driver_leave(name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    return driver_leave(param_info(kernel->ptx, index, offset, bytes));
}

API cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle,
                         CUdevice device) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    return driver_leave(attribute_get(kernel->settings[device], kernel->ptx, attribute, value));
}

// Holds in all contexts of the device, those that have the function already too.
API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                         CUdevice device) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    rc = attribute_set(kernel->settings[device], kernel->ptx, device, attribute, value);
    for (struct function *f = kernel->functions; f && !rc; f = f->next_of_kernel)
        if (f->module->context->gpu == (uint32_t)device)
            f->attributes[attribute] = value;
    return driver_leave(rc);
}

API cuKernelSetCacheConfig(CUkernel handle, int config, CUdevice device) {
    struct kernel *kernel;
    CUresult rc = kernel_enter(handle, &kernel);
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    return driver_leave(config >= 0 && config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
