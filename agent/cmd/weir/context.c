// context.c: see context.h. It runs in a process of its own, which does nothing else.
#include "context.h"

#include <dlfcn.h>
#include <stdio.h>

typedef int init_fn(unsigned flags);
typedef int device_fn(int *device, int ordinal);
typedef int retain_fn(void **context, int device);

static int failed(char *text, size_t bytes, const char *call, int code) {
    snprintf(text, bytes, "%s failed with CUDA error %d", call, code);
    return -1;
}

int weir_context_make(char *text, size_t bytes) {
    int device, code;
    void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        snprintf(text, bytes, "loading the driver: %s", dlerror());
        return -1;
    }
    init_fn *init = (init_fn *)dlsym(driver, "cuInit");
    device_fn *get = (device_fn *)dlsym(driver, "cuDeviceGet");
    retain_fn *retain = (retain_fn *)dlsym(driver, "cuDevicePrimaryCtxRetain");
    if (!init || !get || !retain) {
        snprintf(text, bytes, "libcuda.so.1 is no CUDA driver");
        return -1;
    }
    if ((code = init(0)) != 0)
        return failed(text, bytes, "cuInit", code);
    if ((code = get(&device, 0)) != 0)
        return failed(text, bytes, "cuDeviceGet", code);
    if ((code = retain(&context, device)) != 0)
        return failed(text, bytes, "cuDevicePrimaryCtxRetain", code);
    return 0;
}
