// module.c: modules: code in a context, and the device memory that it takes.
//
// A module takes its image's bytes and each of its variables from the card, each rounded up to
// SIM_GRANULE, from its load to its end; a load that does not fit takes nothing. Parsing is done
// without the driver's lock, since it may take long: meanwhile the module is `loading`, nobody can
// name it, and a context that ends leaves it without one. Its functions become handles when they
// are asked for. A kernel whose name begins with weir_spin_ns takes what its first parameter says,
// in ns, and computes nothing; a module with a .global .u64 variable weir_sim_cost_ns sets the cost
// of all of its kernels by it.
#include "code.h"

#include <stdlib.h>
#include <string.h>

#define SPIN_PREFIX "weir_spin_ns"
#define COST_VARIABLE "weir_sim_cost_ns"
#define LAZY_SINCE 12020  // the driver version from which code is loaded lazily unless told not to

struct module *module_get(CUmodule handle) {
    struct module *module = pool_get(&driver.modules, handle);
    return module && !module->loading ? module : NULL;
}

bool modules_lazy(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    if (mode && !strcmp(mode, "EAGER"))
        return false;
    return (mode && !strcmp(mode, "LAZY")) || driver_version() >= LAZY_SINCE;
}

// ---- Memory of variables, as the interpreter asks for it ----

// The managed variables of a library are there once for all contexts.
static uint64_t *shared_managed(const struct module *module, enum sim_ptx_space space) {
    return module->library && space == SIM_PTX_MANAGED ? &module->library->managed : NULL;
}

static CUresult take(struct module *module, enum sim_ptx_space space, uint64_t bytes,
                     uint64_t *address) {
    uint64_t *shared = shared_managed(module, space);
    if (!module->context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (shared && *shared) {
        *address = *shared;
        return CUDA_SUCCESS;
    }
    enum block_kind kind = space == SIM_PTX_MANAGED ? BLOCK_MANAGED : BLOCK_PLAIN;
    CUresult rc = memory_take(module->context, bytes, kind, address);
    if (!rc)
        memory_keep(*address);
    if (!rc && shared) {
        *shared = *address;
        module->library->managed_context = module->context;
        module->library->managed_ready = false;
    } else if (!rc) {
        module->variables[space] = *address;
    }
    return rc;
}

static int allocate(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                    uint64_t *address) {
    if (align > SIM_GRANULE)
        return CUDA_ERROR_INVALID_PTX;
    pthread_mutex_lock(&driver.lock);
    return (int)driver_leave(take(user, space, bytes, address));
}

// Managed variables that another context has in use keep their values.
static int write(void *user, uint64_t address, const void *data, uint64_t bytes) {
    struct module *module = user;
    struct arena *arena;
    pthread_mutex_lock(&driver.lock);
    struct block *block = memory_find(address, &arena);
    bool used =
        block && block->kind == BLOCK_MANAGED && module->library && module->library->managed_ready;
    driver_leave(CUDA_SUCCESS);
    return used ? CUDA_SUCCESS : kernel_memory.write(user, address, data, bytes);
}

// ---- Loading ----

struct module *module_make(struct context *context, struct library *library) {
    struct module *module = pool_take(&driver.modules);
    if (module) {
        module->context = context;
        module->library = library;
        module->loading = true;
    }
    return module;
}

// Gives back what variables of its own it has, as far as its context lives; and those of its
// library that its load has taken in vain.
static void give_variables(struct module *module) {
    struct library *library = module->library;
    if (library && library->managed && !library->managed_ready) {
        uint64_t address = library->managed;
        library->managed = 0;
        memory_give(address);
    }
    for (unsigned space = 0; space < SIM_PTX_SPACES; space++) {
        uint64_t address = module->variables[space];
        module->variables[space] = 0;
        if (module->context && address)
            memory_give(address);
    }
}

static void adopt(struct module *module, struct sim_ptx_module *ptx) {
    module->ptx = ptx;
    module->cost = sim_ptx_variable(ptx, COST_VARIABLE);
    if (module->cost && module->cost->bytes < sizeof(uint64_t))
        module->cost = NULL;
    if (module->library)
        module->library->managed_ready = module->library->managed != 0;
    module->loading = false;
}

CUresult module_load(struct module *module, const struct image *image, char *log) {
    uint64_t charge = image_charge(image->bytes);
    uint32_t card = module->context->card;
    if (sim_memory_take(driver.machine, card, charge)) {
        pool_drop(&driver.modules, module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_ptx_memory memory = {.user = module, .allocate = allocate, .write = write};
    struct sim_ptx_module *ptx;
    driver_leave(CUDA_SUCCESS);
    CUresult rc = (CUresult)sim_ptx_load(&ptx, image->text, image->bytes, &memory, log);
    pthread_mutex_lock(&driver.lock);
    if (!rc && !module->context) {
        sim_ptx_forget(ptx);
        rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (rc) {
        give_variables(module);
        sim_memory_give(driver.machine, card, charge);
        pool_drop(&driver.modules, module);
    } else {
        module->code_bytes = charge;
        adopt(module, ptx);
    }
    pthread_cond_broadcast(&driver.done);  // others may wait for this load
    return rc;
}

static CUresult load(CUmodule *out, const void *data, const struct jit *jit) {
    struct context *context;
    struct image image;
    char log[SIM_PTX_LOG_BYTES] = "";
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    rc = image_find(data, context->gpu, &image);
    if (!rc) {
        struct module *module = module_make(context, NULL);
        rc = module ? module_load(module, &image, log) : CUDA_ERROR_OUT_OF_MEMORY;
        if (!rc)
            *out = (CUmodule)module;
    }
    driver_leave(rc);
    jit_write_log(jit, log);
    return rc;
}

API cuModuleLoadDataEx(CUmodule *out, const void *data, unsigned int count, CUjit_option *options,
                       void **values) {
    struct jit jit = {.count = count, .options = options, .values = values};
    CUresult rc = driver_check();
    if (!rc)
        rc = out && data ? jit_check(&jit) : CUDA_ERROR_INVALID_VALUE;
    return rc ? rc : load(out, data, &jit);
}

API cuModuleLoadData(CUmodule *out, const void *data) {
    return cuModuleLoadDataEx(out, data, 0, NULL, NULL);
}

API cuModuleLoadFatBinary(CUmodule *out, const void *data) {
    return cuModuleLoadDataEx(out, data, 0, NULL, NULL);
}

API cuModuleLoad(CUmodule *out, const char *path) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!out || !path)
        return CUDA_ERROR_INVALID_VALUE;
    char *data;
    size_t bytes;
    rc = image_read(path, &data, &bytes);
    if (rc)
        return rc;
    rc = cuModuleLoadDataEx(out, data, 0, NULL, NULL);
    free(data);
    return rc;
}

API cuModuleGetLoadingMode(int *mode) {
    CUresult rc = driver_check();
    if (rc || !mode)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *mode = modules_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

// ---- The end ----

static void leave_kernel(struct function *function) {
    struct kernel *kernel = function->kernel;
    struct function **link = kernel ? &kernel->functions : NULL;
    while (link && *link && *link != function)
        link = &(*link)->next_of_kernel;
    if (link && *link)
        *link = function->next_of_kernel;
}

static void functions_drop(struct module *module) {
    struct function *next;
    for (struct function *f = module->functions; f; f = next) {
        next = f->next;
        leave_kernel(f);
        pool_drop(&driver.functions, f);
    }
    module->functions = NULL;
}

void module_unload(struct module *module) {
    uint32_t card = module->context->card;
    uint64_t bytes = module->code_bytes;
    struct sim_ptx_module *ptx = module->ptx;
    module->loading = true;  // what remains may take time, and nobody may name it any more
    functions_drop(module);
    give_variables(module);
    pool_drop(&driver.modules, module);
    sim_memory_give(driver.machine, card, bytes);
    sim_ptx_forget(ptx);
}

API cuModuleUnload(CUmodule handle) {
    CUresult rc = driver_enter_unsafe();
    if (rc)
        return rc;
    struct module *module = module_get(handle);
    if (!module)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (module->library)
        return driver_leave(CUDA_ERROR_NOT_PERMITTED);
    context_settle(module->context);
    if (module_get(handle) != module)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);  // another thread was faster
    module_unload(module);
    return driver_leave(CUDA_SUCCESS);
}

// The variables' memory goes with the context's own.
void modules_drop(struct context *context) {
    struct module *module;
    for (uint32_t i = 0; (module = pool_next(&driver.modules, &i)); i++) {
        if (module->context != context)
            continue;
        if (module->library)
            library_forget(module->library, context);
        if (module->loading) {  // another thread ends it
            module->context = NULL;
            continue;
        }
        functions_drop(module);
        sim_memory_give(driver.machine, context->card, module->code_bytes);
        sim_ptx_forget(module->ptx);
        pool_drop(&driver.modules, module);
    }
}

// ---- Look-ups ----

static struct function *function_of(struct module *module, const struct sim_ptx_function *ptx) {
    for (struct function *f = module->functions; f; f = f->next)
        if (f->ptx == ptx)
            return f;
    struct function *function = pool_take(&driver.functions);
    if (!function)
        return NULL;
    function->id = ++driver.ids;
    const struct sim_ptx_function_info *info = sim_ptx_info(ptx);
    struct sim_ptx_param first;
    function->module = module;
    function->ptx = ptx;
    function->next = module->functions;
    function->spins = !strncmp(info->name, SPIN_PREFIX, sizeof SPIN_PREFIX - 1) &&
                      sim_ptx_param(ptx, 0, &first) && first.bytes == sizeof(uint64_t);
    function->bodiless = function->spins || info->empty;
    function->loaded = !modules_lazy();
    attributes_init(function->attributes, ptx);
    module->functions = function;
    return function;
}

struct function *module_function(struct module *module, const char *name) {
    const struct sim_ptx_function *ptx = sim_ptx_function(module->ptx, name);
    return ptx ? function_of(module, ptx) : NULL;
}

static CUresult module_enter(CUmodule handle, struct module **module) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *module = module_get(handle);
    return *module ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    struct module *module;
    CUresult rc = module_enter(handle, &module);
    if (rc)
        return rc;
    if (!out || !name || !*name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_ptx_function(module->ptx, name))
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    struct function *function = module_function(module, name);
    if (!function)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    function->loaded = true;
    *out = (CUfunction)function;
    return driver_leave(CUDA_SUCCESS);
}

API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name) {
    struct module *module;
    CUresult rc = module_enter(handle, &module);
    if (rc)
        return rc;
    if (!name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct sim_ptx_variable *variable = sim_ptx_variable(module->ptx, name);
    if (!variable)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (address)
        *address = variable->address;
    if (bytes)
        *bytes = variable->bytes;
    return driver_leave(CUDA_SUCCESS);
}

API cuModuleGetFunctionCount(unsigned int *count, CUmodule handle) {
    struct module *module;
    CUresult rc = module_enter(handle, &module);
    if (rc)
        return rc;
    if (!count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (*count = 0; sim_ptx_function_at(module->ptx, *count);)
        ++*count;
    return driver_leave(CUDA_SUCCESS);
}

// The first `most` of them; they are loaded when they are used, unless all are at once.
API cuModuleEnumerateFunctions(CUfunction *functions, unsigned int most, CUmodule handle) {
    struct module *module;
    CUresult rc = module_enter(handle, &module);
    if (rc)
        return rc;
    if (!functions)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct sim_ptx_function *ptx;
    for (unsigned i = 0; i < most && (ptx = sim_ptx_function_at(module->ptx, i)); i++) {
        struct function *function = function_of(module, ptx);
        if (!function)
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        functions[i] = (CUfunction)function;
    }
    return driver_leave(CUDA_SUCCESS);
}
