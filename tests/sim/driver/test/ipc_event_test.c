// ipc_event_test.c: events that two processes have between them: what one has waited for of the
// other, it finds; and nobody waits for the dead. The test itself never calls the driver.
#define _GNU_SOURCE
#include "test.h"
#include "test_child.h"
#include "test_machine.h"
#include "test_share.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define BYTES (256u << 10)
#define SPIN_NS UINT64_C(20000000)

static struct sim_machine *machine;

// A page that the children of a test share.
static struct board {
    CUipcMemHandle memory;
    CUipcEventHandle event;
} * board;

static CUfunction spin;

static void load_spin(void) {
    static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n";
    CUmodule module;
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&spin, module, "weir_spin_ns"));
}

static void spin_for(uint64_t ns) {
    void *params[] = {&ns};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

// Fills the memory behind a long kernel and records, round after round.
static void recorder(uint64_t rounds) {
    start_context();
    load_spin();
    CUdeviceptr at;
    CUevent event, other;
    OK(cuMemAlloc_v2(&at, BYTES));
    OK(cuIpcGetMemHandle(&board->memory, at));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&board->event, event));
    CHECK_EQ(cuIpcOpenEventHandle(&other, board->event), CUDA_ERROR_INVALID_CONTEXT);
    for (uint64_t i = 0; i < rounds; i++) {
        tell(0);
        listen_word();
        uint64_t start = sim_now_ns();
        spin_for(SPIN_NS);
        OK(cuMemsetD32Async(at, (unsigned)i + 1, BYTES / 4, NULL));
        OK(cuEventRecord(event, NULL));
        tell(start);
    }
    listen_word();
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuEventDestroy_v2(event));
    tell(0);
    listen_word();
}

// Waits for each recording, in one of three ways, and finds the data.
static void waiter(uint64_t rounds) {
    start_context();
    CUdeviceptr at, own;
    CUevent event, other;
    OK(cuIpcOpenMemHandle_v2(&at, board->memory, 1));
    OK(cuIpcOpenEventHandle(&event, board->event));
    OK(cuEventQuery(event));  // never recorded
    OK(cuMemAlloc_v2(&own, BYTES));
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    tell(0);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t start = listen_word();
        if (i % 3 == 0) {
            OK(cuStreamWaitEvent(stream, event, 0));
            OK(cuMemcpyDtoDAsync_v2(own, at, BYTES, stream));
            OK(cuStreamSynchronize(stream));
        } else if (i % 3 == 1) {
            OK(cuEventSynchronize(event));
            OK(cuMemcpyDtoD_v2(own, at, BYTES));
        } else {
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
                usleep(100);
            OK(cuMemcpyDtoD_v2(own, at, BYTES));
        }
        CHECK(sim_now_ns() >= start + SPIN_NS);  // not before the kernel's end
        CHECK_EQ(word_at(own), i + 1);
        CHECK_EQ(word_at(own + BYTES - 4), i + 1);
        tell(0);
    }
    CHECK_EQ(cuIpcGetEventHandle(&board->event, event), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventCreate(&other, 0));
    CHECK_EQ(cuIpcGetEventHandle(&board->event, other), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuIpcGetEventHandle(NULL, event), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuEventCreate(&other, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventRecord(event, stream));  // the other may wait for us as well
    OK(cuEventSynchronize(event));
    tell(0);
    listen_word();
    OK(cuEventQuery(event));  // the other has destroyed it
    CHECK_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(event));
    CHECK_EQ(cuIpcOpenEventHandle(&event, board->event), CUDA_ERROR_INVALID_HANDLE);
    memset(&board->event, 0, sizeof board->event);
    CHECK_EQ(cuIpcOpenEventHandle(&event, board->event), CUDA_ERROR_INVALID_HANDLE);
    tell(0);
    listen_word();
}

static void events(void) {
    enum { ROUNDS = 6 };
    struct child a = spawn(recorder, ROUNDS);
    hear(a);
    struct child b = spawn(waiter, ROUNDS);
    hear(b);
    for (unsigned i = 0; i < ROUNDS; i++) {
        say(a, 0);
        say(b, hear(a));
        hear(b);
        if (i + 1 < ROUNDS)
            hear(a);
    }
    hear(b);
    say(a, 0);
    hear(a);
    say(b, 0);
    hear(b);
    finish(a);
    finish(b);
    CHECK_EQ(test_used(0), 0);
}

// A recording of a process that dies is waited for by nobody for ever.
static void recorder_dies(void) {
    struct child a = spawn(recorder, 1000);
    hear(a);
    struct child b = spawn(waiter, 0);
    hear(b);
    say(a, 0);
    hear(a);
    kill_now(a);
    close(a.to);
    close(b.to);
    int status;
    CHECK_EQ(waitpid(b.pid, &status, 0), b.pid);
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
    close(b.from);
    CHECK_EQ(test_used(0), 0);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    static const struct test tests[] = {TEST(events), TEST(recorder_dies)};
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
