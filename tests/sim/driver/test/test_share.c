// test_share.c: see test_share.h.
#define _GNU_SOURCE
#include "test_share.h"

#include "test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

void send_fd(int socket, int fd) {
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    CHECK_EQ(sendmsg(socket, &message, 0), 1);
}

int receive_fd(int socket) {
    int fd;
    char room[CMSG_SPACE(sizeof fd)], byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK_EQ(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

void open_sockets(int sockets[2]) {
    int low[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, low));
    for (unsigned i = 0; i < 2; i++) {
        sockets[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 300);
        close(low[i]);
    }
}

CUmemAllocationProp shareable(int device) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

CUmemGenericAllocationHandle create_on(int device, size_t bytes) {
    CUmemAllocationProp properties = shareable(device);
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

CUdeviceptr map_all(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    OK(cuMemMap(at, bytes, 0, handle, 0));
    OK(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

CUcontext start_context(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

uint32_t word_at(CUdeviceptr at) {
    uint32_t word;
    OK(cuMemcpyDtoH_v2(&word, at, 4));
    return word;
}

void put_word(CUdeviceptr at, uint32_t word) {
    OK(cuMemcpyHtoD_v2(at, &word, 4));
}
