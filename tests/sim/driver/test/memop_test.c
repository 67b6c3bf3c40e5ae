// memop_test.c: stream memory operations of the simulated driver: waits are released by whoever
// writes the word, and hold nothing but their stream.
#define _GNU_SOURCE
#include "test_driver.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, uint32_t value,
                                   unsigned flags);

static CUstream one, two;

static uint32_t read_word(CUdeviceptr at) {
    uint32_t word;
    OK(cuMemcpyDtoHAsync_v2(&word, at, 4, two));
    return word;
}

// A stream that waits for a word, and a word that it sets afterwards.
static void begin_wait(CUdeviceptr at, uint32_t value, unsigned flags) {
    OK(cuStreamWaitValue32_v2(one, at, value, flags));
    OK(cuMemsetD32Async(at + 8, 99, 1, one));
}

static void check_waits(CUdeviceptr at) {
    CHECK_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    CHECK_EQ(read_word(at + 8), 0);
}

static void check_released(CUdeviceptr at) {
    OK(cuStreamSynchronize(one));
    CHECK_EQ(read_word(at + 8), 99);
    OK(cuMemsetD32Async(at, 0, 4, one));
    OK(cuStreamSynchronize(one));
}

static void released_by_stream(void) {
    CUdeviceptr at = alloc(16);
    OK(cuMemsetD32_v2(at, 0, 4));
    OK(cuCtxSynchronize());
    // Greater or equal, cyclic; equal; a common bit; a bit that neither has.
    static const struct {
        uint32_t value;
        unsigned flags;
        uint32_t wrong, right;
    } cases[] = {
        {5, CU_STREAM_WAIT_VALUE_GEQ, 4, 6},
        {0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ, 0xffffffef, 3},
        {7, CU_STREAM_WAIT_VALUE_EQ, 8, 7},
        {6, CU_STREAM_WAIT_VALUE_AND, 9, 2},
        {0xfffffffe, CU_STREAM_WAIT_VALUE_NOR, 1, 0xfffffffe},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OK(cuStreamWriteValue32_v2(two, at, cases[i].wrong, 0));
        OK(cuStreamSynchronize(two));
        begin_wait(at, cases[i].value, cases[i].flags);
        check_waits(at);
        OK(cuStreamWriteValue32_v2(two, at, cases[i].right, 0));
        check_released(at);
    }
    OK(cuMemFree_v2(at));
}

// A write is done at its time: not before what precedes it in its stream.
static void write_in_order(void) {
    CUdeviceptr at = alloc(16);
    OK(cuMemsetD32_v2(at, 0, 4));
    OK(cuCtxSynchronize());
    uint64_t before = sim_now_ns();
    begin_wait(at, 1, CU_STREAM_WAIT_VALUE_EQ);
    spin_for(40000000, two);
    OK(cuStreamWriteValue32_v2(two, at, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    OK(cuStreamSynchronize(one));
    CHECK(sim_now_ns() - before >= 40000000);
    check_released(at);
    OK(cuMemFree_v2(at));
}

static void released_by_kernel(void) {
    CUdeviceptr at = alloc(16);
    OK(cuMemsetD32_v2(at, 0, 4));
    OK(cuCtxSynchronize());
    begin_wait(at, 3, CU_STREAM_WAIT_VALUE_GEQ);
    check_waits(at);
    add_to(at, 1, 3, two);
    check_released(at);
    OK(cuMemFree_v2(at));
}

static void released_by_host(void) {
    uint64_t *host;
    CUdeviceptr at;
    OK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(&at, host, 0));
    memset(host, 0, 64);
    OK(cuStreamWaitValue64_v2(one, at, UINT64_C(1) << 40, CU_STREAM_WAIT_VALUE_AND));
    OK(cuStreamWriteValue64_v2(one, at + 8, UINT64_C(0x123456789abcdef0), 0));
    CHECK_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    __atomic_store_n(host, UINT64_C(3) << 40, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(one));
    CHECK_EQ(__atomic_load_n(&host[1], __ATOMIC_ACQUIRE), UINT64_C(0x123456789abcdef0));
    OK(cuMemFreeHost(host));
}

// Another process writes into memory that both have.
static void released_by_process(void) {
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    OK(cuMemHostRegister_v2(shared, 4096, 0));
    OK(cuStreamWaitValue32_v2(one, (uintptr_t)shared, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        __atomic_store_n(shared, 1, __ATOMIC_RELEASE);
        _exit(0);
    }
    OK(cuStreamSynchronize(one));
    CHECK_EQ(waitpid(child, NULL, 0), child);
    OK(cuMemHostUnregister(shared));
    munmap(shared, 4096);
}

// The operations of a batch are done in their order.
static void batches(void) {
    CUdeviceptr at = alloc(64);
    uint32_t words[6];
    OK(cuMemsetD32_v2(at, 0, 16));
    OK(cuCtxSynchronize());
    CUstreamBatchMemOpParams ops[4] = {
        {.value = {CU_STREAM_MEM_OP_WRITE_VALUE_32, at, 1, 0, 0}},
        {.operation = CU_STREAM_MEM_OP_BARRIER},
        {.value = {CU_STREAM_MEM_OP_WAIT_VALUE_32, at + 4, 2, CU_STREAM_WAIT_VALUE_EQ, 0}},
        {.value = {CU_STREAM_MEM_OP_WRITE_VALUE_64, at + 8, UINT64_C(5) << 32, 0, 0}},
    };
    OK(cuStreamBatchMemOp_v2(one, 4, ops, 0));
    ops[0].value.address = 0;  // they have been taken along
    OK(cuStreamWaitValue32_v2(two, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoHAsync_v2(words, at, sizeof words, two));
    CHECK_EQ(words[3], 0);
    OK(cuStreamWriteValue32_v2(two, at + 4, 2, 0));
    OK(cuStreamSynchronize(one));
    OK(cuMemcpyDtoHAsync_v2(words, at, sizeof words, two));
    CHECK_EQ(words[0], 1);
    CHECK_EQ(words[2], 0);
    CHECK_EQ(words[3], 5);
    OK(cuMemFree_v2(at));
}

static void bad_calls(void) {
    CUdeviceptr at = alloc(16), managed;
    OK(cuMemAllocManaged(&managed, 16, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuStreamWaitValue32_v2(one, at + 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitValue64_v2(one, at + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitValue32_v2(one, at, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitValue32_v2(one, at, 0, CU_STREAM_WAIT_VALUE_FLUSH),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuStreamWriteValue32_v2(one, at, 0, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWriteValue32_v2(one, managed, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWriteValue32_v2(one, 4096, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWriteValue32_v2((CUstream)&at, at, 0, 0), CUDA_ERROR_INVALID_HANDLE);
    CUstreamBatchMemOpParams op = {.value = {CU_STREAM_MEM_OP_WRITE_VALUE_32, at, 1, 0, 0}};
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 1, &op, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 0, &op, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 257, &op, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    op.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 1, &op, 0), CUDA_ERROR_NOT_SUPPORTED);
    op.operation = 77;
    CHECK_EQ(cuStreamBatchMemOp_v2(one, 1, &op, 0), CUDA_ERROR_INVALID_VALUE);
    // The first versions do the same.
    OK(cuStreamWaitValue32(one, at, 0, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32_ptsz(NULL, at, 4, 0));
    OK(cuCtxSynchronize());
    CHECK_EQ(read_word(at), 4);
    OK(cuMemFree_v2(managed));
    OK(cuMemFree_v2(at));
}

// Memory that is freed under a wait is the stream's fault, and nobody else's.
static void freed_under_wait(void) {
    CUcontext context;
    CUstream stream;
    CUdeviceptr at;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&at, 4096, NULL));
    OK(cuStreamWaitValue32_v2(stream, at, 12345, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemFreeAsync(at, NULL));
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSynchronize());
}

#define TURNS 200u

struct turns {
    CUdeviceptr word;
    uint32_t first;
};

// Two threads, each with a stream, take turns by a word.
static void *take_turns(void *user) {
    const struct turns *turns = user;
    CUstream stream;
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = turns->first; i < TURNS; i += 2) {
        OK(cuStreamWaitValue32_v2(stream, turns->word, i, CU_STREAM_WAIT_VALUE_EQ));
        add_to(turns->word + 4, 1, i, stream);
        OK(cuStreamWriteValue32_v2(stream, turns->word, i + 1, 0));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void turns(void) {
    CUdeviceptr at = alloc(8);
    pthread_t threads[2];
    OK(cuMemsetD32_v2(at, 0, 2));
    OK(cuCtxSynchronize());
    struct turns each[2] = {{at, 0}, {at, 1}};
    for (unsigned i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, take_turns, &each[i]));
    for (unsigned i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK_EQ(read_word(at), TURNS);
    CHECK_EQ(read_word(at + 4), TURNS * (TURNS - 1) / 2);
    OK(cuMemFree_v2(at));
}

int main(int argc, char **argv) {
    start_driver();
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    static const struct test tests[] = {
        TEST(released_by_stream), TEST(write_in_order),      TEST(released_by_kernel),
        TEST(released_by_host),   TEST(released_by_process), TEST(batches),
        TEST(bad_calls),          TEST(freed_under_wait),    TEST(turns),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
