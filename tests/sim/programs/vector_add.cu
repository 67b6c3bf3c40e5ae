// Vector addition on plain, pinned and managed memory, on a stream of its own, timed by events.
#include "tests/sim/kernels/vector_add.cu"
#include "tests/sim/programs/program.h"

int main() {
    const unsigned n = REFERENCE_COUNT;
    float *a, *b, *c, *in = on_device<float>(n);
    must(cudaMallocHost(&a, n * sizeof(float)), "cudaMallocHost");
    must(cudaMallocManaged(&b, n * sizeof(float)), "cudaMallocManaged");
    must(cudaMallocManaged(&c, n * sizeof(float)), "cudaMallocManaged");
    reference_floats(a, n, 1);
    reference_floats(b, n, 2);

    cudaStream_t stream;
    cudaEvent_t start, end;
    float ms = -1;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreate(&start), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    must(cudaEventRecord(start, stream), "cudaEventRecord");
    must(cudaMemcpyAsync(in, a, n * sizeof(float), cudaMemcpyHostToDevice, stream), "copy");
    vector_add<<<(n + 255) / 256, 256, 0, stream>>>(in, b, c, n);
    must_launch("vector_add");
    must(cudaEventRecord(end, stream), "cudaEventRecord");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    must(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    size_t wrong = wrong_vector_add(a, b, c, n) + (ms < 0);

    must(cudaEventDestroy(start), "cudaEventDestroy");
    must(cudaEventDestroy(end), "cudaEventDestroy");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    must(cudaFree(in), "cudaFree");
    must(cudaFree(b), "cudaFree");
    must(cudaFree(c), "cudaFree");
    must(cudaFreeHost(a), "cudaFreeHost");
    return verdict("vector_add", n, wrong);
}
