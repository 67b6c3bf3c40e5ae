// module.c: modules from PTX text, alone or in an uncompressed fat binary, and their functions.
//
// A module is parsed without the driver's lock, since that may take long. Its functions become
// handles when they are asked for. A kernel whose name begins with weir_spin_ns takes what its
// first parameter says, in ns, and computes nothing; a module with a .global .u64 variable
// weir_sim_cost_ns sets the cost of all of its kernels by it.
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPIN_PREFIX "weir_spin_ns"
#define COST_VARIABLE "weir_sim_cost_ns"
#define FILE_BYTES_MAX (256u << 20)

// ---- Images ----

#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FATBIN_PTX 1u
#define FATBIN_COMPRESSED 0x2000u

struct fatbin_wrapper {
    uint32_t magic, version;
    const void *fatbin;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;  // of all entries
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;  // of the payload, behind the header
    uint32_t unused[4];
    uint32_t name[2];
    uint64_t flags;
};

struct text {
    const char *at;
    size_t bytes;
};

// The first PTX of a fat binary.
static CUresult fatbin_text(const unsigned char *image, struct text *text) {
    struct fatbin fatbin;
    memcpy(&fatbin, image, sizeof fatbin);
    if (fatbin.header_bytes < sizeof fatbin || fatbin.bytes > FILE_BYTES_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    const unsigned char *at = image + fatbin.header_bytes;
    uint64_t left = fatbin.bytes;
    while (left >= sizeof(struct fatbin_entry)) {
        struct fatbin_entry entry;
        memcpy(&entry, at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        if (entry.kind == FATBIN_PTX && !(entry.flags & FATBIN_COMPRESSED)) {
            *text = (struct text){(const char *)at + entry.header_bytes, (size_t)entry.bytes};
            return CUDA_SUCCESS;
        }
        at += entry.header_bytes + entry.bytes;
        left -= entry.header_bytes + entry.bytes;
    }
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult find_text(const void *image, struct text *text) {
    uint32_t magic = 0;
    // A text may be shorter than the word.
    for (unsigned i = 0; i < 4; i++) {
        unsigned char byte = ((const unsigned char *)image)[i];
        magic |= (uint32_t)byte << 8 * i;
        if (!byte)
            break;
    }
    if (magic == FATBIN_WRAPPER_MAGIC) {
        struct fatbin_wrapper wrapper;
        memcpy(&wrapper, image, sizeof wrapper);
        return wrapper.fatbin ? fatbin_text(wrapper.fatbin, text) : CUDA_ERROR_INVALID_IMAGE;
    }
    if (magic == FATBIN_MAGIC)
        return fatbin_text(image, text);
    if (magic == 0x464c457fu)  // an ELF file: code for real hardware
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *text = (struct text){image, strnlen(image, SIM_PTX_TEXT_BYTES_MAX)};
    return CUDA_SUCCESS;
}

// ---- The compiler's logs ----

// Writes a log where the options ask for one, and its length in the place of its size.
static void write_log(unsigned count, const CUjit_option *options, void **values,
                      CUjit_option buffer_option, CUjit_option size_option, const char *log) {
    char *buffer = NULL;
    void **size = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == buffer_option)
            buffer = values[i];
        else if (options[i] == size_option)
            size = &values[i];
    }
    if (!size)
        return;
    // An unsigned int in the place of a pointer: its low half counts.
    size_t room = (unsigned)(uintptr_t)*size, length = strlen(log);
    if (!buffer || !room) {
        *size = NULL;
        return;
    }
    length = length < room ? length : room - 1;
    memcpy(buffer, log, length);
    buffer[length] = 0;
    *size = (void *)(uintptr_t)(length ? length + 1 : 0);
}

// ---- Loading ----

static CUresult module_add(struct context *context, struct sim_ptx_module *ptx, CUmodule *out) {
    struct module *module = pool_take(&driver.modules);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    module->ptx = ptx;
    module->cost = sim_ptx_variable(ptx, COST_VARIABLE);
    if (module->cost && module->cost->bytes < sizeof(uint64_t))
        module->cost = NULL;
    *out = (CUmodule)module;
    return CUDA_SUCCESS;
}

static CUresult load(CUmodule *out, struct text text, char *log) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    uint64_t id = context->id;
    driver_leave(CUDA_SUCCESS);
    struct sim_ptx_memory memory = kernel_memory;
    struct sim_ptx_module *ptx;
    memory.user = context;
    rc = (CUresult)sim_ptx_load(&ptx, text.at, text.bytes, &memory, log);
    if (rc)
        return rc;
    pthread_mutex_lock(&driver.lock);
    bool gone = !context->object.live || context->id != id;
    rc = gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : module_add(context, ptx, out);
    driver_leave(CUDA_SUCCESS);
    if (gone)
        sim_ptx_forget(ptx);
    else if (rc)
        sim_ptx_unload(ptx);
    return rc;
}

API cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options,
                       void **values) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!out || !image || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    char log[SIM_PTX_LOG_BYTES] = "";
    struct text text;
    rc = find_text(image, &text);
    if (!rc)
        rc = load(out, text, log);
    write_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
              log);
    write_log(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
              "");
    return rc;
}

API cuModuleLoadData(CUmodule *out, const void *image) {
    return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

API cuModuleLoadFatBinary(CUmodule *out, const void *image) {
    return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

// Reads a whole file, with a zero behind it.
static CUresult read_file(const char *path, char **data) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult rc = CUDA_ERROR_INVALID_IMAGE;
    *data = NULL;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size < FILE_BYTES_MAX) {
        size_t bytes = (size_t)status.st_size, done = 0;
        *data = malloc(bytes + 1);
        rc = *data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        while (!rc && done < bytes) {
            ssize_t n = read(fd, *data + done, bytes - done);
            if (n <= 0)
                rc = CUDA_ERROR_INVALID_IMAGE;
            done += n > 0 ? (size_t)n : 0;
        }
        if (!rc)
            (*data)[bytes] = 0;
    }
    close(fd);
    return rc;
}

API cuModuleLoad(CUmodule *out, const char *path) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!out || !path)
        return CUDA_ERROR_INVALID_VALUE;
    char *data;
    rc = read_file(path, &data);
    if (!rc)
        rc = cuModuleLoadDataEx(out, data, 0, NULL, NULL);
    if (rc != CUDA_ERROR_FILE_NOT_FOUND)
        free(data);
    return rc;
}

static void functions_drop(struct module *module) {
    struct function *next;
    for (struct function *f = module->functions; f; f = next) {
        next = f->next;
        pool_drop(&driver.functions, f);
    }
}

API cuModuleUnload(CUmodule handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct module *module = pool_get(&driver.modules, handle);
    if (!module)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    context_settle(module->context);
    if (pool_get(&driver.modules, handle) != module)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);  // another thread was faster
    struct sim_ptx_module *ptx = module->ptx;
    functions_drop(module);
    pool_drop(&driver.modules, module);
    driver_leave(CUDA_SUCCESS);
    sim_ptx_unload(ptx);  // gives memory back through our callbacks, which lock
    return CUDA_SUCCESS;
}

void modules_drop(struct context *context) {
    struct module *module;
    for (uint32_t i = 0; (module = pool_next(&driver.modules, &i)); i++) {
        if (module->context != context)
            continue;
        functions_drop(module);
        sim_ptx_forget(module->ptx);
        pool_drop(&driver.modules, module);
    }
}

API cuModuleGetLoadingMode(int *mode) {
    CUresult rc = driver_check();
    if (rc || !mode)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *mode = 1;  // eager
    return CUDA_SUCCESS;
}

// ---- Look-ups ----

static struct function *function_of(struct module *module, const struct sim_ptx_function *ptx) {
    for (struct function *f = module->functions; f; f = f->next)
        if (f->ptx == ptx)
            return f;
    struct function *function = pool_take(&driver.functions);
    if (!function)
        return NULL;
    const struct sim_ptx_function_info *info = sim_ptx_info(ptx);
    struct sim_ptx_param first;
    function->module = module;
    function->ptx = ptx;
    function->next = module->functions;
    function->spins = !strncmp(info->name, SPIN_PREFIX, sizeof SPIN_PREFIX - 1) &&
                      sim_ptx_param(ptx, 0, &first) && first.bytes == sizeof(uint64_t);
    function->bodiless = function->spins || info->empty;
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
        49152 - (int)info->static_shared_bytes;
    function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    module->functions = function;
    return function;
}

API cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct module *module = pool_get(&driver.modules, handle);
    if (!out || !name || !*name || !module)
        return driver_leave(module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    const struct sim_ptx_function *ptx = sim_ptx_function(module->ptx, name);
    if (!ptx)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    struct function *function = function_of(module, ptx);
    if (function)
        *out = (CUfunction)function;
    return driver_leave(function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct module *module = pool_get(&driver.modules, handle);
    if (!name || !module)
        return driver_leave(module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    const struct sim_ptx_variable *variable = sim_ptx_variable(module->ptx, name);
    if (!variable)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (address)
        *address = variable->address;
    if (bytes)
        *bytes = variable->bytes;
    return driver_leave(CUDA_SUCCESS);
}
