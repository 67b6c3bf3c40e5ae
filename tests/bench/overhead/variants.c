// variants.c: what the forms of a launch beside cuLaunchKernel cost: those of the per-thread
// default stream, extended and cooperative ones, those of old programs, graphs and host functions.
//
// An export that a library or driver lacks is left out: it is looked up, not linked.
#define _GNU_SOURCE
#include "measure.h"

#include <dlfcn.h>
#include <stdio.h>

static void *function, *exec, *called;

static void nothing(void *argument) {
    (void)argument;
}

#define DIMENSIONS 1, 1, 1, 1, 1, 1, 0

// MEASURED(key, type of the function, arguments): calls what `called` points at.
#define MEASURED(key, type, ...)                                                                   \
    static void calls_##key(long count) {                                                          \
        type *call = (type *)called;                                                               \
        for (long i = 0; i < count; i++)                                                           \
            check(#key, call(__VA_ARGS__));                                                        \
    }

static void *parameters[1] = {&called};
static const launch_config config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
static device_launch launches[1] = {{NULL, DIMENSIONS, NULL, parameters}};

MEASURED(launch, launch_fn, function, DIMENSIONS, NULL, parameters, NULL)
MEASURED(extended, launch_extended_fn, &config, function, parameters, NULL)
MEASURED(cooperative, launch_cooperative_fn, function, DIMENSIONS, NULL, parameters)
MEASURED(multi_device, launch_multi_device_fn, launches, 1, 0)
MEASURED(old, launch_old_fn, function)
MEASURED(grid, launch_grid_fn, function, 1, 1)
MEASURED(grid_async, launch_grid_async_fn, function, 1, 1, NULL)
MEASURED(graph, launch_graph_fn, exec, NULL)
MEASURED(host, launch_host_fn, NULL, nothing, NULL)

// The key of a figure is the export's name.
static const struct {
    const char *export;
    void (*calls)(long count);
} variants[] = {
    {"cuLaunchKernel_ptsz", calls_launch},
    {"cuLaunchKernelEx", calls_extended},
    {"cuLaunchKernelEx_ptsz", calls_extended},
    {"cuLaunchCooperativeKernel", calls_cooperative},
    {"cuLaunchCooperativeKernel_ptsz", calls_cooperative},
    {"cuLaunchCooperativeKernelMultiDevice", calls_multi_device},
    {"cuLaunch", calls_old},
    {"cuLaunchGrid", calls_grid},
    {"cuLaunchGridAsync", calls_grid_async},
    {"cuGraphLaunch", calls_graph},
    {"cuGraphLaunch_ptsz", calls_graph},
    {"cuLaunchHostFunc", calls_host},
    {"cuLaunchHostFunc_ptsz", calls_host},
};

static void all(long count) {
    for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        called = dlsym(RTLD_DEFAULT, variants[i].export);
        if (called)
            variants[i].calls(count);
    }
}

void measure_variants(void *kernel) {
    void *graph;
    function = launches[0].function = kernel;
    check("cuGraphCreate", cuGraphCreate(&graph, 0));
    check("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(&exec, graph, 0));
    let_learn(all);
    for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        called = dlsym(RTLD_DEFAULT, variants[i].export);
        if (called)
            report(variants[i].export, cost(variants[i].calls));
    }
}
