// working_set.c: see working_set.h.
#define _GNU_SOURCE
#include "working_set.h"

#include "../../sim/driver/cuda_abi.h"

#include <string.h>
#include <unistd.h>

#define PIECES 16u
#define AHEAD 2u  // pieces that are fetched before their kernel's turn
#define LEAD_NS UINT64_C(200000000)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult rc_ = (call);                                                                     \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry weir_spin_ns_on(.param .u64 cost, .param .u64 p, "
                           ".param .u64 bytes) { ret; }\n";

struct program {
    CUfunction kernel;
    CUstream compute, copies;
    CUevent start, end, used[PIECES], fetched[PIECES];
    CUdeviceptr pieces[PIECES];
    uint64_t piece_bytes;
    uint64_t kernel_ns;  // of one kernel: it reads its piece once
};

static struct sim_managed books(struct sim_machine *machine) {
    struct sim_process_state state;
    struct sim_managed found = {0};
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        if (state.alive && state.pid == (int32_t)getpid())
            found = state.gpus[0].managed;
    return found;
}

static CUresult start(struct sim_machine *machine, struct working_set *set,
                      struct program *program) {
    const struct sim_gpu_config *gpu = &sim_machine_config(machine)->gpus[0];
    CUmodule module;
    size_t free_bytes, total;
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleGetFunction(&program->kernel, module, "weir_spin_ns_on"));
    TRY(cuStreamCreate(&program->compute, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&program->copies, CU_STREAM_NON_BLOCKING));
    TRY(cuEventCreate(&program->start, 0));
    TRY(cuEventCreate(&program->end, 0));
    TRY(cuMemGetInfo_v2(&free_bytes, &total));
    uint64_t unit = PIECES * gpu->page_bytes;
    uint64_t room = free_bytes / unit * unit;
    set->bytes = (uint64_t)((double)room * set->part) / unit * unit;
    program->piece_bytes = set->bytes / PIECES;
    program->kernel_ns =
        (uint64_t)((double)program->piece_bytes * 1e9 / (double)gpu->memory_bytes_per_s);
    for (unsigned i = 0; i < PIECES; i++) {
        TRY(cuEventCreate(&program->used[i], CU_EVENT_DISABLE_TIMING));
        TRY(cuEventCreate(&program->fetched[i], CU_EVENT_DISABLE_TIMING));
        TRY(cuMemAllocManaged(&program->pieces[i], program->piece_bytes, CU_MEM_ATTACH_GLOBAL));
        TRY(cuMemPrefetchAsync(program->pieces[i], program->piece_bytes, -1, program->copies));
    }
    return cuCtxSynchronize();
}

static CUresult end(struct program *program) {
    for (unsigned i = 0; i < PIECES; i++) {
        TRY(cuMemFree_v2(program->pieces[i]));
        TRY(cuEventDestroy_v2(program->used[i]));
        TRY(cuEventDestroy_v2(program->fetched[i]));
    }
    TRY(cuEventDestroy_v2(program->start));
    TRY(cuEventDestroy_v2(program->end));
    TRY(cuStreamDestroy_v2(program->compute));
    return cuStreamDestroy_v2(program->copies);
}

// Fetches a piece when the one that is AHEAD before it has been used.
static CUresult fetch(struct program *program, unsigned i) {
    CUevent before = i < AHEAD ? program->start : program->used[i - AHEAD];
    TRY(cuStreamWaitEvent(program->copies, before, 0));
    TRY(cuMemPrefetchAsync(program->pieces[i], program->piece_bytes, 0, program->copies));
    TRY(cuEventRecord(program->fetched[i], program->copies));
    return cuStreamWaitEvent(program->compute, program->fetched[i], 0);
}

static CUresult kernel(struct program *program, uint64_t cost_ns, CUdeviceptr at, uint64_t bytes) {
    void *params[] = {&cost_ns, &at, &bytes};
    return cuLaunchKernel(program->kernel, 1, 1, 1, 1, 1, 1, 0, program->compute, params, NULL);
}

// Begins when all of it has been submitted, however slow this program is.
static CUresult sweep_once(struct program *program, bool prefetch, float *ms) {
    TRY(kernel(program, LEAD_NS, 0, 0));
    TRY(cuEventRecord(program->start, program->compute));
    for (unsigned i = 0; i < PIECES; i++) {
        if (prefetch)
            TRY(fetch(program, i));
        TRY(kernel(program, program->kernel_ns, program->pieces[i], program->piece_bytes));
        TRY(cuEventRecord(program->used[i], program->compute));
    }
    TRY(cuEventRecord(program->end, program->compute));
    TRY(cuEventSynchronize(program->end));
    return cuEventElapsedTime(ms, program->start, program->end);
}

// What a sweep has to take: `in` bytes come and `out` bytes go, and the kernels run. Fetched ahead,
// both ways are used at once and all but one kernel runs meanwhile.
static double implied_ms(const struct sim_gpu_config *gpu, const struct program *program,
                         bool prefetch, uint64_t in, uint64_t out) {
    double in_ns = (double)in * 1e9 / (double)gpu->h2d_bytes_per_s;
    double out_ns = (double)out * 1e9 / (double)gpu->d2h_bytes_per_s;
    double kernels_ns = (double)(PIECES * program->kernel_ns);
    double batches = (double)(in / gpu->page_bytes) / gpu->fault_batch_pages;
    if (!in || !prefetch)
        return (in_ns + out_ns + batches * (double)gpu->fault_batch_ns + kernels_ns) / 1e6;
    double copies_ns = (in_ns > out_ns ? in_ns : out_ns) + PIECES * (double)gpu->copy_latency_ns;
    double more = copies_ns > kernels_ns ? copies_ns : kernels_ns;
    return (more + (double)program->kernel_ns) / 1e6;
}

// What has to move: at first all that is used; later nothing, if it fits, else all of it, since
// what was used longest ago is always what is needed next.
static CUresult measure(struct sim_machine *machine, const struct working_set *set,
                        struct program *program, bool cold, struct sweep *sweep) {
    const struct sim_gpu_config *gpu = &sim_machine_config(machine)->gpus[0];
    struct sim_managed before = books(machine), after;
    float ms;
    TRY(sweep_once(program, set->prefetch, &ms));
    after = books(machine);
    uint64_t room = (uint64_t)((double)set->bytes / set->part);
    uint64_t over = set->bytes > room ? set->bytes - room : 0;
    uint64_t in = cold || over ? set->bytes : 0, out = cold ? over : in;
    sweep->ms = ms;
    sweep->implied_ms = implied_ms(gpu, program, set->prefetch, in, out);
    sweep->moved = (struct sim_managed){
        .fault_batches = after.fault_batches - before.fault_batches,
        .fault_in_bytes = after.fault_in_bytes - before.fault_in_bytes,
        .prefetch_in_bytes = after.prefetch_in_bytes - before.prefetch_in_bytes,
        .evicted_bytes = after.evicted_bytes - before.evicted_bytes,
    };
    return CUDA_SUCCESS;
}

int working_set_measure(struct sim_machine *machine, struct working_set *set) {
    struct program program;
    memset(&program, 0, sizeof program);
    TRY(start(machine, set, &program));
    TRY(measure(machine, set, &program, true, &set->cold));
    TRY(measure(machine, set, &program, false, &set->warm));
    return end(&program);
}
