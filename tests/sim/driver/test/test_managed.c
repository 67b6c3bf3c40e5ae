// test_managed.c: see test_managed.h.
#include "test_managed.h"

#include <unistd.h>

const char managed_kernels[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry weir_spin_ns_on(.param .u64 cost, .param .u64 p, .param .u64 bytes) { ret; }\n"
    ".visible .entry weir_spin_ns_many(.param .u64 cost, .param .u64 p0, .param .u64 b0,\n"
    "  .param .u64 p1, .param .u64 b1, .param .u64 p2, .param .u64 b2, .param .u64 p3,\n"
    "  .param .u64 b3, .param .u64 p4, .param .u64 b4, .param .u64 p5, .param .u64 b5) { ret; }\n"
    ".visible .entry nothing(.param .u64 p) { ret; }\n";

struct sim_machine *machine;
CUfunction spin_on, spin_many, nothing;

struct sim_managed books(unsigned gpu) {
    struct sim_process_state state;
    struct sim_managed found = {0};
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        if (state.alive && state.pid == (int32_t)getpid())
            found = state.gpus[gpu].managed;
    return found;
}

uint64_t resident(void) {
    return books(0).resident_bytes;
}

CUdeviceptr managed(size_t bytes) {
    CUdeviceptr at;
    OK(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
    return at;
}

void touch_for(uint64_t cost, CUdeviceptr at, uint64_t bytes, CUstream stream) {
    void *params[] = {&cost, &at, &bytes};
    launch(spin_on, 1, 1, stream, params);
}

void touch(CUdeviceptr at, uint64_t bytes) {
    touch_for(0, at, bytes, NULL);
    OK(cuCtxSynchronize());
}

void prefetch(CUdeviceptr at, uint64_t bytes, CUdevice device) {
    OK(cuMemPrefetchAsync(at, bytes, device, NULL));
    OK(cuCtxSynchronize());
}

float elapsed(CUevent start, CUevent end) {
    float ms;
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    return ms;
}

double link_ms(uint64_t bytes) {
    return (double)bytes * 1e3 / (400.0 * MIB);
}

void close_to(double got, double wanted) {
    if (got < wanted * 0.999 || got > wanted * 1.001) {
        fprintf(stderr, "%f, not %f\n", got, wanted);
        exit(1);
    }
}

CUevent event(void) {
    CUevent made;
    OK(cuEventCreate(&made, 0));
    return made;
}

static void start_on(bool concurrent, bool data) {
    struct sim_config config = test_config();
    char path[4096];
    CUmodule module;
    config.gpus[0].page_bytes = config.gpus[1].page_bytes = PAGE;
    for (unsigned i = 0; i < 2; i++) {
        config.gpus[i].fault_batch_ns = 35000;
        config.gpus[i].fault_batch_pages = 1;
        config.gpus[i].no_concurrent_managed = !concurrent;
    }
    config.managed_data = data;
    start_driver_on(&config);
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    OK(cuModuleLoadData(&module, managed_kernels));
    OK(cuModuleGetFunction(&spin_on, module, "weir_spin_ns_on"));
    OK(cuModuleGetFunction(&spin_many, module, "weir_spin_ns_many"));
    OK(cuModuleGetFunction(&nothing, module, "nothing"));
}

void start_managed(void) {
    start_on(true, false);
}

void start_managed_whole(void) {
    start_on(false, false);
}

void start_managed_data(void) {
    start_on(true, true);
}

void stop_managed(void) {
    sim_machine_close(machine);
    stop_driver();
}
