// machine.c: the machine file itself: made, mapped, read.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>  // rename
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Joins two strings. ENAMETOOLONG.
static int join(char *out, size_t bytes, const char *a, const char *b) {
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length + b_length + 1 > bytes)
        return ENAMETOOLONG;
    memcpy(out, a, a_length);
    memcpy(out + a_length, b, b_length + 1);
    return 0;
}

int sim_machine_path(char *path, size_t bytes) {
    const char *directory = getenv("WEIR_SIM");
    return join(path, bytes, directory && *directory ? directory : SIM_DIRECTORY, "/" SIM_FILE);
}

// Fills in defaults. EINVAL where no machine can be made of it.
static int complete(struct sim_config *config) {
    if (!config->gpu_count || config->gpu_count > SIM_GPUS_MAX)
        return EINVAL;
    config->cuda_version = config->cuda_version ? config->cuda_version : 12020;
    config->scale = config->scale ? config->scale : 1;
    config->driver_version[sizeof config->driver_version - 1] = 0;
    for (unsigned i = 0; i < config->gpu_count; i++) {
        struct sim_gpu_config *gpu = &config->gpus[i];
        gpu->name[sizeof gpu->name - 1] = 0;
        gpu->queue_depth = gpu->queue_depth ? gpu->queue_depth : SIM_QUEUE_MAX;
        gpu->slice_ns = gpu->slice_ns ? gpu->slice_ns : 1024000;
        gpu->memory_bytes = gpu->memory_bytes / SIM_GRANULE * SIM_GRANULE;
        if (gpu->context_bytes >= gpu->memory_bytes)
            return EINVAL;
        gpu->context_bytes = (gpu->context_bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
        if (gpu->queue_depth > SIM_QUEUE_MAX || !gpu->memory_bytes ||
            gpu->context_bytes >= gpu->memory_bytes || !gpu->h2d_bytes_per_s ||
            !gpu->d2h_bytes_per_s || !gpu->memory_bytes_per_s || !gpu->sm_count)
            return EINVAL;
    }
    return 0;
}

static int fill(struct sim_file *file, const struct sim_config *config) {
    int rc = 0;
    for (unsigned i = 0; i < SIM_REGIONS && !rc; i++)
        rc = sim_mutex_init(&file->regions[i].lock);
    for (unsigned i = 0; i < SIM_PROCESSES_MAX && !rc; i++)
        rc = sim_mutex_init(&file->processes[i].life);
    if (rc)
        return rc;
    file->config = *config;
    file->bytes = sizeof *file;
    file->created_ns = sim_now_ns();
    sim_engines_init(&file->regions[0], config, file->created_ns);
    file->layout = SIM_LAYOUT;
    file->magic = SIM_MAGIC;
    return 0;
}

// Makes the file under a temporary name of its own, which it puts into the path's last letters:
// nobody ever sees half a machine, however many are being made.
static int write_file(char *path, const struct sim_config *config) {
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return errno;
    int rc = fchmod(fd, 0666) || ftruncate(fd, sizeof(struct sim_file)) ? errno : 0;
    struct sim_file *file = MAP_FAILED;
    if (!rc) {
        file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = file == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (!rc) {
        rc = fill(file, config);
        munmap(file, sizeof *file);
    }
    return rc;
}

int sim_machine_create(const char *path, const struct sim_config *config) {
    char temporary[4096];
    struct sim_config whole = *config;
    int rc = complete(&whole);
    if (!rc)
        rc = join(temporary, sizeof temporary, path, ".XXXXXX");
    if (rc)
        return rc;
    rc = write_file(temporary, &whole);
    if (!rc && rename(temporary, path))
        rc = errno;
    if (rc)
        unlink(temporary);
    return rc;
}

// Whether the numbers that bound loops make sense: anybody may have written to the file.
static bool sane(const struct sim_file *file) {
    struct sim_config config;
    memcpy(&config, &file->config, sizeof config);
    if (complete(&config) || memcmp(&config, &file->config, sizeof config) ||
        file->processes_used > SIM_PROCESSES_MAX)
        return false;
    for (unsigned i = 0; i < SIM_REGIONS; i++) {
        const struct sim_engines *engines = &file->regions[i];
        bool unused = i && !engines->gpu_count;
        if ((!unused && engines->gpu_count != config.gpu_count) ||
            engines->contexts_used > SIM_CONTEXTS_MAX || engines->stays_used > SIM_PROCESSES_MAX)
            return false;
    }
    return true;
}

// Maps an open file, if it is a machine of this layout.
static int map_file(int fd, struct sim_file **file) {
    struct stat status;
    if (fstat(fd, &status))
        return errno;
    if (!S_ISREG(status.st_mode) || status.st_size != (off_t)sizeof **file)
        return EPROTO;
    *file = mmap(NULL, sizeof **file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*file == MAP_FAILED)
        return errno;
    if ((*file)->magic == SIM_MAGIC && (*file)->layout == SIM_LAYOUT && sane(*file) &&
        !madvise(*file, sizeof **file, MADV_DONTFORK))
        return 0;
    munmap(*file, sizeof **file);
    return EPROTO;
}

int sim_machine_open(const char *path, struct sim_machine **machine) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    struct sim_file *file;
    int rc = map_file(fd, &file);
    close(fd);
    if (rc)
        return rc;
    *machine = calloc(1, sizeof **machine);
    if (!*machine) {
        munmap(file, sizeof *file);
        return ENOMEM;
    }
    (*machine)->file = file;
    return 0;
}

void sim_machine_close(struct sim_machine *machine) {
    if (!machine)
        return;
    munmap(machine->file, sizeof *machine->file);
    free(machine);
}

const struct sim_config *sim_machine_config(const struct sim_machine *machine) {
    return &machine->file->config;
}

int sim_machine_gpu(struct sim_machine *machine, unsigned index, struct sim_gpu_state *state) {
    struct sim_file *file = machine->file;
    if (index >= file->config.gpu_count)
        return EINVAL;
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        const struct sim_gpu *gpu = &engines->gpus[index];
        *state = (struct sim_gpu_state){.now_ns = gpu->now_ns,
                                        .created_ns = file->created_ns,
                                        .busy_ns = gpu->busy_ns,
                                        .switch_ns = gpu->switched_ns,
                                        .copy_ns = {gpu->copy_ns[0], gpu->copy_ns[1]},
                                        .launches = gpu->launches,
                                        .switches = gpu->switches};
        memcpy(state->wall_by_rivals_ns, gpu->wall_by_rivals_ns, sizeof gpu->wall_by_rivals_ns);
    } while (!sim_unlock(machine, engines));
    uint64_t free_bytes;
    sim_memory_info(machine, index, &free_bytes, &state->memory_bytes);
    state->used_bytes = state->memory_bytes - free_bytes;
    uint32_t used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t serial = __atomic_load_n(&file->processes[i].serial, __ATOMIC_ACQUIRE);
        if (!sim_process_alive(file, i, serial))
            continue;
        uint32_t contexts = __atomic_load_n(&file->contexts[index][i], __ATOMIC_ACQUIRE);
        state->contexts += contexts;
        state->processes += contexts != 0;
    }
    return 0;
}

int sim_machine_process(struct sim_machine *machine, unsigned slot,
                        struct sim_process_state *state) {
    struct sim_file *file = machine->file;
    if (slot >= __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE))
        return ENOENT;
    const struct sim_process *process = &file->processes[slot];
    struct sim_engines *engines;
    memset(state, 0, sizeof *state);
    do {
        engines = sim_lock(machine);
        state->serial = __atomic_load_n(&process->serial, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < file->config.gpu_count; i++)
            state->gpus[i].books = engines->stays[slot][i].books;
    } while (!sim_unlock(machine, engines));
    state->pid = process->pid;
    state->joined_ns = process->joined_ns;
    memcpy(state->name, process->name, sizeof state->name - 1);
    state->alive = sim_process_alive(file, slot, state->serial);
    for (unsigned i = 0; state->alive && i < file->config.gpu_count; i++) {
        struct sim_process_gpu *gpu = &state->gpus[i];
        uint64_t held = __atomic_load_n(&file->held[i][slot], __ATOMIC_ACQUIRE);
        gpu->contexts = __atomic_load_n(&file->contexts[i][slot], __ATOMIC_ACQUIRE);
        gpu->context_bytes = gpu->contexts * file->config.gpus[i].context_bytes;
        gpu->context_bytes = gpu->context_bytes < held ? gpu->context_bytes : held;
        gpu->allocated_bytes = held - gpu->context_bytes;
    }
    return 0;
}
