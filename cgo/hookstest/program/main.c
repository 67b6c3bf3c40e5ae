// main.c: reads commands, one a line, and answers each with a line:
//
//   call EXPORT WORD...     calls a wrapper; the answer is its result and all that came to pass
//   now NAME VALUE          sets one of the circumstances
//   mode VALUE              sets what the process is to weir
//   config STREAM GRID BLOCK SHARED     a configuration's address
//   launches STREAM...      the address of the launches of one kernel on several devices
//   copy TO FROM TO_ADDRESS FROM_ADDRESS WIDTH HEIGHT DEPTH     a copy's address, in the structures
//                                                               2D, 2D_v1, 3D, 3D_v1
// Numbers are hexadecimal.
#include "program.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct circumstances now;

static char story[8192];
static size_t told;

// A word that begins with a letter begins a new part.
void happened(const char *format, ...) {
    va_list arguments;
    if (told && format[0] >= 'a' && format[0] <= 'z')
        told += (size_t)snprintf(story + told, sizeof(story) - told, "|");
    va_start(arguments, format);
    told += (size_t)vsnprintf(story + told, sizeof(story) - told, format, arguments);
    va_end(arguments);
    if (told >= sizeof(story))
        abort();
}

static const struct {
    const char *name;
    any_fn *wrapper;
} wrappers[] = {
#define WRAPPER(export) {#export, (any_fn *)(void *)weir_##export},
#define TESTED_ALLOC(export)
#define TESTED_FREE(export)
#define TESTED_EXPORT(export)
#define TESTED_IMPORT(export)
#define TESTED_MAP(export)
#define TESTED_HOST(export)
#define TESTED_REPORT(export)
#define TESTED_MOVE(export)
#define TESTED_RESOLVE(export)
#define TESTED_CODE(export)
#define TESTED_GRAPH(export)
#define TESTED_CONTEXT(export)
#define TESTED_OTHER(export)
#define TESTED_VIEW(export)
#define TESTED_MEMOP(export)
#define TESTED_LAUNCH(export) WRAPPER(export)
#define TESTED_COPY(export) WRAPPER(export)
#define HOOK(export, asked, since, streams, class) TESTED_##class(export)
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "../../symbols.def"
    WRAPPER(cuStreamBeginCapture) WRAPPER(cuStreamBeginCapture_ptsz)
        WRAPPER(cuStreamBeginCapture_v2) WRAPPER(cuStreamBeginCapture_v2_ptsz)
            WRAPPER(cuStreamBeginCaptureToGraph) WRAPPER(cuStreamBeginCaptureToGraph_ptsz) WRAPPER(
                cuStreamEndCapture) WRAPPER(cuStreamEndCapture_ptsz) WRAPPER(cuStreamDestroy)
                WRAPPER(cuStreamDestroy_v2) WRAPPER(cuStreamSynchronize) WRAPPER(
                    cuStreamSynchronize_ptsz) WRAPPER(cuStreamQuery) WRAPPER(cuStreamQuery_ptsz)
                    WRAPPER(cuEventSynchronize) WRAPPER(cuEventQuery) WRAPPER(cuCtxSynchronize)
                        WRAPPER(cuCtxDestroy) WRAPPER(cuCtxDestroy_v2) WRAPPER(cuCtxDetach) WRAPPER(
                            cuDevicePrimaryCtxRetain) WRAPPER(cuDevicePrimaryCtxRelease)
                            WRAPPER(cuDevicePrimaryCtxRelease_v2) WRAPPER(cuDevicePrimaryCtxReset)
                                WRAPPER(cuDevicePrimaryCtxReset_v2) WRAPPER(cuGreenCtxDestroy)};

static uint64_t next(void) {
    const char *text = strtok(NULL, " \n");
    return text ? strtoull(text, NULL, 16) : 0;
}

static void call(void) {
    const char *name = strtok(NULL, " \n");
    uintptr_t w[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        w[i] = next();
    for (size_t i = 0; name && i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (strcmp(wrappers[i].name, name) != 0)
            continue;
        told = 0;
        uintptr_t result = wrappers[i].wrapper(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8],
                                               w[9], w[10], w[11]);
        printf("%x|%s\n", (unsigned)result, told ? story : "");
        return;
    }
    printf("no wrapper %s\n", name ? name : "");
}

static void set_now(void) {
    const char *name = strtok(NULL, " \n");
    uint64_t value = next();
    const struct {
        const char *name;
        uint64_t *at;
    } all[] = {
        {"answer", &now.answer},     {"capturing", &now.capturing}, {"active", &now.active},
        {"attached", &now.attached}, {"other", &now.other},         {"recalled", &now.recalled},
        {"closed", &now.closed},
    };
    for (size_t i = 0; name && i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, name) == 0)
            *all[i].at = value;
    // Every executable graph may be in the book then.
    memset(weir_state_page->exec_filter, (int)now.recalled, sizeof(weir_state_page->exec_filter));
    printf("ok\n");
}

static void configure(void) {
    static CUlaunchConfig config;
    config.hStream = (CUstream)(uintptr_t)next();
    config.gridDimX = (unsigned)next(), config.gridDimY = (unsigned)next();
    config.gridDimZ = (unsigned)next(), config.blockDimX = (unsigned)next();
    config.blockDimY = (unsigned)next(), config.blockDimZ = (unsigned)next();
    config.sharedMemBytes = (unsigned)next();
    printf("%" PRIxPTR "\n", (uintptr_t)&config);
}

static void launch_many(void) {
    static CUDA_LAUNCH_PARAMS launches[8];
    memset(launches, 0, sizeof(launches));
    for (size_t i = 0; i < 8; i++) {
        launches[i].function = (CUfunction)0xf;
        launches[i].hStream = (CUstream)(uintptr_t)next();
    }
    printf("%" PRIxPTR "\n", (uintptr_t)launches);
}

#define FILL(copy)                                                                                 \
    memset(&copy, 0xee, sizeof(copy)), copy.dstMemoryType = (unsigned)w[0],                        \
                                       copy.srcMemoryType = (unsigned)w[1],                        \
                                       copy.dstDevice = (__typeof__(copy.dstDevice))w[2],          \
                                       copy.srcDevice = (__typeof__(copy.srcDevice))w[3],          \
                                       copy.WidthInBytes = (__typeof__(copy.WidthInBytes))w[4],    \
                                       copy.Height = (__typeof__(copy.Height))w[5]

static void describe_copy(void) {
    static CUDA_MEMCPY2D of_rows;
    static CUDA_MEMCPY2D_v1 of_rows_v1;
    static CUDA_MEMCPY3D of_planes;
    static CUDA_MEMCPY3D_v1 of_planes_v1;
    uint64_t w[7];
    for (size_t i = 0; i < 7; i++)
        w[i] = next();
    FILL(of_rows);
    FILL(of_rows_v1);
    FILL(of_planes);
    FILL(of_planes_v1);
    of_planes.Depth = w[6];
    of_planes_v1.Depth = (unsigned)w[6];
    printf("%" PRIxPTR " %" PRIxPTR " %" PRIxPTR " %" PRIxPTR "\n", (uintptr_t)&of_rows,
           (uintptr_t)&of_rows_v1, (uintptr_t)&of_planes, (uintptr_t)&of_planes_v1);
}

int main(void) {
    static char line[1024];
    while (fgets(line, sizeof(line), stdin)) {
        const char *command = strtok(line, " \n");
        if (!command)
            continue;
        if (strcmp(command, "call") == 0)
            call();
        else if (strcmp(command, "now") == 0)
            set_now();
        else if (strcmp(command, "mode") == 0)
            weir_state_page->mode = (uint32_t)next(), printf("ok\n");
        else if (strcmp(command, "config") == 0)
            configure();
        else if (strcmp(command, "launches") == 0)
            launch_many();
        else if (strcmp(command, "copy") == 0)
            describe_copy();
        fflush(stdout);
    }
    return 0;
}
