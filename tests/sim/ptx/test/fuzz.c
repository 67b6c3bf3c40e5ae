// The fuzz target: any text is linked and loaded, and what loads is launched, with bounded
// instructions and a device of a few kilobytes. Must neither crash nor touch other memory, nor take
// long. Built with libFuzzer by `make fuzz-ptx`, and with mutate.c into a quick deterministic test.
#include "tests/sim/ptx/ptx.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 65536
#define ARENA_BYTES 65536
#define KERNELS_MAX 4

struct arena {
    uint8_t *at;
    uint64_t used;
};

static int allocate(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                    uint64_t *address) {
    struct arena *a = user;
    (void)space;
    uint64_t at = (a->used + align - 1) & ~(align - 1);
    if (bytes > ARENA_BYTES || at > ARENA_BYTES - bytes)
        return SIM_PTX_OUT_OF_MEMORY;
    *address = (uintptr_t)a->at + at;
    a->used = at + bytes;
    return 0;
}

static int write_memory(void *user, uint64_t address, const void *data, uint64_t bytes) {
    (void)user;
    memcpy((void *)(uintptr_t)address, data, bytes);
    return 0;
}

static void release(void *user, uint64_t address) {
    (void)user, (void)address;
}

static bool resolve(void *user, uint64_t address, uint64_t *start, uint64_t *bytes, void **host,
                    bool *writable) {
    *writable = true;
    const struct arena *a = user;
    *start = (uintptr_t)a->at;
    *bytes = ARENA_BYTES;
    *host = a->at;
    return address - *start < ARENA_BYTES;
}

static void run_kernels(const struct sim_ptx_module *m, const struct sim_ptx_memory *memory,
                        uint64_t arena) {
    const struct sim_ptx_function *f;
    uint64_t params[SIM_PTX_PARAM_BYTES_MAX / 8];
    for (size_t k = 0; k < sizeof(params) / sizeof(params[0]); k++)
        params[k] = arena + 64 * k;
    for (uint32_t k = 0; k < KERNELS_MAX && (f = sim_ptx_function_at(m, k)); k++) {
        struct sim_ptx_outcome outcome;
        struct sim_ptx_launch l = {.grid = {2, 1, 1},
                                   .block = {33, 1, 1},
                                   .dynamic_shared_bytes = 64,
                                   .params = params,
                                   .params_bytes = sizeof(params),
                                   .memory = memory,
                                   .together = k % 2,
                                   .instructions_max = 20000};
        sim_ptx_launch(f, &l, &outcome);
    }
}

// Links the text's halves, which is cut anywhere.
static void merge_halves(const char *text, size_t bytes) {
    struct sim_ptx_source halves[] = {{text, bytes / 2}, {text + bytes / 2, bytes - bytes / 2}};
    char *merged;
    size_t merged_bytes;
    if (sim_ptx_merge(halves, 2, &merged, &merged_bytes) != SIM_PTX_OK)
        return;
    if (strlen(merged) != merged_bytes)
        abort();
    free(merged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes > TEXT_BYTES_MAX)
        return 0;
    // A copy of exactly this size, so that one byte too far is seen.
    char *text = malloc(bytes ? bytes : 1);
    struct arena arena = {.at = aligned_alloc(65536, ARENA_BYTES)};
    if (!text || !arena.at)
        abort();
    memcpy(text, data, bytes);
    memset(arena.at, 0x11, ARENA_BYTES);
    struct sim_ptx_memory memory = {&arena, allocate, write_memory, release, resolve};
    struct sim_ptx_module *module;
    char log[SIM_PTX_LOG_BYTES];
    merge_halves(text, bytes);
    int code = sim_ptx_load(&module, text, bytes, &memory, log);
    free(text);
    if (code == SIM_PTX_OK) {
        run_kernels(module, &memory, (uintptr_t)arena.at);
        sim_ptx_unload(module);
    } else if (log[0] == '\0' || strlen(log) >= SIM_PTX_LOG_BYTES) {
        abort();  // an error always says what it is
    }
    free(arena.at);
    return 0;
}
