// init.c: cuInit, what every call checks first, versions and the profiler's switches.
//
// A child forked from an initialised process is cut off for good, as with a real driver: the page
// `here` is wiped by the fork, and neither the machine nor device memory is mapped in the child.
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define VERSION_WITHOUT_MACHINE 12020
#define PAGE 4096

struct driver driver = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .contexts = {.bytes = sizeof(struct context), .most = SIM_CONTEXTS_MAX},
    .streams = {.bytes = sizeof(struct stream), .most = 1u << 16},
    .events = {.bytes = sizeof(struct event), .most = 1u << 20},
    .modules = {.bytes = sizeof(struct module), .most = 1u << 16},
    .functions = {.bytes = sizeof(struct function), .most = 1u << 18},
};

// One word in a page that is zero in a forked child: 1 once cuInit has succeeded. In its second
// half is another one, of fault.c.
static int *here;
static __thread bool in_callback;

CUresult driver_check(void) {
    int *word = __atomic_load_n(&here, __ATOMIC_ACQUIRE);
    if (!word || !__atomic_load_n(word, __ATOMIC_RELAXED))
        return CUDA_ERROR_NOT_INITIALIZED;
    return in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

void driver_in_callback(bool inside) {
    in_callback = inside;
}

CUresult driver_enter(void) {
    CUresult rc = driver_check();
    if (!rc)
        pthread_mutex_lock(&driver.lock);
    return rc;
}

CUresult driver_leave(CUresult result) {
    pthread_mutex_unlock(&driver.lock);
    return result;
}

bool device_ok(CUdevice device) {
    return device >= 0 && (uint32_t)device < driver.config->gpu_count;
}

// What this process sees of the machine: a copy, since a forked child, which has no mapping, may
// still ask for the version.
static struct sim_config config;

// False: there is none.
static bool open_machine(void) {
    char path[4096];
    if (sim_machine_path(path, sizeof path) || sim_machine_open(path, &driver.machine))
        return false;
    config = *sim_machine_config(driver.machine);
    driver.config = &config;
    return true;
}

static void close_machine(void) {
    sim_machine_close(driver.machine);
    driver.machine = NULL;
}

// Makes the GPUs that may be seen the devices. ENODEV: there are none; EAGAIN: one is gone already.
static int find_devices(void) {
    config.gpu_count = visible_cards(driver.machine, driver.cards);
    for (uint32_t i = 0; i < config.gpu_count; i++)
        if (sim_gpu_describe(driver.machine, driver.cards[i], &config.gpus[i]))
            return EAGAIN;
    return config.gpu_count ? 0 : ENODEV;
}

// The clock of condition waits must be the machine's, which the host cannot set.
static int conditions_init(void) {
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    if (!rc)
        rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!rc)
        rc = pthread_cond_init(&driver.done, &attributes);
    if (!rc)
        rc = pthread_cond_init(&driver.work, &attributes);
    pthread_condattr_destroy(&attributes);
    return rc;
}

// Between the two steps a card may be divided, or a MIG device taken away: then again.
static CUresult join_machine(void) {
    int rc;
    do {
        rc = find_devices();
        if (!rc)
            rc = worker_start();
    } while (rc == EAGAIN);
    return rc == ENODEV ? CUDA_ERROR_NO_DEVICE : rc ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

// With the machine open.
static CUresult start(void) {
    int *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = fault_init(driver.machine);
    if (!rc)
        rc = madvise(page, PAGE, MADV_WIPEONFORK) || conditions_init() ? CUDA_ERROR_OPERATING_SYSTEM
                                                                       : join_machine();
    if (rc) {
        munmap(page, PAGE);
        return rc;
    }
    *page = 1;
    fault_start(driver.machine, page + PAGE / sizeof *page / 2);
    __atomic_store_n(&here, page, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

API cuInit(unsigned int flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (__atomic_load_n(&here, __ATOMIC_ACQUIRE))
        return driver_check();
    pthread_mutex_lock(&driver.lock);
    CUresult rc = CUDA_SUCCESS;
    if (!here) {
        rc = open_machine() ? start() : CUDA_ERROR_NO_DEVICE;
        if (rc)
            close_machine();
    }
    return driver_leave(rc);
}

int driver_version(void) {
    if (__atomic_load_n(&here, __ATOMIC_ACQUIRE))  // no lock: it may be held for ever in a child
        return (int)driver.config->cuda_version;
    pthread_mutex_lock(&driver.lock);
    // Not kept open: a child that is forked before cuInit may still call that, and has no mapping.
    if (!here && !driver.config && open_machine())
        close_machine();
    int version = driver.config ? (int)driver.config->cuda_version : VERSION_WITHOUT_MACHINE;
    pthread_mutex_unlock(&driver.lock);
    return version;
}

API cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = driver_version();
    return CUDA_SUCCESS;
}

// No table is known: the tables' owner alone may say what they hold.
API cuGetExportTable(const void **table, const CUuuid *id) {
    return table && id ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

API cuProfilerInitialize(const char *config, const char *output, int mode) {
    (void)config, (void)output, (void)mode;
    CUresult rc = driver_check();
    return rc ? rc : CUDA_ERROR_NOT_SUPPORTED;
}

API cuProfilerStart(void) {
    return driver_check();
}
API cuProfilerStop(void) {
    return driver_check();
}
