// prober.c: a CUDA program on strings, of memory that may have been made managed behind its back.
//
// It reads one command a line and answers each with one: "ok ...", "error CODE" of the driver, or
// "wrong TEXT". Allocations have numbers.
//   init GPU             a context
//   pid
//   alloc BYTES          plain memory; its number
//   pitch WIDTH HEIGHT   pitched memory; its number
//   fit PERCENT          so much of what the driver reports as total, in pieces of 2 MiB: how many
//                        there were (numbers from 0 on, if nothing else is allocated), and its code
//   free NUMBER
//   report               free and total, and the total of cuDeviceTotalMem
//   fill NUMBER SEED     writes all of it
//   check NUMBER SEED    how many bytes are not as filled
//   use NUMBER TIMES     so many kernels of 1 ms on all of it, and waits
//   copy WAY TO FROM     see prober.h
//   set NUMBER           sets all of it, and waits
//   push NUMBER          copies to all of it from the host, in one of four streams; no wait
//   open FILE            dlopen
//   and those of prober_ask.c, with a NUMBER, and of prober_many.c
#define _GNU_SOURCE
#include "prober.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 5, PART = 1 << 20, FIT_BYTES = 2 << 20 };

struct memory prober_memories[MEMORIES_MAX];

void prober_answer(CUresult code) {
    if (code)
        printf("error %d\n", code);
    else
        printf("ok\n");
}

static uint64_t number(const char *word) {
    return word ? strtoull(word, NULL, 0) : 0;
}

static struct memory *memory_of(const char *word) {
    uint64_t at = word ? number(word) : MEMORIES_MAX;
    return at < MEMORIES_MAX && prober_memories[at].at ? &prober_memories[at] : NULL;
}

static CUresult init(int ordinal) {
    CUdevice device;
    CUcontext context;
    CUfunction function;
    CUresult code = cuInit(0);
    if (!code)
        code = cuDeviceGet(&device, ordinal);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, device);
    if (!code)
        code = cuCtxSetCurrent(context);
    return code ? code : prober_kernel(context, &function);
}

// ---- Allocations ----

static CUresult keep(CUresult code, CUdeviceptr at, size_t bytes, int *slot) {
    CUcontext context = NULL;
    for (*slot = 0; *slot < MEMORIES_MAX && prober_memories[*slot].at;)
        ++*slot;
    if (code || *slot == MEMORIES_MAX)
        return code ? code : CUDA_ERROR_UNKNOWN;
    cuCtxGetCurrent(&context);
    prober_memories[*slot] = (struct memory){at, bytes, context};
    return CUDA_SUCCESS;
}

static CUresult allocate(size_t bytes, int *slot) {
    CUdeviceptr at = 0;
    CUresult code = cuMemAlloc_v2(&at, bytes);
    return keep(code, at, bytes, slot);
}

static CUresult allocate_pitched(size_t width, size_t height, int *slot) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    CUresult code = cuMemAllocPitch_v2(&at, &pitch, width, height, 4);
    return keep(code, at, pitch * height, slot);
}

static void answer_slot(CUresult code, const int *slot) {
    if (code)
        prober_answer(code);
    else
        printf("ok %d\n", *slot);
}

static void fit(uint64_t percent) {
    size_t free_bytes, total, taken = 0;
    int count = 0, slot;
    CUresult code = cuMemGetInfo_v2(&free_bytes, &total);
    for (; !code && taken + FIT_BYTES <= total / 100 * percent; taken += FIT_BYTES)
        if (!(code = allocate(FIT_BYTES, &slot)))
            count++;
    printf("ok %d %d\n", count, code);
}

static CUresult release(struct memory *memory) {
    CUresult code = cuMemFree_v2(memory->at);
    if (!code)
        memory->at = 0;
    return code;
}

static void report(void) {
    size_t free_bytes, total, whole;
    CUresult code = cuMemGetInfo_v2(&free_bytes, &total);
    if (!code)
        code = cuDeviceTotalMem_v2(&whole, 0);
    if (code)
        prober_answer(code);
    else
        printf("ok %zu %zu %zu\n", free_bytes, total, whole);
}

// ---- Data ----

static unsigned char block[PART], back[PART];

static void pattern(uint64_t seed, uint64_t from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        block[i] = (unsigned char)(seed + (from + i) / 4096 * 13 + (from + i) % 247);
}

static CUresult fill(const struct memory *memory, uint64_t seed) {
    CUresult code = CUDA_SUCCESS;
    for (uint64_t from = 0; from < memory->bytes && !code; from += PART) {
        size_t left = memory->bytes - from, bytes = left < PART ? left : PART;
        pattern(seed, from, bytes);
        code = cuMemcpyHtoD_v2(memory->at + from, block, bytes);
    }
    return code;
}

static void check(const struct memory *memory, uint64_t seed) {
    uint64_t wrong = 0;
    CUresult code = CUDA_SUCCESS;
    for (uint64_t from = 0; from < memory->bytes && !code; from += PART) {
        size_t left = memory->bytes - from, bytes = left < PART ? left : PART;
        pattern(seed, from, bytes);
        code = cuMemcpyDtoH_v2(back, memory->at + from, bytes);
        for (size_t i = 0; i < bytes && memcmp(back, block, bytes); i++)
            wrong += back[i] != block[i];
    }
    if (code)
        prober_answer(code);
    else
        printf("ok %" PRIu64 "\n", wrong);
}

CUresult prober_use(const struct memory *memory, uint64_t times) {
    CUfunction function;
    CUcontext context;
    uint64_t cost_ns = 1000000, at = memory->at, bytes = memory->bytes;
    void *params[] = {&cost_ns, &at, &bytes};
    CUresult code = cuCtxGetCurrent(&context);
    if (!code)
        code = prober_kernel(context, &function);
    for (uint64_t i = 0; i < times && !code; i++)
        code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    return code ? code : cuCtxSynchronize();
}

// ---- Commands ----

static bool obey_of(char **words, struct memory *memory) {
    const char *name = words[0];
    if (!strcmp(name, "free"))
        prober_answer(release(memory));
    else if (!strcmp(name, "fill"))
        prober_answer(fill(memory, number(words[2])));
    else if (!strcmp(name, "check"))
        check(memory, number(words[2]));
    else if (!strcmp(name, "use"))
        prober_answer(prober_use(memory, number(words[2])));
    else {
        const struct prober_command *ask = prober_asks;
        while (ask->name && strcmp(ask->name, name))
            ask++;
        if (ask->name)
            ask->run(memory);
        return ask->name != NULL;
    }
    return true;
}

static void obey(char **words) {
    const char *name = words[0];
    struct memory *memory = memory_of(words[1]), *to = memory_of(words[2]),
                  *from = memory_of(words[3]);
    int slot = 0;
    if (!strcmp(name, "init"))
        prober_answer(init((int)number(words[1])));
    else if (!strcmp(name, "pid"))
        printf("ok %d\n", getpid());
    else if (!strcmp(name, "alloc"))
        answer_slot(allocate(number(words[1]), &slot), &slot);
    else if (!strcmp(name, "pitch"))
        answer_slot(allocate_pitched(number(words[1]), number(words[2]), &slot), &slot);
    else if (!strcmp(name, "fit"))
        fit(number(words[1]));
    else if (!strcmp(name, "report"))
        report();
    else if (!strcmp(name, "copy") && to && from)
        prober_answer(prober_copy(words[1], to, from));
    else if (!strcmp(name, "open") && words[1])
        printf(dlopen(words[1], RTLD_NOW) ? "ok\n" : "wrong file\n");
    else if (!prober_many(words) && (!memory || !obey_of(words, memory)))
        printf("wrong command %s\n", name);
}

int main(void) {
    char line[1024], *words[WORDS_MAX];
    while (fgets(line, sizeof(line), stdin)) {
        unsigned count = 0;
        memset(words, 0, sizeof(words));
        for (char *word = strtok(line, " \n"); word && count < WORDS_MAX;
             word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count)
            obey(words);
        fflush(stdout);
    }
    return 0;
}
