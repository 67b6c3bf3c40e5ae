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

#define PAGE 4096u  // of the host

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

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t pages = (bytes + PAGE - 1) / PAGE;
    return (pages ? pages : 1) * PAGE;
}

// Fills in defaults. EINVAL where no machine can be made of it.
static int complete(struct sim_config *config) {
    if (!config->gpu_count || config->gpu_count > SIM_GPUS_MAX)
        return EINVAL;
    config->cuda_version = config->cuda_version ? config->cuda_version : 12020;
    config->scale = config->scale ? config->scale : 1;
    if (!config->nvlink_bytes_per_s)
        config->nvlink_bytes_per_s = UINT64_C(25000000000) / config->scale;
    config->driver_version[sizeof config->driver_version - 1] = 0;
    for (unsigned i = 0; i < config->gpu_count; i++) {
        struct sim_gpu_config *gpu = &config->gpus[i];
        gpu->name[sizeof gpu->name - 1] = 0;
        if (!gpu->page_bytes)
            gpu->page_bytes = whole_pages((2u << 20) / config->scale);
        if (!gpu->pool_chunk_bytes)
            gpu->pool_chunk_bytes = whole_pages((32u << 20) / config->scale);
        gpu->fault_batch_ns = gpu->fault_batch_ns ? gpu->fault_batch_ns : 35000;
        gpu->fault_batch_pages = gpu->fault_batch_pages ? gpu->fault_batch_pages : 1;
        gpu->queue_depth = gpu->queue_depth ? gpu->queue_depth : SIM_QUEUE_MAX;
        gpu->slice_ns = gpu->slice_ns ? gpu->slice_ns : 1024000;
        gpu->memory_bytes = gpu->memory_bytes / SIM_GRANULE * SIM_GRANULE;
        if (gpu->context_bytes >= gpu->memory_bytes)
            return EINVAL;
        gpu->context_bytes = (gpu->context_bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
        if (gpu->queue_depth > SIM_QUEUE_MAX || !gpu->memory_bytes ||
            gpu->context_bytes >= gpu->memory_bytes || !gpu->h2d_bytes_per_s ||
            !gpu->d2h_bytes_per_s || !gpu->memory_bytes_per_s || !gpu->sm_count ||
            gpu->page_bytes % PAGE || gpu->pool_chunk_bytes % PAGE || !sim_mig_sane(&gpu->mig))
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
    file->shares = file->created_ns << 16;  // machines do not come so close to each other
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
            engines->contexts_used > SIM_CONTEXTS_MAX || engines->stays_used > SIM_PROCESSES_MAX ||
            engines->active_count > SIM_UNITS_MAX ||
            engines->residency.owners_used > SIM_PROCESSES_MAX ||
            engines->residency.blocks_used > SIM_BLOCKS_MAX)
            return false;
        for (uint32_t k = 0; k < engines->active_count; k++)
            if (engines->active[k] >= SIM_UNITS_MAX)
                return false;
        for (uint32_t card = 0; card < config.gpu_count; card++) {
            struct sim_mig_state state;
            sim_mig_read(engines, card, &state);
            for (uint32_t k = 0; k < SIM_MIG_SLICES; k++)
                if (state.instance[k] > config.gpus[card].mig.profile_count ||
                    state.compute[k] > SIM_MIG_SLICES)
                    return false;
        }
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
    pthread_mutex_init(&(*machine)->ledger_lock, NULL);
    return 0;
}

void sim_machine_close(struct sim_machine *machine) {
    if (!machine)
        return;
    munmap(machine->file, sizeof *machine->file);
    free(machine->ledger);
    free(machine);
}

const struct sim_config *sim_machine_config(const struct sim_machine *machine) {
    return &machine->file->config;
}

int sim_machine_gpu(struct sim_machine *machine, unsigned index, struct sim_gpu_state *state) {
    struct sim_file *file = machine->file;
    struct sim_gpu_config config;
    if (sim_gpu_describe(machine, index, &config))
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
    state->resident_bytes = sim_managed_resident(machine, index);
    sim_memory_users(machine, index, &state->contexts, &state->processes);
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
        sim_managed_reap(file, engines);
        for (unsigned i = 0; i < SIM_COLUMNS; i++) {
            state->gpus[i].books = engines->stays[slot][i].books;
            if (slot < engines->residency.owners_used)
                state->gpus[i].managed = engines->residency.owners[slot].books[i];
        }
    } while (!sim_unlock(machine, engines));
    state->pid = process->pid;
    state->joined_ns = process->joined_ns;
    memcpy(state->name, process->name, sizeof state->name - 1);
    state->alive = sim_process_alive(file, slot, state->serial);
    state->unit = sim_attached_unit(__atomic_load_n(&process->attached, __ATOMIC_ACQUIRE));
    if (state->alive)
        sim_memory_of(machine, slot, state->gpus);
    return 0;
}
