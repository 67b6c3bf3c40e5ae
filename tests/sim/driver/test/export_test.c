// export_test.c: virtual memory that two processes have between them, by descriptors: what both
// see, whose the memory is in the machine's books, and what deaths leave of it. The test itself
// never calls the driver.
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
static int sockets[2];  // for descriptors

static CUcontext context;

static int export(CUmemGenericAllocationHandle handle) {
    int fd;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static CUmemGenericAllocationHandle import(int fd) {
    CUmemGenericAllocationHandle handle;
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

// Exports after it has written, then changes what is there when told, and releases when told.
static void exporter(uint64_t mapped) {
    context = start_context();
    CUmemGenericAllocationHandle handle = create_on(0, BYTES);
    CUdeviceptr at = mapped ? map_all(handle, BYTES) : 0;
    if (mapped) {  // two pages, with pages between them that were never written
        put_word(at + BYTES / 2, 12);
        put_word(at + BYTES - 4, 11);
    }
    int fd = export(handle), again = export(handle);
    struct stat one, two;
    CHECK(!fstat(fd, &one) && !fstat(again, &two));
    CHECK_EQ(one.st_ino, two.st_ino);
    CHECK_EQ(one.st_dev, two.st_dev);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(again);
    send_fd(sockets[0], fd);
    close(fd);
    tell(0);
    listen_word();
    if (mapped) {
        CHECK_EQ(word_at(at), 22);
        put_word(at + 8, 33);
    }
    tell(0);
    listen_word();
    OK(cuMemRelease(handle));
    if (mapped)
        OK(cuMemUnmap(at, BYTES));
    tell(0);
    listen_word();
}

static void importer(uint64_t unused) {
    (void)unused;
    context = start_context();
    int fd = receive_fd(sockets[1]);
    CUmemGenericAllocationHandle handle = import(fd), again = import(fd);
    CHECK_EQ(handle, again);  // it is the same memory
    close(fd);
    OK(cuMemRelease(again));
    CUdeviceptr at = map_all(handle, BYTES);
    CHECK_EQ(word_at(at + BYTES - 4), 11);
    CHECK_EQ(word_at(at + BYTES / 2), 12);
    CHECK_EQ(word_at(at + BYTES / 4), 0);
    put_word(at, 22);
    tell(0);
    listen_word();
    CHECK_EQ(word_at(at + 8), 33);
    CUmemAllocationProp p;
    OK(cuMemGetAllocationPropertiesFromHandle(&p, handle));
    CHECK_EQ(p.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    tell(0);
    listen_word();
    OK(cuMemRelease(handle));
    tell(0);
    listen_word();
    CHECK_EQ(word_at(at + 8), 33);  // though all else have let go
    OK(cuMemUnmap(at, BYTES));
    tell(0);
    listen_word();
}

static void next(struct child child) {
    say(child, 0);
    hear(child);
}

static void by_descriptor(void) {
    struct child a = spawn(exporter, 1);
    hear(a);
    CHECK_EQ(test_used(0), CONTEXT_BYTES + BYTES);
    struct child b = spawn(importer, 0);
    hear(b);
    uint64_t all = 2 * CONTEXT_BYTES + BYTES;
    CHECK_EQ(test_used(0), all);
    CHECK_EQ(test_books_of(a.pid, 0).allocated_bytes, BYTES);
    CHECK_EQ(test_books_of(a.pid, 0).shared_bytes, BYTES);
    CHECK_EQ(test_books_of(b.pid, 0).allocated_bytes, 0);
    CHECK_EQ(test_books_of(b.pid, 0).imported_bytes, BYTES);
    next(a);
    next(b);
    next(a);  // releases
    CHECK_EQ(test_used(0), all);
    CHECK_EQ(test_books_of(a.pid, 0).allocated_bytes, 0);
    CHECK_EQ(test_books_of(b.pid, 0).allocated_bytes, BYTES);
    next(b);  // releases, but maps
    CHECK_EQ(test_used(0), all);
    next(b);  // unmaps
    CHECK_EQ(test_used(0), all - BYTES);
    finish(a);
    finish(b);
    CHECK_EQ(test_used(0), 0);
}

// The exporter is killed while the importer has it; then the importer.
static void exporter_dies(void) {
    struct child a = spawn(exporter, 1);
    hear(a);
    struct child b = spawn(importer, 0);
    hear(b);
    next(a);
    kill_now(a);
    close(a.to);
    CHECK_EQ(test_used(0), CONTEXT_BYTES + BYTES);
    CHECK_EQ(test_books_of(b.pid, 0).shared_bytes, BYTES);
    next(b);
    kill_now(b);
    close(b.to);
    CHECK_EQ(test_used(0), 0);
}

// A descriptor that nobody has imported yet is taken of the card by its importer.
static void late_importer(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUmemGenericAllocationHandle handle = import(receive_fd(sockets[1]));
    CHECK_EQ(word_at(map_all(handle, BYTES) + BYTES - 4), 11);
    tell(0);
    listen_word();
}

static void dies_before_the_import(void) {
    struct child a = spawn(exporter, 1);
    hear(a);
    kill_now(a);
    close(a.to);
    CHECK_EQ(test_used(0), 0);
    struct child b = spawn(late_importer, 0);
    hear(b);
    CHECK_EQ(test_used(0), CONTEXT_BYTES + BYTES);
    finish(b);
}

static void bad_descriptors(uint64_t unused) {
    (void)unused;
    context = start_context();
    CUmemGenericAllocationHandle handle;
    int pipes[2], file = memfd_create("other", 0), sealed = memfd_create("other", 2);
    CHECK(!pipe(pipes) && !ftruncate(file, 8192) && !ftruncate(sealed, 8192));
    CHECK_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    int fds[] = {-1, 999, 0, pipes[0], file, sealed};
    for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++)
        CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fds[i], 1),
                 CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)file, 1),
             CUDA_ERROR_INVALID_VALUE);
    handle = create_on(0, BYTES);
    int fd;
    CHECK_EQ(cuMemExportToShareableHandle(NULL, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, 5, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuMemCreate(&handle, BYTES, &p, 0));  // of no handle type
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
    // An own export can be imported.
    handle = create_on(0, BYTES);
    CHECK_EQ(import(export(handle)), handle);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(handle));
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

static void descriptors(void) {
    finish(spawn(bad_descriptors, 0));
    CHECK_EQ(test_used(0), 0);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    open_sockets(sockets);
    static const struct test tests[] = {
        TEST(by_descriptor),
        TEST(exporter_dies),
        TEST(dies_before_the_import),
        TEST(descriptors),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
