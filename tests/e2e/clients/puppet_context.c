// puppet_context.c: the puppet's commands about contexts, code, limits and reports, and about its
// environment.
#include "puppet.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEXTS_MAX = 256,
    MODULES_MAX = 256,
    PROCESSES_MAX = 256,
    FILE_BYTES_MAX = 8 << 20,
    ENVIRONMENT_MAX = 1024
};

int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuCtxSetLimit(int limit, size_t value);
int cuCtxPopCurrent_v2(void **context);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuModuleLoad(void **module, const char *path);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuLibraryLoadData(void **library, const void *image, int *jit_options, void **jit_values,
                      unsigned jit_count, int *options, void **values, unsigned count);
int cuLibraryUnload(void *library);

static void *contexts[CONTEXTS_MAX], *modules[MODULES_MAX];

static void keep(void **list, size_t most, int code, void *handle) {
    size_t place = 0;
    while (place < most && list[place])
        place++;
    if (code || place == most) {
        puppet_answer_code(code ? code : -1);
        return;
    }
    list[place] = handle;
    puppet_answer("ok %zu", place);
}

static void *take(void **list, size_t most, const char *word) {
    uint64_t place = puppet_number(word);
    void *handle = place < most ? list[place] : NULL;
    if (handle)
        list[place] = NULL;
    return handle;
}

// ---- Contexts ----

// "context DEVICE": one more, which does not stay current.
static void do_context(char **words) {
    void *context = NULL, *popped;
    int code = cuCtxCreate_v2(&context, 0, (int)puppet_number(words[1]));
    if (!code)
        cuCtxPopCurrent_v2(&popped);
    keep(contexts, CONTEXTS_MAX, code, context);
}

static void do_destroy(char **words) {
    puppet_answer_code(cuCtxDestroy_v2(take(contexts, CONTEXTS_MAX, words[1])));
}

static void do_retain(char **words) {
    void *context;
    puppet_answer_code(cuDevicePrimaryCtxRetain(&context, (int)puppet_number(words[1])));
}

static void do_release(char **words) {
    puppet_answer_code(cuDevicePrimaryCtxRelease_v2((int)puppet_number(words[1])));
}

static void do_reset(char **words) {
    puppet_answer_code(cuDevicePrimaryCtxReset_v2((int)puppet_number(words[1])));
}

// "limit WHICH VALUE", by the driver's numbers: 0 stack, 1 printf buffer, 2 heap.
static void do_limit(char **words) {
    puppet_answer_code(cuCtxSetLimit((int)puppet_number(words[1]), puppet_number(words[2])));
}

// ---- Code ----

static char *read_file(const char *path) {
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, FILE_BYTES_MAX + 1) : NULL;
    if (text && fread(text, 1, FILE_BYTES_MAX, file) == 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

// "load file|data PATH": a module in the current context.
static void do_load(char **words) {
    void *module = NULL;
    if (!words[1] || !words[2]) {
        puppet_answer("wrong arguments");
        return;
    }
    if (!strcmp(words[1], "file")) {
        int code = cuModuleLoad(&module, words[2]);
        keep(modules, MODULES_MAX, code, module);
        return;
    }
    char *image = read_file(words[2]);
    int code = image ? cuModuleLoadData(&module, image) : -1;
    free(image);
    keep(modules, MODULES_MAX, code, module);
}

static void do_unload(char **words) {
    puppet_answer_code(cuModuleUnload(take(modules, MODULES_MAX, words[1])));
}

static void do_library(char **words) {
    void *library = NULL;
    char *image = words[1] ? read_file(words[1]) : NULL;
    int code = image ? cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0) : -1;
    free(image);
    keep(modules, MODULES_MAX, code, library);
}

static void do_unload_library(char **words) {
    puppet_answer_code(cuLibraryUnload(take(modules, MODULES_MAX, words[1])));
}

// ---- NVML ----

typedef int init_fn(void);
typedef int handle_fn(unsigned index, void **device);
typedef int report_fn(void *device, void *report);
typedef int list_fn(void *device, unsigned *count, void *list);

static void *nvml_function(const char *name) {
    static void *nvml;
    if (!nvml) {
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        init_fn *init = nvml ? (init_fn *)dlsym(nvml, "nvmlInit_v2") : NULL;
        if (!init || init())
            return NULL;
    }
    return dlsym(nvml, name);
}

static void *nvml_device(const char *word) {
    handle_fn *get = (handle_fn *)nvml_function("nvmlDeviceGetHandleByIndex_v2");
    void *device = NULL;
    return get && get((unsigned)puppet_number(word), &device) == 0 ? device : NULL;
}

// "nvml INDEX": memory in both forms, and of the first BAR: total, free, used of each.
static void do_nvml(char **words) {
    struct {
        unsigned long long total, free, used;
    } first, bar;
    struct {
        unsigned version;
        unsigned long long total, reserved, free, used;
    } second = {.version = sizeof(second) | 2u << 24};
    void *device = nvml_device(words[1]);
    report_fn *v1 = (report_fn *)nvml_function("nvmlDeviceGetMemoryInfo");
    report_fn *v2 = (report_fn *)nvml_function("nvmlDeviceGetMemoryInfo_v2");
    report_fn *bar1 = (report_fn *)nvml_function("nvmlDeviceGetBAR1MemoryInfo");
    if (!device || !v1 || !v2 || !bar1 || v1(device, &first) || v2(device, &second) ||
        bar1(device, &bar)) {
        puppet_answer("wrong nvml");
        return;
    }
    puppet_answer("ok %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", first.total, first.free,
                  first.used, second.total, second.free, second.used, second.reserved, bar.total,
                  bar.free, bar.used);
}

// "nvml-list INDEX VERSION ROOM": the compute processes; the code, how many there are, and the pids
// that were told.
static void do_nvml_list(char **words) {
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu_instance, compute_instance;
    } list[PROCESSES_MAX];
    struct {
        unsigned pid;
        unsigned long long bytes;
    } old[PROCESSES_MAX];
    char name[64] = "nvmlDeviceGetComputeRunningProcesses", text[900] = "";
    uint64_t version = puppet_number(words[2]);
    if (version > 1)
        snprintf(name + strlen(name), 8, "_v%d", (int)version);
    list_fn *get = (list_fn *)nvml_function(name);
    void *device = nvml_device(words[1]);
    unsigned count = (unsigned)puppet_number(words[3]), room = count;
    if (!get || !device || count > PROCESSES_MAX) {
        puppet_answer("wrong nvml");
        return;
    }
    int code = version > 1 ? get(device, &count, list) : get(device, &count, old);
    for (unsigned i = 0; code == 0 && i < count && i < room; i++)
        snprintf(text + strlen(text), 16, " %u", version > 1 ? list[i].pid : old[i].pid);
    puppet_answer("ok %d %u%s", code, count, text);
}

// ---- The environment ----

extern char **environ;

// "blank NAME": write over the environment that the program was started with, as programs do that
// show a title of their own there, and go on with a copy that lacks NAME.
static void do_blank(char **words) {
    static char *copy[ENVIRONMENT_MAX];
    size_t count = 0, length = words[1] ? strlen(words[1]) : 0;
    for (char **entry = environ; *entry && count + 1 < ENVIRONMENT_MAX; entry++) {
        int dropped = length && !strncmp(*entry, words[1], length) && (*entry)[length] == '=';
        if (!dropped)
            copy[count++] = strdup(*entry);
    }
    for (char **entry = environ; *entry; entry++)
        memset(*entry, ' ', strlen(*entry));
    environ = copy;
    puppet_answer("ok %zu", count);
}

const struct puppet_command puppet_context_commands[] = {
    {"context", do_context}, {"destroy", do_destroy},
    {"retain", do_retain},   {"release", do_release},
    {"reset", do_reset},     {"limit", do_limit},
    {"load", do_load},       {"unload", do_unload},
    {"library", do_library}, {"unload-library", do_unload_library},
    {"nvml", do_nvml},       {"nvml-list", do_nvml_list},
    {"blank", do_blank},     {NULL, NULL},
};
