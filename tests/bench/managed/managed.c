// managed.c: managed memory of the simulated GPU, by faults beside prefetches: working sets of
// 0.75, 1.0, 1.25 and 1.5 of what the card has for them, as a table of times and bytes (those of
// the real card), and a promise for each: the ratio is what the machine file's bandwidths imply.
//
// Uses the machine that WEIR_SIM names. Fails if a promise does not hold.
#include "working_set.h"

#include "../../sim/driver/cuda_abi.h"

#include <math.h>
#include <stdio.h>

#define PARTS 4u
#define WITHIN 0.10

static const double parts[PARTS] = {0.75, 1.0, 1.25, 1.5};

static void print_sweep(const struct working_set *set, const char *name, const struct sweep *sweep,
                        double scale) {
    double gib = (double)(1u << 30) / scale;
    printf("%-5.2f %-9s %-5s %9.1f %9.1f %9.2f %9.2f %9.2f\n", set->part,
           set->prefetch ? "prefetch" : "faults", name, sweep->ms, sweep->implied_ms,
           (double)sweep->moved.fault_in_bytes / gib, (double)sweep->moved.prefetch_in_bytes / gib,
           (double)sweep->moved.evicted_bytes / gib);
}

// The ratio of the two ways, of one kind of sweep.
static int promise(double part, const char *name, const struct sweep *faults,
                   const struct sweep *prefetch) {
    double wanted = faults->implied_ms / prefetch->implied_ms, got = faults->ms / prefetch->ms;
    int holds = fabs(got / wanted - 1) <= WITHIN;
    printf("promise: working set %.2f of the simulated card, %s, faults take %.2f times as long as "
           "prefetches by the bandwidths (within %.0f%%), got %.2f, holds %s\n",
           part, name, wanted, WITHIN * 100, got, holds ? "yes" : "no");
    return holds;
}

static int open_all(struct sim_machine **machine) {
    char path[4096];
    CUcontext context;
    if (sim_machine_path(path, sizeof path) || sim_machine_open(path, machine) || cuInit(0) ||
        cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return -1;
    return 0;
}

int main(void) {
    struct sim_machine *machine;
    struct working_set sets[PARTS][2];
    int all = 1;
    if (open_all(&machine)) {
        printf("managed failed: no simulated machine\n");
        return 1;
    }
    const struct sim_config *config = sim_machine_config(machine);
    printf("%s, at 1/%u: times in ms, sizes in GiB of the real card\n", config->gpus[0].name,
           config->scale);
    printf("%-5s %-9s %-5s %9s %9s %9s %9s %9s\n", "set", "pages by", "sweep", "time", "implied",
           "faulted", "fetched", "evicted");
    for (unsigned i = 0; i < PARTS; i++)
        for (unsigned k = 0; k < 2; k++) {
            struct working_set *set = &sets[i][k];
            *set = (struct working_set){.part = parts[i], .prefetch = k};
            int rc = working_set_measure(machine, set);
            if (rc) {
                printf("managed failed: %d\n", rc);
                return 1;
            }
            print_sweep(set, "cold", &set->cold, config->scale);
            print_sweep(set, "warm", &set->warm, config->scale);
        }
    for (unsigned i = 0; i < PARTS; i++) {
        all &= promise(parts[i], "cold", &sets[i][0].cold, &sets[i][1].cold);
        all &= promise(parts[i], "warm", &sets[i][0].warm, &sets[i][1].warm);
    }
    sim_machine_close(machine);
    return !all;
}
