// fault.c: armed faults in this process: each call of an export while any may be armed, kernels
// that never end, moves of data that go wrong, and contexts on cards that have fallen off the bus.
//
// WEIR_SIM_FAULT in the environment arms faults of this process alone, separated by commas, in the
// form that sim_fault_parse reads. It is looked at once, at the first call; with a mistake in it
// cuInit fails with CUDA_ERROR_INVALID_VALUE, so that no test passes for want of its fault.
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define OWN_FAULTS_MAX 16u

static const char *const names[] = {
#define E(name) #name,
#include "exports.inc"
#undef E
};

#define NAMES (sizeof names / sizeof names[0])

// What entry.S looks at. Until cuInit has succeeded, and with faults of its own, a process asks at
// each call.
struct attention {
    const uint32_t *word;
};

static const uint32_t always = 1;
static const struct attention at_first = {.word = &always};
__attribute__((visibility("hidden"))) const struct attention *fault_page = &at_first;

static struct sim_machine *machine;  // NULL: not yet in one

static struct {
    pthread_once_t once;
    bool bad;
    unsigned count;
    struct sim_fault faults[OWN_FAULTS_MAX];
    uint64_t used[OWN_FAULTS_MAX];
} own = {.once = PTHREAD_ONCE_INIT};

// ---- The environment ----

static bool is_known(const struct sim_fault *fault) {
    if (sim_fault_is_event(fault))
        return true;
    for (size_t i = 0; i < NAMES; i++)
        if (sim_fault_means(fault, names[i]))
            return true;
    return false;
}

static void read_environment(void) {
    const char *text = getenv("WEIR_SIM_FAULT");
    while (text && *text) {
        size_t bytes = strcspn(text, ",");
        struct sim_fault *fault = &own.faults[own.count];
        if (own.count == OWN_FAULTS_MAX || sim_fault_parse(text, (uint32_t)bytes, fault) ||
            !is_known(fault)) {
            own.bad = true;
            own.count = 0;
            return;
        }
        own.count++;
        text += bytes + (text[bytes] == ',');
    }
}

static uint32_t use_own(const char *function) {
    uint32_t code = 0;
    pthread_once(&own.once, read_environment);
    for (unsigned i = 0; i < own.count; i++) {
        if (!sim_fault_means(&own.faults[i], function))
            continue;
        uint64_t used = __atomic_fetch_add(&own.used[i], 1, __ATOMIC_RELAXED);
        if (!code && sim_fault_hits(&own.faults[i], used))
            code = own.faults[i].code;
    }
    return code;
}

static uint32_t use(const char *function) {
    struct sim_machine *joined = __atomic_load_n(&machine, __ATOMIC_ACQUIRE);
    uint32_t code = use_own(function);
    return !code && joined ? sim_fault_use(joined, function) : code;
}

// ---- Calls ----

__attribute__((visibility("hidden"))) CUresult fault_entry(unsigned number) {
    return (CUresult)use(names[number]);
}

CUresult fault_init(struct sim_machine *opened) {
    pthread_once(&own.once, read_environment);
    return own.bad ? CUDA_ERROR_INVALID_VALUE : (CUresult)sim_fault_use(opened, "cuInit");
}

void fault_start(struct sim_machine *joined, void *page) {
    struct attention *attention = page;
    attention->word = own.count ? &always : sim_fault_attention(joined);
    __atomic_store_n(&machine, joined, __ATOMIC_RELEASE);
    __atomic_store_n(&fault_page, attention, __ATOMIC_RELEASE);
}

// ---- Kernels, moves and cards ----

uint64_t fault_cost(enum sim_engine engine, const struct task *task, uint64_t cost_ns) {
    const struct attention *page = __atomic_load_n(&fault_page, __ATOMIC_ACQUIRE);
    bool kernel = engine == SIM_ENGINE_COMPUTE && (!task || task->kind == TASK_KERNEL);
    if (!kernel || !__atomic_load_n(page->word, __ATOMIC_RELAXED))
        return cost_ns;
    return use(SIM_FAULT_KERNEL) ? SIM_COST_NS_MAX : cost_ns;
}

enum move_mistake fault_move(void) {
    const struct attention *page = __atomic_load_n(&fault_page, __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(page->word, __ATOMIC_RELAXED))
        return MOVE_WELL;
    bool lost = use(SIM_FAULT_MOVE_LOST), torn = use(SIM_FAULT_MOVE_TORN);
    if (use(SIM_FAULT_MOVE_TWICE))
        return MOVE_TWICE;
    return torn ? MOVE_TORN : lost ? MOVE_LOST : MOVE_WELL;
}

CUresult device_error(uint32_t device) {
    return (CUresult)sim_gpu_lost(driver.machine, driver.cards[device]);
}

uint32_t device_losses(uint32_t device) {
    uint32_t code;
    return sim_gpu_losses(driver.machine, driver.cards[device], &code);
}

// A context does not outlive the loss of its card, whether or not that is back.
CUresult context_error(struct context *context) {
    uint32_t code;
    uint32_t losses = sim_gpu_losses(driver.machine, context->card, &code);
    if (losses != context->losses && !context->error)
        context->error = (CUresult)code;
    return context->error;
}
