// See harness.h.
#include "tests/sim/ptx/test/harness.h"

int checks_failed;

static int allocate(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                    uint64_t *address) {
    struct device *d = user;
    (void)space;
    if (d->fail_allocate != 0)
        return d->fail_allocate;
    *address = (uintptr_t)device_alloc(d, bytes);
    CHECK(*address % (align < 256 ? align : 256) == 0, "alignment %llu", (unsigned long long)align);
    return 0;
}

static int write_memory(void *user, uint64_t address, const void *data, uint64_t bytes) {
    (void)user;
    memcpy((void *)(uintptr_t)address, data, bytes);
    return 0;
}

static void release(void *user, uint64_t address) {
    struct device *d = user;
    for (int k = 0; k < d->count; k++) {
        if ((uintptr_t)d->allocations[k].at != address)
            continue;
        free(d->allocations[k].at);
        d->allocations[k].at = NULL;
        return;
    }
    CHECK(false, "released what was never allocated");
}

static bool resolve(void *user, uint64_t address, uint64_t *start, uint64_t *bytes, void **host,
                    bool *writable) {
    *writable = true;
    const struct device *d = user;
    for (int k = 0; k < d->count; k++) {
        *start = (uintptr_t)d->allocations[k].at;
        *bytes = d->allocations[k].bytes;
        *host = d->allocations[k].at;
        if (*start != 0 && address >= *start && address - *start < *bytes)
            return true;
    }
    return false;
}

void device_init(struct device *d) {
    *d = (struct device){.memory = {d, allocate, write_memory, release, resolve}};
}

void device_free(struct device *d) {
    for (int k = 0; k < d->count; k++)
        free(d->allocations[k].at);
}

void *device_alloc(struct device *d, uint64_t bytes) {
    void *at = NULL;
    if (d->count == ALLOCATIONS_MAX || posix_memalign(&at, 256, bytes ? bytes : 1) != 0) {
        fprintf(stderr, "no memory for the test\n");
        exit(1);
    }
    memset(at, 0, bytes);
    d->allocations[d->count].at = at;
    d->allocations[d->count++].bytes = bytes;
    return at;
}

int device_live(const struct device *d) {
    int live = 0;
    for (int k = 0; k < d->count; k++)
        live += d->allocations[k].at != NULL;
    return live;
}

char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    char *text = f ? calloc(1, 16 << 20) : NULL;
    if (!text) {
        perror(path);
        exit(1);
    }
    *bytes = fread(text, 1, (16 << 20) - 1, f);
    fclose(f);
    return text;
}

struct sim_ptx_module *load(struct device *d, const char *text) {
    struct sim_ptx_module *module;
    char log[SIM_PTX_LOG_BYTES];
    int code = sim_ptx_load(&module, text, strlen(text), &d->memory, log);
    if (code != SIM_PTX_OK) {
        fprintf(stderr, "load: %d: %s\n", code, log);
        exit(1);
    }
    return module;
}

int launch(struct device *d, const struct sim_ptx_module *module, const char *kernel,
           struct dims dims, struct sim_ptx_outcome *outcome, int count, const uint64_t *params) {
    const struct sim_ptx_function *f = sim_ptx_function(module, kernel);
    if (!f) {
        fprintf(stderr, "no kernel %s\n", kernel);
        exit(1);
    }
    struct sim_ptx_launch l = {
        .grid = {dims.grid, 1, 1},
        .block = {dims.block, 1, 1},
        .dynamic_shared_bytes = dims.dynamic_shared_bytes,
        .params = params,
        .params_bytes = (size_t)count * 8,
        .memory = &d->memory,
        .processors = 4,
        .instructions_max = 100u << 20,
    };
    return sim_ptx_launch(f, &l, outcome);
}

int finish(const char *name) {
    if (checks_failed > 0)
        fprintf(stderr, "%s: %d checks failed\n", name, checks_failed);
    else
        printf("ok   %s\n", name);
    return checks_failed > 0;
}
