// What the runtime offers beside plain memory and launches: memory in stream order, graphs by
// capture, arrays, grids whose blocks meet, and limits.
#include "tests/sim/programs/program.h"

#define COUNT 1000
#define BLOCKS 40
#define THREADS 64

__global__ void add(int *words, int count, int by) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count)
        words[k] += by;
}

// Each block waits until all have come, and then reads what the next one has written.
__global__ void meet(int *words, unsigned *arrived) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    words[k] = k;
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd((int *)arrived, 1);
        while (atomicCAS(arrived, 0, 0) < gridDim.x)
            ;
    }
    __syncthreads();
    int next = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
    words[gridDim.x * blockDim.x + k] = words[next];
}

static size_t results, wrong;

static void expect(bool holds, const char *what) {
    if (!holds)
        fprintf(stderr, "surface: %s\n", what);
    wrong += !holds;
    results++;
}

static void test_stream_order(cudaStream_t stream) {
    int *words, out[COUNT];
    must(cudaMallocAsync((void **)&words, sizeof(out), stream), "cudaMallocAsync");
    must(cudaMemsetAsync(words, 0, sizeof(out), stream), "cudaMemsetAsync");
    add<<<(COUNT + 127) / 128, 128, 0, stream>>>(words, COUNT, 3);
    must(cudaMemcpyAsync(out, words, sizeof(out), cudaMemcpyDeviceToHost, stream), "copy");
    must(cudaFreeAsync(words, stream), "cudaFreeAsync");
    must(cudaStreamSynchronize(stream), "synchronize");
    for (int k = 0; k < COUNT; k++)
        expect(out[k] == 3, "memory in stream order");
}

static void test_graph(cudaStream_t stream) {
    int *words, out[COUNT];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaMalloc(&words, sizeof(out)), "cudaMalloc");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin");
    must(cudaMemsetAsync(words, 0, sizeof(out), stream), "captured set");
    for (int k = 0; k < 4; k++)
        add<<<(COUNT + 127) / 128, 128, 0, stream>>>(words, COUNT, k);
    must(cudaMemcpyAsync(out, words, sizeof(out), cudaMemcpyDeviceToHost, stream), "copy");
    must(cudaStreamEndCapture(stream, &graph), "end");
    must(cudaGraphInstantiate(&exec, graph), "cudaGraphInstantiate");
    for (int launch = 0; launch < 3; launch++) {
        out[COUNT - 1] = -1;
        must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        must(cudaStreamSynchronize(stream), "synchronize");
        expect(out[0] == 6 && out[COUNT - 1] == 6, "a graph");
    }
    must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    must(cudaFree(words), "cudaFree");
}

static void test_array() {
    enum { WIDTH = 37, HEIGHT = 11 };
    float in[HEIGHT][WIDTH], out[HEIGHT][WIDTH] = {};
    cudaChannelFormatDesc texel = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    cudaArray_t array;
    size_t before, after, total;
    for (int k = 0; k < WIDTH * HEIGHT; k++)
        in[k / WIDTH][k % WIDTH] = (float)k;
    must(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    must(cudaMallocArray(&array, &texel, WIDTH, HEIGHT), "cudaMallocArray");
    must(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    expect(before - after == (sizeof(in) + 511) / 512 * 512, "an array takes its bytes");
    must(cudaMemcpy2DToArray(array, 0, 0, in, sizeof(in[0]), sizeof(in[0]), HEIGHT,
                             cudaMemcpyHostToDevice),
         "to array");
    must(cudaMemcpy2DFromArray(out, sizeof(out[0]), array, 8, 3, 40, 5, cudaMemcpyDeviceToHost),
         "from array");
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            expect(out[y][x] == (y < 5 && x < 10 ? in[y + 3][x + 2] : 0), "an array's part");
    must(cudaFreeArray(array), "cudaFreeArray");
}

static void test_meeting() {
    int *words, out[2 * BLOCKS * THREADS];
    unsigned *arrived;
    must(cudaMalloc(&words, sizeof(out)), "cudaMalloc");
    must(cudaMalloc(&arrived, sizeof(*arrived)), "cudaMalloc");
    must(cudaMemset(arrived, 0, sizeof(*arrived)), "cudaMemset");
    void *arguments[] = {&words, &arrived};
    must(cudaLaunchCooperativeKernel((const void *)meet, BLOCKS, THREADS, arguments, 0, nullptr),
         "cudaLaunchCooperativeKernel");
    must(cudaMemcpy(out, words, sizeof(out), cudaMemcpyDeviceToHost), "copy");
    for (int k = 0; k < BLOCKS * THREADS; k++)
        expect(out[BLOCKS * THREADS + k] == (k + THREADS) % (BLOCKS * THREADS), "blocks that meet");
    expect(cudaLaunchCooperativeKernel((const void *)meet, 1000000, THREADS, arguments, 0,
                                       nullptr) == cudaErrorCooperativeLaunchTooLarge,
           "too many blocks to meet");
    must(cudaFree(words), "cudaFree");
    must(cudaFree(arrived), "cudaFree");
}

static void test_limits() {
    size_t value, before, after, total;
    must(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    must(cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)10 << 20), "cudaDeviceSetLimit");
    must(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize), "cudaDeviceGetLimit");
    must(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    expect(value == (size_t)10 << 20, "the limit");
    expect(before - after == (size_t)2 << 20, "what is beyond the default is taken");
}

int main() {
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    test_stream_order(stream);
    test_graph(stream);
    test_array();
    test_meeting();
    test_limits();
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return verdict("surface", results, wrong);
}
