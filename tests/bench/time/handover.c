// handover.c: how long a GPU's slot goes from one program to the next, and how long a bare chain of
// the same wake-ups takes beside it.
//
// handover MACHINE_FILE END: watches a simulated machine until END (ns of CLOCK_MONOTONIC) and
// says, one a line, "handover FROM TO", from the true end of one program's last kernel to the
// submission of the next program's first one, "overlap FROM TO" where that was submitted before,
// and "chain FROM TO", of a round of the chain (chain.h). Times are of CLOCK_MONOTONIC, in ns. The
// chain's rounds lie between the looks at the machine, and are about as many as the hand-overs:
// each is then as often in the other's way.
#define _GNU_SOURCE
#include "../../sim/engine.h"
#include "chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    CONTEXTS_MAX = 64,
    KERNELS_MAX = 1 << 20,
    LOOK_NS = 7000000,  // well below what 1024 operations of one context take
};

struct kernel {
    uint64_t submit_ns, finish_ns;
    uint32_t context;
};

static struct kernel kernels[KERNELS_MAX];
static size_t kernel_count;
static uint64_t next_of[CONTEXTS_MAX];  // the first operation that has not been seen done

// Takes the kernels that have ended since the last look. The machine is locked.
static void take_kernels(struct sim_engines *engines) {
    for (uint32_t c = 0; c < engines->contexts_used && c < CONTEXTS_MAX; c++) {
        const struct sim_context *context = &engines->contexts[c];
        for (uint64_t seq = next_of[c] ? next_of[c] : 1; context->serial && seq < context->tail;
             seq++) {
            const struct sim_item *item = sim_engines_item(engines, c, seq);
            if (item && !item->finish_ns)
                break;
            next_of[c] = seq + 1;
            if (item && item->engine == SIM_ENGINE_COMPUTE && kernel_count < KERNELS_MAX)
                kernels[kernel_count++] = (struct kernel){item->submit_ns, item->finish_ns, c};
        }
    }
}

static void look(struct sim_machine *machine) {
    struct sim_engines *engines;
    size_t before = kernel_count;
    uint64_t next[CONTEXTS_MAX];
    for (int i = 0; i < CONTEXTS_MAX; i++)
        next[i] = next_of[i];
    for (;;) {
        engines = sim_lock(machine);
        sim_engines_advance(engines, sim_now_ns());
        take_kernels(engines);
        if (sim_unlock(machine, engines))
            return;
        kernel_count = before;
        for (int i = 0; i < CONTEXTS_MAX; i++)
            next_of[i] = next[i];
    }
}

static int by_submission(const void *a, const void *b) {
    uint64_t x = ((const struct kernel *)a)->submit_ns, y = ((const struct kernel *)b)->submit_ns;
    return x < y ? -1 : x > y;
}

static void say_handovers(void) {
    uint64_t finish_ns = 0;
    qsort(kernels, kernel_count, sizeof(*kernels), by_submission);
    for (size_t i = 0; i < kernel_count; i++) {
        const struct kernel *k = &kernels[i];
        if (i && k->context != k[-1].context)
            printf("%s %" PRIu64 " %" PRIu64 "\n",
                   k->submit_ns < finish_ns ? "overlap" : "handover", finish_ns, k->submit_ns);
        finish_ns = k->finish_ns > finish_ns ? k->finish_ns : finish_ns;
    }
}

int main(int count, char **arguments) {
    struct sim_machine *machine;
    prctl(PR_SET_TIMERSLACK, 1);
    if (count != 3 || !chain_start() || sim_machine_open(arguments[1], &machine))
        return 2;
    for (uint64_t end_ns = strtoull(arguments[2], NULL, 10); sim_now_ns() < end_ns;) {
        look(machine);
        chain_round();
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    look(machine);
    say_handovers();
    chain_end();
    return 0;
}
