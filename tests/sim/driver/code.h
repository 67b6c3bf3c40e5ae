// code.h: what loads code and hands out functions: modules, libraries, kernels and the linker.
//
// A module is code in one context. A library is code that no context has yet: each context gets a
// module of it when it needs one. A kernel is a function of a library, before there is a context.
#ifndef SIM_CODE_H
#define SIM_CODE_H

#include "driver.h"

// ---- image.c ----

// PTX text somewhere in what a program gave as an image.
struct image {
    const char *text;
    size_t bytes;
};

// Finds it for a device, in a PTX text or in a fat binary. INVALID_IMAGE; NO_BINARY_FOR_GPU where
// there is code for hardware only.
CUresult image_find(const void *data, uint32_t gpu, struct image *image);
// The same of a fat binary that is at most `room` bytes long.
CUresult image_find_fatbin(const void *data, size_t room, uint32_t gpu, struct image *image);
bool image_is_elf(const void *data, size_t bytes);
// Reads a whole file, with a zero behind it; `data` is to be freed. FILE_NOT_FOUND.
CUresult image_read(const char *path, char **data, size_t *bytes);
// Which of the card's bytes an image's code takes.
uint64_t image_charge(size_t bytes);

// Options of the compiler, as far as they ask for its logs.
struct jit {
    unsigned count;
    const CUjit_option *options;
    void **values;
};
// INVALID_VALUE where the lists are not there, or an option is unknown.
CUresult jit_check(const struct jit *jit);
void jit_write_log(const struct jit *jit, const char *log);

// ---- module.c ----

struct module *module_get(CUmodule handle);  // NULL: no module
// A module of the context without code, which module_load fills. NULL: too many.
struct module *module_make(struct context *context, struct library *library);
// Loads code into a fresh module; the driver is locked, but not all the time. On an error the
// module is gone. `log` has SIM_PTX_LOG_BYTES.
CUresult module_load(struct module *module, const struct image *image, char *log);
// Drops a loaded module and gives back what it took. The lock is dropped for some time.
void module_unload(struct module *module);
// The function of a name; NULL: none, or too many.
struct function *module_function(struct module *module, const char *name);
bool modules_lazy(void);

// ---- function.c ----

// What a program may set of a function, or of a kernel on one device.
void attributes_init(int settings[CU_FUNC_ATTRIBUTE_MAX], const struct sim_ptx_function *ptx);
CUresult attribute_get(const int settings[CU_FUNC_ATTRIBUTE_MAX],
                       const struct sim_ptx_function *ptx, CUfunction_attribute attribute,
                       int *value);
CUresult attribute_set(int settings[CU_FUNC_ATTRIBUTE_MAX], const struct sim_ptx_function *ptx,
                       CUdevice device, CUfunction_attribute attribute, int value);
CUresult param_info(const struct sim_ptx_function *ptx, size_t index, size_t *offset,
                    size_t *bytes);
// The function behind a handle, or what it is of a kernel in a context, which may have to be loaded
// for it: the lock is dropped meanwhile. INVALID_HANDLE.
CUresult function_resolve(CUfunction handle, struct context *context, struct function **function);

// ---- occupancy.c ----

// What decides how much of a function fits on a device.
struct occupancy {
    unsigned threads_max, registers, static_bytes;  // of the function: a block, a thread, a block
    uint32_t cluster[3];                            // that it must be launched with; 0: any
    unsigned cluster_most;                          // blocks in one
    // Of the device: multiprocessors, and what one of them has.
    unsigned processors, threads, blocks, registers_all, shared;
    unsigned shared_most, shared_system;  // bytes a block: of its own at most, for the system
};

void occupancy_see(const struct sim_ptx_function *ptx, const int *settings, uint32_t gpu,
                   struct occupancy *occupancy);
// Blocks on one multiprocessor.
unsigned occupancy_blocks(const struct occupancy *occupancy, unsigned threads,
                          size_t dynamic_bytes);
// Clusters of so many blocks on the device.
unsigned occupancy_clusters(const struct occupancy *occupancy, unsigned cluster, unsigned threads,
                            size_t dynamic_bytes);
// Settles the cluster of a launch, all zero where it named none: CUDA_ERROR_INVALID_CLUSTER_SIZE
// where it is not the function's, or too large.
CUresult occupancy_cluster(const struct occupancy *occupancy, uint32_t cluster[3]);

// ---- launch.c ----

CUresult launch_kernel(CUfunction function, struct launch *launch, CUstream stream, bool per_thread,
                       void **params, void **extra);

// ---- launch_config.c ----

// A launch without its arguments, from a configuration and its attributes; all of the latter are
// known and checked, what is not modelled changes nothing. CUDA_ERROR_INVALID_VALUE.
CUresult launch_describe(const CUlaunchConfig *config, struct launch *launch);

// ---- library.c ----

struct library {
    struct object object;
    uint64_t id;
    char *text;
    struct image image;
    struct sim_ptx_module *shape;  // the code without memory, to be asked for names and attributes
    struct kernel *kernels;
    struct module *modules[SIM_CONTEXTS_MAX];  // by the context's number in the machine
    bool busy;                                 // being loaded in a context: one at a time
    uint64_t managed;                          // its managed variables, which all contexts share
    bool managed_ready;                        // they have their first values
    struct context *managed_context;           // with which they end
};

struct library *library_get(CUlibrary handle);
// The library's module in a context. The lock is dropped while it is loaded.
CUresult library_module(struct library *library, struct context *context, struct module **module);
// A module has gone with its context.
void library_forget(struct library *library, struct context *context);
// Loads all libraries into a new context, where the process loads eagerly.
CUresult libraries_load(struct context *context);

// Decodes code without memory behind its variables, to be asked about; sim_ptx_forget ends it.
int code_look(struct sim_ptx_module **shape, const struct image *image, char *log);

// ---- kernel.c ----

struct kernel {
    struct object object;
    uint64_t id;
    struct library *library;
    const struct sim_ptx_function *ptx;  // in the library's shape
    struct kernel *next;
    struct function *functions;  // in contexts
    int settings[SIM_GPUS_MAX][CU_FUNC_ATTRIBUTE_MAX];
};

struct kernel *kernel_get(const void *handle);
CUresult kernel_function(struct kernel *kernel, struct context *context,
                         struct function **function);
void kernels_drop(struct library *library);

#endif
