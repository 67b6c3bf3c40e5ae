// mempool_share_test.c: a memory pool of one process used by another one: data, the machine's
// books, and what remains when one of them ends.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_child.h"
#include "test_machine.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define CHUNK (512u << 10)  // 32 MiB / scale

static struct sim_machine *machine;
static int sockets[2];

// ---- In both processes ----

static void start(void) {
    CUcontext primary;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
}

// A pool's descriptor and a pointer, from the one to the other.
union message {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

static void send_export(int fd, CUmemPoolPtrExportData *data) {
    union message control = {0};
    struct iovec part = {data, sizeof *data};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK_EQ(sendmsg(sockets[0], &message, 0), sizeof *data);
}

static int receive_export(CUmemPoolPtrExportData *data) {
    union message control = {0};
    int fd;
    struct iovec part = {data, sizeof *data};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    CHECK_EQ(recvmsg(sockets[1], &message, 0), sizeof *data);
    CHECK(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// ---- The exporter ----

static CUmemoryPool exportable_pool(void) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static void exporter(uint64_t unused) {
    (void)unused;
    start();
    CUmemoryPool pool = exportable_pool();
    CUdeviceptr first, at;
    CUmemPoolPtrExportData data;
    int fd, again;
    uint32_t word = 0;
    struct stat one, two;
    OK(cuMemAllocFromPoolAsync(&first, 100, pool, NULL));
    OK(cuMemAllocFromPoolAsync(&at, 5000, pool, NULL));
    OK(cuMemsetD32Async(at, 0x1234, 1250, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolExportToShareableHandle(&again, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(!fstat(fd, &one) && !fstat(again, &two) && one.st_ino == two.st_ino);
    close(again);
    CHECK_EQ(cuMemPoolExportToShareableHandle(&again, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolExportPointer(&data, at + 4096), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolExportPointer(&data, at));
    send_export(fd, &data);
    close(fd);
    tell(1);
    listen_word();  // the importer has read and written
    OK(cuMemcpyDtoH_v2(&word, at + 4996, 4));
    CHECK_EQ(word, 0x5678);
    OK(cuMemFreeAsync(first, NULL));
    tell(2);
    listen_word();  // the importer has freed
    OK(cuMemFreeAsync(at, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolDestroy(pool));
    tell(3);
    wait_for_end();
}

// ---- The importer ----

static CUmemoryPool import(CUmemPoolPtrExportData *data, CUdeviceptr *at) {
    CUmemoryPool pool;
    int fd = receive_export(data);
    CHECK_EQ(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_FABRIC, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)-1,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    OK(cuMemPoolImportPointer(at, pool, data));
    return pool;
}

static void importer(uint64_t unused) {
    (void)unused;
    start();
    CUmemPoolPtrExportData data, junk = {{1}};
    CUdeviceptr at, other;
    uint32_t words[1250];
    uint64_t value;
    CUmemoryPool pool = import(&data, &at);
    OK(cuMemcpyDtoH_v2(words, at, 5000));
    CHECK(words[0] == 0x1234 && words[1249] == 0x1234);
    OK(cuMemsetD32Async(at + 4996, 0x5678, 1, NULL));
    OK(cuStreamSynchronize(NULL));
    // Nothing can be allocated from it, and nothing of it is this process's.
    CHECK_EQ(cuMemAllocFromPoolAsync(&other, 4, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolImportPointer(&other, pool, &junk), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolExportPointer(&junk, at), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    CHECK_EQ(value, 0);
    tell(1);
    listen_word();
    // A second time, and both freed: with a stream and without.
    OK(cuMemPoolImportPointer(&other, pool, &data));
    OK(cuMemsetD32Async(at, 1, 1, NULL));
    OK(cuMemFreeAsync(at, NULL));
    CHECK_EQ(cuMemFreeAsync(at, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyDtoH_v2(words, at, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(other));
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamSynchronize(NULL));
    tell(2);
    wait_for_end();
}

// ---- The test ----

// Where spawn() leaves them open.
static void make_sockets(void) {
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    for (unsigned i = 0; i < 2; i++) {
        sockets[i] = fcntl(pair[i], F_DUPFD, 300);
        CHECK(sockets[i] >= 0);
        close(pair[i]);
    }
}

static void two_processes(void) {
    make_sockets();
    struct child exporting = spawn(exporter, 0), importing = spawn(importer, 0);
    CHECK_EQ(hear(exporting), 1);
    CHECK_EQ(hear(importing), 1);
    CHECK_EQ(test_used(0), 2 * 2 * MIB + CHUNK);  // two contexts, and the pool once
    say(exporting, 1);
    CHECK_EQ(hear(exporting), 2);
    say(importing, 1);
    CHECK_EQ(hear(importing), 2);
    CHECK_EQ(test_used(0), 2 * 2 * MIB + CHUNK);
    say(exporting, 1);
    CHECK_EQ(hear(exporting), 3);
    CHECK_EQ(test_used(0), 2 * 2 * MIB);
    finish(exporting);
    finish(importing);
    close(sockets[0]);
    close(sockets[1]);
    CHECK_EQ(test_used(0), 0);
}

// What a dead process has exported lives while another one has it.
static void exporter_dies(void) {
    make_sockets();
    struct child exporting = spawn(exporter, 0), importing = spawn(importer, 0);
    CHECK_EQ(hear(exporting), 1);
    CHECK_EQ(hear(importing), 1);
    kill_now(exporting);
    close(exporting.to);
    close(exporting.from);
    CHECK_EQ(test_used(0), 2 * MIB + CHUNK);
    say(importing, 1);
    CHECK_EQ(hear(importing), 2);
    CHECK_EQ(test_used(0), 2 * MIB);
    finish(importing);
    close(sockets[0]);
    close(sockets[1]);
    CHECK_EQ(test_used(0), 0);
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    machine = test_machine(&config);
    static const struct test tests[] = {TEST(two_processes), TEST(exporter_dies)};
    int rc = RUN(tests);
    sim_machine_close(machine);
    test_machine_remove();
    return rc;
}
