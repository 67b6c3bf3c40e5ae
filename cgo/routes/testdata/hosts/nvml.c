// nvml.c: reaches NVML by the route that its first argument names, and prints what it found.
#include "host.h"

typedef int memory_fn(void *device, void *memory);

// Weak, so that the program loads without NVML.
extern int nvmlDeviceGetMemoryInfo_v2(void *device, void *memory) __attribute__((weak));

static int by_handle(int flags) {
    void *nvml = dlopen("libnvidia-ml.so.1", flags);
    memory_fn *memory = nvml ? (memory_fn *)dlsym(nvml, "nvmlDeviceGetMemoryInfo") : NULL;
    if (!memory)
        return 1;
    show("memory", (void *)memory);
    printf("code %d\n", memory(NULL, NULL));
    show("name", dlsym(nvml, "nvmlDeviceGetName"));
    // Not in this NVML.
    show("list", dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses"));
    printf("calls %d\n", nvml_calls("nvmlDeviceGetMemoryInfo"));
    return 0;
}

// What may be found while NVML is not loaded, and while it is in nobody's sight.
static int by_default(void) {
    printf("weak %s\n", nvmlDeviceGetMemoryInfo_v2 ? "there" : "null");
    show("before", dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
    dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    show("local", dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
    dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
    show("global", dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
    return 0;
}

static int by_plugin(const char *path, int flags) {
    void *plugin = dlopen(path, flags);
    void (*run)(void) = plugin ? (void (*)(void))dlsym(plugin, "plugin_run") : NULL;
    if (!run)
        return 1;
    run();
    printf("calls %d\n", nvml_calls("nvmlDeviceGetMemoryInfo"));
    return 0;
}

int main(int argc, char **argv) {
    const char *route = argc > 1 ? argv[1] : "";
    if (!strcmp(route, "local"))
        return by_handle(RTLD_NOW | RTLD_LOCAL);
    if (!strcmp(route, "deepbind"))
        return by_handle(RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!strcmp(route, "default"))
        return by_default();
    if (!strcmp(route, "plugin") && argc > 2)
        return by_plugin(argv[2], RTLD_NOW);
    if (!strcmp(route, "deep_plugin") && argc > 2)
        return by_plugin(argv[2], RTLD_NOW | RTLD_DEEPBIND);
    return 2;
}
