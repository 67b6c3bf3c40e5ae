// probe.c: says whether a GPU with a CUDA driver is here, in one line, and what it is: free and
// total bytes, CUDA's version (12020 is 12.2), its UUID, the driver library's file, its name. Where
// there is none, the line is the reason, and the exit status 1. It finds the driver by itself, so
// that it can be built and run where there is none.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

static void *driver;

static int none(const char *why, int code) {
    if (code)
        printf("%s: CUDA error %d\n", why, code);
    else
        printf("%s\n", why);
    return 1;
}

#define CALL(name, type, ...)                                                                      \
    do {                                                                                           \
        int(*function) type = (int(*) type)dlsym(driver, #name);                                   \
        int code = function ? function(__VA_ARGS__) : -1;                                          \
        if (code)                                                                                  \
            return none(#name " fails", code);                                                     \
    } while (0)

int main(void) {
    int version = 0, device = 0, count = 0;
    size_t free_bytes = 0, total_bytes = 0;
    void *context = NULL;
    char name[256] = "";
    uint8_t uuid[16] = {0};
    Dl_info where = {0};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return none("there is no CUDA driver (libcuda.so.1)", 0);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    if (count == 0)
        return none("the CUDA driver finds no GPU", 0);
    CALL(cuDriverGetVersion, (int *), &version);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDeviceGetName, (char *, int, int), name, sizeof(name), device);
    CALL(cuDeviceGetUuid_v2, (uint8_t *, int), uuid, device);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total_bytes);
    dladdr(dlsym(driver, "cuInit"), &where);
    printf("%zu %zu %d ", free_bytes, total_bytes, version);
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf(" %s %s\n", where.dli_fname, name);
    return 0;
}
