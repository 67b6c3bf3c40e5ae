// nvml_plugin.c: an object, or a program, that is linked with NVML.
#include "host.h"

int nvmlDeviceGetMemoryInfo(void *device, void *memory);

// Constant, so that the loader writes it once and makes its page read-only.
extern int (*const nvml_table[])(void *, void *);
int (*const nvml_table[])(void *, void *) = {nvmlDeviceGetMemoryInfo};

void plugin_run(void) {
    printf("code %d %d\n", nvmlDeviceGetMemoryInfo(NULL, NULL), nvml_table[0](NULL, NULL));
}

int main(void) {
    plugin_run();
    printf("calls %d\n", nvml_calls("nvmlDeviceGetMemoryInfo"));
    return 0;
}
