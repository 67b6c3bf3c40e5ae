// test_driver.c: see test_driver.h.
#include "test_driver.h"

#include <unistd.h>

const char test_kernels[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".global .u32 counter;\n"
    ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n"
    ".visible .entry add(.param .u64 p, .param .u32 n, .param .u32 by) {\n"
    "  .reg .u64 %rd<4>; .reg .u32 %r<8>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; ld.param.u32 %r6,[by];\n"
    "  mov.u32 %r2,%ctaid.x; mov.u32 %r3,%ntid.x; mov.u32 %r4,%tid.x;\n"
    "  mad.lo.u32 %r5,%r2,%r3,%r4; setp.ge.u32 %p1,%r5,%r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %rd2,%r5,4; add.u64 %rd3,%rd1,%rd2;\n"
    "  ld.global.u32 %r2,[%rd3]; add.u32 %r2,%r2,%r6; st.global.u32 [%rd3],%r2;\n"
    "DONE: ret; }\n"
    ".visible .entry store(.param .u64 p) {\n"
    "  .reg .u64 %rd<2>; .reg .u32 %r<2>;\n"
    "  ld.param.u64 %rd1,[p]; mov.u32 %r1,7; st.global.u32 [%rd1],%r1; ret; }\n";

CUcontext primary;
CUfunction add, spin, store;

void launch(CUfunction function, unsigned grid, unsigned block, CUstream stream, void **params) {
    OK(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params, NULL));
}

void spin_for(uint64_t ns, CUstream stream) {
    void *params[] = {&ns};
    launch(spin, 1, 1, stream, params);
}

void add_to(CUdeviceptr at, uint32_t count, uint32_t by, CUstream stream) {
    void *params[] = {&at, &count, &by};
    launch(add, (count + 255) / 256, 256, stream, params);
}

static void wait_for(void *go) {
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE))
        usleep(100);
}

void hold(CUstream stream, int *go) {
    *go = 0;
    OK(cuLaunchHostFunc(stream, wait_for, go));
}

void let_go(int *go) {
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
}

CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

uint64_t free_bytes(void) {
    size_t free_now, total;
    OK(cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

void start_driver_on(const struct sim_config *config) {
    sim_machine_close(test_machine(config));
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    CUmodule module;
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuModuleGetFunction(&spin, module, "weir_spin_ns"));
    OK(cuModuleGetFunction(&store, module, "store"));
}

void start_driver(void) {
    struct sim_config config = test_config();
    start_driver_on(&config);
}

void stop_driver(void) {
    OK(cuDevicePrimaryCtxRelease_v2(0));  // and with it all that is left
    test_machine_remove();
}
