// Initialisation and shutdown of the simulated NVML, and the lock that all queries hold.
//
// The machine is mapped from the first nvmlInit to the last nvmlShutdown. A forked child does not
// inherit the mapping; it stays initialised, as its parent was, and maps the machine anew at its
// first query. No descriptor stays open.
#include "query.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

// What nvmlInitWithFlags accepts: no GPU needed, and do not attach to them. Neither matters here.
#define INIT_FLAGS 3u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// All under the lock.
static unsigned inits;  // nvmlInit calls without their nvmlShutdown
static struct sim_machine *machine;
static struct sim_machine *inherited;  // a forked child's useless handle; kept only to be reachable
static char path[PATH_BYTES];
static dev_t machine_device;
static ino_t machine_inode;
static uid_t machine_owner;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void) {
    // Not closed: the addresses may belong to something else in this process by now.
    inherited = machine;
    machine = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

// Maps the machine at `path` and remembers which file it is.
static bool open_machine(void) {
    struct stat status;
    if (stat(path, &status) != 0 || sim_machine_open(path, &machine) != 0) {
        machine = NULL;
        return false;
    }
    machine_device = status.st_dev;
    machine_inode = status.st_ino;
    machine_owner = status.st_uid;
    return true;
}

// Whether the mapped machine is still the one that new processes would find.
static bool machine_current(void) {
    struct stat status;
    return stat(path, &status) == 0 && status.st_dev == machine_device &&
           status.st_ino == machine_inode;
}

int nvmlInitWithFlags(unsigned flags) {
    if ((flags & ~INIT_FLAGS) != 0) {
        return NVML_INVALID_ARGUMENT;
    }
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    int code = NVML_OK;
    if (inits == 0) {
        if (sim_machine_path(path, sizeof(path)) == 0 && open_machine()) {
            sim_nvml_usage_start(machine);
        } else {
            code = NVML_NO_DRIVER;
        }
    }
    if (code == NVML_OK) {
        inits++;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

int nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    if (inits == 0) {
        pthread_mutex_unlock(&lock);
        return NVML_UNINITIALISED;
    }
    inits--;
    if (inits == 0) {
        sim_machine_close(machine);
        machine = NULL;
    }
    pthread_mutex_unlock(&lock);
    return NVML_OK;
}

int sim_nvml_begin(struct sim_nvml_query *query) {
    pthread_mutex_lock(&lock);
    if (inits == 0) {
        return sim_nvml_end(NVML_UNINITIALISED);
    }
    if (machine == NULL ? !open_machine() : !machine_current()) {
        return sim_nvml_end(NVML_GPU_IS_LOST);
    }
    *query = (struct sim_nvml_query){.machine = machine, .config = sim_machine_config(machine)};
    return NVML_OK;
}

// Of a card, or of a MIG device that may be there no more.
static int begin_any(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = sim_nvml_begin(query);
    if (code != NVML_OK) {
        return code;
    }
    query->unit = sim_nvml_handle_unit(device);
    query->index = sim_mig_card(query->unit);
    if (query->unit == SIM_UNITS_MAX || query->index >= query->config->gpu_count) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    query->gpu = &query->config->gpus[query->index];
    return sim_gpu_lost(query->machine, query->index) ? sim_nvml_end(NVML_GPU_IS_LOST) : NVML_OK;
}

int sim_nvml_begin_gpu(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = begin_any(query, device);
    if (code == NVML_OK && query->unit >= SIM_GPUS_MAX) {
        return sim_nvml_end(NVML_NOT_SUPPORTED);
    }
    return code;
}

int sim_nvml_begin_device(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = begin_any(query, device);
    if (code != NVML_OK) {
        return code;
    }
    sim_mig_look(query->machine, query->index, &query->mig);
    if (query->unit < SIM_GPUS_MAX) {
        return NVML_OK;
    }
    unsigned place = sim_mig_place(query->unit);
    if (query->mig.compute[place] == 0) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    sim_mig_describe(query->gpu, &query->mig, place, &query->device);
    query->gpu = &query->device;
    return NVML_OK;
}

bool sim_nvml_may_change(void) {
    return geteuid() == 0 || geteuid() == machine_owner;
}

int sim_nvml_end(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}
