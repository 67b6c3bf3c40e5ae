// ipc_test.c: plain memory that two processes have between them, by handles: what both see, whose
// the memory is in the machine's books, and what deaths leave of it. The test itself never calls
// the driver.
#define _GNU_SOURCE
#include "test.h"
#include "test_child.h"
#include "test_machine.h"
#include "test_share.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define CONTEXT_BYTES (2 * MIB)
#define BYTES (256u << 10)

static struct sim_machine *machine;

// What the children of a test pass on: handles in a page that they share, descriptors by a socket.
static struct board { CUipcMemHandle memory; } * board;
static int sockets[2];

static CUcontext context;

static int export(CUmemGenericAllocationHandle handle) {
    int fd;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static void next(struct child child) {
    say(child, 0);
    hear(child);
}

// An allocation in the middle of others, with work on it all the time.
static void handle_maker(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUdeviceptr before, at, after;
    CUstream stream;
    CUipcMemHandle again;
    OK(cuMemAlloc_v2(&before, 1000));
    OK(cuMemAlloc_v2(&at, BYTES + 100));
    OK(cuMemAlloc_v2(&after, 1000));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    put_word(before + 996, 1);
    put_word(after, 2);
    for (unsigned i = 0; i < 20; i++)
        OK(cuMemsetD32Async(at, i, BYTES / 4, stream));
    OK(cuIpcGetMemHandle(&board->memory, at));
    OK(cuMemsetD32Async(at, 44, BYTES / 8, stream));
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word_at(at), 44);
    CHECK_EQ(word_at(at + BYTES - 4), 19);
    CHECK_EQ(word_at(before + 996), 1);
    CHECK_EQ(word_at(after), 2);
    OK(cuIpcGetMemHandle(&again, at + 100));  // the allocation is meant, always the same
    CHECK(!memcmp(&again, &board->memory, sizeof again));
    CUdeviceptr own;
    CHECK_EQ(cuIpcOpenMemHandle_v2(&own, again, 1), CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr base;
    size_t bytes;
    OK(cuMemGetAddressRange_v2(&base, &bytes, at + 5));
    CHECK_EQ(base, at);
    CHECK_EQ(bytes, BYTES + 100);
    tell(0);
    listen_word();
    CHECK_EQ(word_at(at + 4), 55);
    put_word(at + 8, 66);
    tell(0);
    listen_word();
    OK(cuMemFree_v2(at));
    CUdeviceptr other;
    OK(cuMemAlloc_v2(&other, 250000));  // a size for which that place is the first choice
    CHECK_EQ(other, at);
    put_word(at + 8, 77);  // other memory at the same address
    OK(cuIpcGetMemHandle(&again, at));
    CHECK(memcmp(&again, &board->memory, sizeof again));
    OK(cuMemFree_v2(other));
    tell(0);
    listen_word();
}

static void handle_opener(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUdeviceptr at, again;
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, board->memory, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcOpenMemHandle_v2(NULL, board->memory, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle_v2(&at, board->memory, 1));
    OK(cuIpcOpenMemHandle_v2(&again, board->memory, 1));
    CHECK_EQ(at, again);
    CUcontext other;
    OK(cuCtxCreate_v2(&other, 0, 0));
    CHECK_EQ(cuIpcOpenMemHandle_v2(&again, board->memory, 1), CUDA_ERROR_ALREADY_MAPPED);
    OK(cuCtxDestroy_v2(other));
    CUdeviceptr base;
    size_t bytes;
    OK(cuMemGetAddressRange_v2(&base, &bytes, at + 5));
    CHECK_EQ(base, at);
    CHECK_EQ(bytes, BYTES + 100);
    CHECK_EQ(word_at(at), 44);
    CHECK_EQ(word_at(at + BYTES - 4), 19);
    put_word(at + 4, 55);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcGetMemHandle(&board->memory, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcCloseMemHandle(at + 512), CUDA_ERROR_INVALID_VALUE);
    tell(0);
    listen_word();
    CHECK_EQ(word_at(at + 8), 66);
    tell(0);
    listen_word();
    CHECK_EQ(word_at(at + 8), 66);  // the other's new memory is other memory
    OK(cuIpcCloseMemHandle(at));
    CHECK_EQ(word_at(at + 8), 66);
    OK(cuIpcCloseMemHandle(at));
    CHECK_EQ(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, board->memory, 1), CUDA_ERROR_INVALID_HANDLE);
    tell(0);
    listen_word();
}

static void by_handle(void) {
    uint64_t bytes = (BYTES + 100 + 511) / 512 * 512;
    struct child a = spawn(handle_maker, 0);
    hear(a);
    CHECK_EQ(test_used(0), CONTEXT_BYTES + bytes + 2048);
    CHECK_EQ(test_books_of(a.pid, 0).shared_bytes, bytes);
    struct child b = spawn(handle_opener, 0);
    hear(b);
    CHECK_EQ(test_used(0), 2 * CONTEXT_BYTES + bytes + 2048);
    next(a);
    next(b);
    next(a);  // frees
    CHECK_EQ(test_used(0), 2 * CONTEXT_BYTES + bytes + 2048);
    CHECK_EQ(test_books_of(b.pid, 0).allocated_bytes, bytes);
    next(b);  // closes
    CHECK_EQ(test_used(0), 2 * CONTEXT_BYTES + 2048);
    finish(a);
    finish(b);
    CHECK_EQ(test_used(0), 0);
}

static void maker_dies(void) {
    struct child a = spawn(handle_maker, 0);
    hear(a);
    struct child b = spawn(handle_opener, 0);
    hear(b);
    next(a);
    kill_now(a);
    close(a.to);
    next(b);
    CHECK_EQ(test_used(0), CONTEXT_BYTES + (BYTES + 100 + 511) / 512 * 512);
    finish(b);
    CHECK_EQ(test_used(0), 0);
}

static void open_nothing(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUdeviceptr at;
    CUipcMemHandle handle = board->memory;
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, handle, 1), CUDA_ERROR_INVALID_HANDLE);  // of the dead
    memset(&handle, 0, sizeof handle);
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    memset(&handle, 0xff, sizeof handle);
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuIpcGetMemHandle(&handle, 0x1234), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcGetMemHandle(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocManaged(&at, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuIpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&at, 4096));
    CHECK_EQ(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxPopCurrent_v2(NULL));
    CHECK_EQ(cuIpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_CONTEXT);
}

static void bad_handles(void) {
    struct child a = spawn(handle_maker, 0);
    hear(a);
    kill_now(a);
    close(a.to);
    finish(spawn(open_nothing, 0));
    CHECK_EQ(test_used(0), 0);
}

// A program may close any descriptor: what is exported then says so, and nothing else suffers.
static void close_all(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUmemGenericAllocationHandle handle = create_on(0, BYTES), other = create_on(0, BYTES);
    CUdeviceptr at = map_all(handle, BYTES), plain;
    CUipcMemHandle name;
    int fd;
    OK(cuMemAlloc_v2(&plain, 5000));
    OK(cuIpcGetMemHandle(&name, plain));
    close(export(handle));
    for (fd = 3; fd < 200; fd++)
        if (fd != tell_fd && fd != hear_fd)
            close(fd);
    fd = open("/dev/null", O_RDONLY);  // takes over a number
    put_word(at, 8);
    CUdeviceptr alias = map_all(handle, BYTES), more = map_all(other, BYTES);
    CHECK_EQ(word_at(alias), 8);
    put_word(more, 9);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_ERROR_OPERATING_SYSTEM);
    CHECK_EQ(cuIpcGetMemHandle(&name, plain), CUDA_ERROR_OPERATING_SYSTEM);
    OK(cuMemExportToShareableHandle(&fd, other, 1, 0));
    CHECK_EQ(word_at(more), 9);
    OK(cuMemUnmap(at, BYTES));
    OK(cuMemUnmap(alias, BYTES));
    OK(cuMemUnmap(more, BYTES));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(other));
    OK(cuMemFree_v2(plain));
    CHECK(fcntl(fd, F_GETFD) >= 0);  // no descriptor of the program was closed
    tell(0);
    listen_word();
}

static void descriptors_closed(void) {
    struct child a = spawn(close_all, 0);
    hear(a);
    CHECK_EQ(test_used(0), CONTEXT_BYTES);
    finish(a);
}

// ---- Other devices ----

static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry store(.param .u64 p) {\n"
                           "  .reg .u64 %rd<2>; .reg .u32 %r<2>;\n"
                           "  ld.param.u64 %rd1,[p]; mov.u32 %r1,7; st.global.u32 [%rd1],%r1;\n"
                           "  ret; }\n";

static void send_descriptor(uint64_t unused) {
    (void)unused;
    context = start_context();
    send_fd(sockets[0], export(create_on(0, BYTES)));
    tell(0);
    listen_word();
}

// Its context is on the other device: what it opens it can use there, too.
static void open_on_other(uint64_t unused) {
    (void)unused;
    CUmodule module;
    CUfunction store;
    CUdeviceptr at;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&store, module, "store"));
    OK(cuIpcOpenMemHandle_v2(&at, board->memory, 1));
    void *params[] = {&at};
    OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(word_at(at), 7);
    int device;
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    CHECK_EQ(device, 0);
    OK(cuIpcCloseMemHandle(at));
}

// It does not see the device at all.
static void open_unseen(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle;
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    context = start_context();
    CHECK_EQ(cuIpcOpenMemHandle_v2(&at, board->memory, 1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)receive_fd(sockets[1]), 1),
             CUDA_ERROR_INVALID_DEVICE);
}

static void other_devices(void) {
    struct child a = spawn(handle_maker, 0), b = spawn(send_descriptor, 0);
    hear(a);
    hear(b);
    finish(spawn(open_on_other, 0));
    finish(spawn(open_unseen, 0));
    kill_now(a);
    kill_now(b);
    close(a.to);
    close(b.to);
    CHECK_EQ(test_used(0), 0);
}

// A machine whose cards do not reach each other.
static void apart(uint64_t unused) {
    (void)unused;
    struct sim_config config = test_config();
    config.no_peer_access = 1;
    sim_machine_close(test_machine(&config));
    CUcontext other;
    int can;
    context = start_context();
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 0);
    CHECK_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CUdeviceptr at = map_all(create_on(0, BYTES), BYTES), far;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, 3};
    CHECK_EQ(cuMemSetAccess(at, BYTES, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuCtxSetCurrent(other));
    OK(cuMemAlloc_v2(&far, BYTES));
    put_word(at, 5);
    OK(cuMemcpyPeer(far, other, at, context, BYTES));  // through the host
    CHECK_EQ(word_at(far), 5);
    test_machine_remove();
}

static void cards_apart(void) {
    finish(spawn(apart, 0));
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    open_sockets(sockets);
    static const struct test tests[] = {
        TEST(by_handle),          TEST(maker_dies),    TEST(bad_handles),
        TEST(descriptors_closed), TEST(other_devices), TEST(cards_apart),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
