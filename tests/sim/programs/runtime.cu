// The runtime itself: devices, device variables, attributes, errors, threads, and a kernel that
// accesses what it must not.
#include "tests/sim/programs/program.h"

#include <pthread.h>

#define MEBIBYTE ((size_t)1 << 20)

__device__ int counters[4] = {10, 20, 30, 40};
__constant__ int factor = 3;

__global__ void scale_counters() {
    __shared__ int copy[4];
    copy[threadIdx.x] = counters[threadIdx.x];
    __syncthreads();
    counters[threadIdx.x] = copy[3 - threadIdx.x] * factor;
}

__global__ void write_to(int *where) {
    *where = 1;
}

static size_t wrong;

static void expect(bool holds, const char *what) {
    if (!holds)
        fprintf(stderr, "runtime: %s\n", what);
    wrong += !holds;
}

static void *launch_in_thread(void *) {
    int device = -1, value = 0;
    must(cudaGetDevice(&device), "cudaGetDevice");
    expect(device == 0, "a new thread uses device 0");
    scale_counters<<<1, 4>>>();
    must_launch("scale_counters");
    must(cudaMemcpyFromSymbol(&value, &counters, sizeof(value), sizeof(int)), "from symbol");
    expect(value == 20 * 9, "twice reversed and scaled");
    return nullptr;
}

static void check_symbols() {
    int values[4], larger = 5;
    void *address = nullptr;
    size_t free_bytes, total_bytes, free_before;
    scale_counters<<<1, 4>>>();
    must_launch("scale_counters");
    must(cudaMemcpyFromSymbol(values, &counters, sizeof(values)), "cudaMemcpyFromSymbol");
    expect(values[0] == 120 && values[3] == 30, "initial values, reversed and scaled");
    pthread_t thread;
    pthread_create(&thread, nullptr, launch_in_thread, nullptr);
    pthread_join(thread, nullptr);
    must(cudaMemcpyToSymbol(&factor, &larger, sizeof(larger)), "cudaMemcpyToSymbol");
    scale_counters<<<1, 4>>>();
    must(cudaMemcpyFromSymbol(values, &counters, sizeof(values)), "cudaMemcpyFromSymbol");
    expect(values[0] == 40 * 9 * 5, "scaled by what was stored in constant memory");
    must(cudaGetSymbolAddress(&address, &counters), "cudaGetSymbolAddress");
    must(cudaMemcpy(values, address, sizeof(values), cudaMemcpyDeviceToHost), "cudaMemcpy");
    expect(values[3] == 10 * 9 * 5, "the same through its address");
    must(cudaMemGetInfo(&free_before, &total_bytes), "cudaMemGetInfo");
    must(cudaMalloc(&address, MEBIBYTE), "cudaMalloc");
    must(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    expect(free_bytes + MEBIBYTE <= free_before && free_before <= total_bytes, "memory in use");
    must(cudaFree(address), "cudaFree");
}

static void check_properties() {
    int count = 0, version = 0;
    cudaDeviceProp properties;
    cudaFuncAttributes attributes;
    must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    must(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    expect(count > 0 && version >= 12000, "a device, a driver");
    expect(properties.totalGlobalMem > 0 && properties.maxThreadsPerBlock == 1024 &&
               properties.major >= 7 && properties.name[0],
           "properties");
    must(cudaFuncGetAttributes(&attributes, (const void *)scale_counters), "attributes");
    expect(attributes.sharedSizeBytes == 16 && attributes.maxThreadsPerBlock == 1024, "attributes");
}

static void check_errors() {
    void *at = &at;
    expect(cudaSetDevice(1000) == cudaErrorInvalidDevice, "no such device");
    expect(cudaMalloc(&at, (size_t)1 << 60) == cudaErrorMemoryAllocation && !at, "too much memory");
    expect(cudaMemcpy(at, at, 1, (cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection,
           "direction");
    expect(cudaPeekAtLastError() == cudaErrorInvalidMemcpyDirection, "the last error stays");
    expect(cudaGetLastError() == cudaErrorInvalidMemcpyDirection, "and is given once");
    expect(cudaGetLastError() == cudaSuccess, "then it is gone");
    write_to<<<1, 2048>>>(nullptr);
    expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "block too large");
    expect(cudaGetSymbolAddress(&at, &at) == cudaErrorInvalidSymbol, "no device variable");
    expect(cudaGetLastError() == cudaErrorInvalidSymbol, "no device variable, remembered");
    expect(cudaFree(nullptr) == cudaSuccess, "freeing nothing");
    write_to<<<1, 1>>>(nullptr);
    must_launch("write_to");
    expect(cudaDeviceSynchronize() == cudaErrorIllegalAddress,
           "an illegal address ends the context");
    expect(cudaMalloc(&at, 64) == cudaErrorIllegalAddress, "for good");
}

int main() {
    check_properties();
    check_symbols();
    check_errors();
    return verdict("runtime", 20, wrong);
}
