// Finding and starting the driver; devices and contexts. See runtime.h.
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#define LOOK_UP_VERSION 12000  // of cuGetProcAddress itself

struct driver driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards devices[].primary
static cudaError_t start_error;
static struct device devices[DEVICES_MAX];
static int device_count;
static __thread int thread_device;

typedef int look_up_function(const char *name, void **function, int version, uint64_t flags,
                             int *status);

static bool look_up_all(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    look_up_function *look_up;
    *(void **)&look_up = symbol;
    if (!look_up)
        return false;
    int status;
    void *itself = NULL;
    look_up("", &itself, 0, 0, &status);
    if (look_up("cuGetProcAddress", &itself, LOOK_UP_VERSION, 0, &status) == 0 && itself)
        *(void **)&look_up = itself;
#define LOOK_UP(name, version, arguments)                                                          \
    look_up(#name, (void **)&driver.name, version, 0, &status);
    DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return driver.cuInit && driver.cuDriverGetVersion && driver.cuDeviceGetCount &&
           driver.cuDeviceGet && driver.cuDeviceGetName && driver.cuDeviceTotalMem &&
           driver.cuDeviceGetUuid && driver.cuCtxGetCurrent && driver.cuCtxSetCurrent &&
           driver.cuCtxGetDevice && driver.cuDevicePrimaryCtxRetain;
}

static cudaError_t find_devices(void) {
    cudaError_t err = driver.cuDeviceGetCount(&device_count);
    if (device_count > DEVICES_MAX)
        device_count = DEVICES_MAX;
    for (int k = 0; k < device_count && err == cudaSuccess; k++) {
        struct device *d = &devices[k];
        err = driver.cuDeviceGet(&d->handle, k);
        if (err == cudaSuccess)
            err = driver.cuDeviceGetName(d->name, sizeof(d->name), d->handle);
        if (err == cudaSuccess)
            err = driver.cuDeviceTotalMem(&d->total_bytes, d->handle);
        if (err == cudaSuccess)
            err = driver.cuDeviceGetUuid(&d->uuid, d->handle);
    }
    if (err == cudaSuccess && device_count == 0)
        err = cudaErrorNoDevice;
    return err;
}

static void start(void) {
    int version;
    if (!look_up_all())
        start_error = cudaErrorInsufficientDriver;
    else if ((start_error = driver.cuDriverGetVersion(&version)) == cudaSuccess &&
             (start_error = driver.cuInit(0)) == cudaSuccess)
        start_error = find_devices();
}

cudaError_t runtime_start(void) {
    pthread_once(&once, start);
    return start_error;
}

int runtime_device_count(void) {
    return device_count;
}

struct device *runtime_device(int index) {
    return &devices[index];
}

static cudaError_t make_primary_current(int index) {
    struct device *d = &devices[index];
    pthread_mutex_lock(&lock);
    cudaError_t err = cudaSuccess;
    if (!d->primary)
        err = driver.cuDevicePrimaryCtxRetain(&d->primary, d->handle);
    CUcontext primary = d->primary;
    pthread_mutex_unlock(&lock);
    return err == cudaSuccess ? driver.cuCtxSetCurrent(primary) : err;
}

cudaError_t runtime_context(int *device) {
    CUcontext current = NULL;
    cudaError_t err = runtime_start();
    if (err == cudaSuccess)
        err = driver.cuCtxGetCurrent(&current);
    if (err == cudaSuccess && !current)
        err = make_primary_current(thread_device);
    if (err != cudaSuccess || !device)
        return err;
    CUdevice handle;
    err = driver.cuCtxGetDevice(&handle);
    *device = 0;
    for (int k = 0; k < device_count; k++)
        if (devices[k].handle == handle)
            *device = k;
    return err;
}

API cudaError_t cudaGetDeviceCount(int *count) {
    if (!count)
        return runtime_error(cudaErrorInvalidValue);
    cudaError_t err = runtime_start();
    *count = err == cudaSuccess ? device_count : 0;
    return runtime_error(err);
}

API cudaError_t cudaSetDevice(int index) {
    cudaError_t err = runtime_start();
    if (err == cudaSuccess && (index < 0 || index >= device_count))
        err = cudaErrorInvalidDevice;
    if (err == cudaSuccess)
        err = make_primary_current(index);
    if (err == cudaSuccess)
        thread_device = index;
    return runtime_error(err);
}

API cudaError_t cudaGetDevice(int *index) {
    if (!index)
        return runtime_error(cudaErrorInvalidValue);
    *index = thread_device;
    return runtime_error(runtime_start());
}

API cudaError_t cudaDeviceSynchronize(void) {
    return CALL(cuCtxSynchronize);
}

API cudaError_t cudaDeviceReset(void) {
    int index;
    cudaError_t err = runtime_context(&index);
    if (err != cudaSuccess)
        return runtime_error(err);
    pthread_mutex_lock(&lock);
    err = driver.cuDevicePrimaryCtxReset ? driver.cuDevicePrimaryCtxReset(devices[index].handle)
                                         : cudaErrorNotSupported;
    devices[index].primary = NULL;
    pthread_mutex_unlock(&lock);
    runtime_forget_modules(index);
    driver.cuCtxSetCurrent(NULL);
    return runtime_error(err);
}

API cudaError_t cudaDriverGetVersion(int *version) {
    if (!version)
        return runtime_error(cudaErrorInvalidValue);
    *version = 0;
    cudaError_t err = runtime_start();
    return runtime_error(driver.cuDriverGetVersion ? driver.cuDriverGetVersion(version) : err);
}

API cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version)
        return runtime_error(cudaErrorInvalidValue);
    *version = 12040;
    return cudaSuccess;
}
