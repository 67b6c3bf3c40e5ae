// client.c: see client.h.
#include "client.h"

#include <string.h>
#include <sys/un.h>

#include "credit.h"
#include "piece.h"
#include "version.h"

// Programs expect the lowest free number from open(); ours lie above what most of them reach, but
// within the 64 that a process's table begins with: where there are threads, the kernel waits 10 ms
// and more before it puts a longer table in place.
#define FD_LOWEST 48
#define HELLO_SEQ 1u
// Descriptors that a message may carry before it is cut off.
#define FDS_MAX 4u

_Static_assert(WEIR_SOCKET_PATH_MAX == sizeof(((struct sockaddr_un *)0)->sun_path), "path length");

int weir_client_lift(int fd) {
    int high = weir_sys_fcntl(fd, F_DUPFD_CLOEXEC, FD_LOWEST);
    if (high < 0)
        return fd;
    weir_sys_close(fd);
    return high;
}

int weir_client_connect(const struct weir_state *state, int *fd, uint64_t *cookie) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(state->socket_path);
    if (!bytes)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, state->socket_path, bytes + 1);
    int socket = weir_sys_socket(SOCK_SEQPACKET);
    if (socket < 0)
        return socket;
    socket = weir_client_lift(socket);
    uint64_t number = weir_sys_socket_cookie(socket);
    int rc = number ? weir_sys_connect(socket, &address, sizeof(address)) : -EOPNOTSUPP;
    if (rc < 0) {
        weir_sys_close(socket);
        return rc;
    }
    *fd = socket;
    *cookie = number;
    return 0;
}

int weir_client_send(int fd, uint64_t cookie, const void *message) {
    size_t bytes = ((const struct weir_header *)message)->bytes;
    if (weir_sys_socket_cookie(fd) != cookie)
        return -EBADF;
    long sent = weir_sys_send(fd, message, bytes);
    if (sent == (long)bytes)
        return 0;
    return sent < 0 ? (int)sent : -EIO;
}

int weir_client_send_patiently(int fd, uint64_t cookie, const void *message) {
    for (uint64_t left_ms = WEIR_AGENT_WAIT_MS;; left_ms -= WEIR_WAIT_MS_MAX) {
        int rc = weir_client_send(fd, cookie, message);
        if (rc != -EAGAIN)
            return rc;
        if (left_ms < WEIR_WAIT_MS_MAX)
            return -ETIMEDOUT;
        weir_sys_wait_writable(fd, WEIR_WAIT_MS_MAX);
    }
}

// The length of each message that the agent sends; 0 for a type that it does not send.
static size_t length_of(uint16_t type) {
    switch (type) {
    case WEIR_MSG_WELCOME:
        return sizeof(struct weir_welcome);
    case WEIR_MSG_VERDICT:
        return sizeof(struct weir_verdict);
    case WEIR_MSG_ANSWER:
        return sizeof(struct weir_answer);
    case WEIR_MSG_MEASURED:
        return sizeof(struct weir_measured);
    case WEIR_MSG_SHARED:
        return sizeof(struct weir_shared);
    case WEIR_MSG_LOOK:
        return sizeof(struct weir_turn);
    case WEIR_MSG_MOVE:
        return sizeof(struct weir_move);
    case WEIR_MSG_CLOSE:
        return sizeof(struct weir_close);
    default:
        return 0;
    }
}

// Keeps the first two descriptors that came and closes the others. Walks the control data itself:
// the libc's macros for that call into it.
static void keep_fds(const struct msghdr *message, const uint8_t *control,
                     struct weir_incoming *incoming) {
    const size_t head = CMSG_ALIGN(sizeof(struct cmsghdr));
    size_t at = 0;
    while (at + head <= message->msg_controllen) {
        struct cmsghdr header;
        memcpy(&header, control + at, sizeof(header));
        if (header.cmsg_len < head || header.cmsg_len > message->msg_controllen - at)
            return;
        size_t count = (header.cmsg_len - head) / sizeof(int);
        if (header.cmsg_level != SOL_SOCKET || header.cmsg_type != SCM_RIGHTS)
            count = 0;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, control + at + head + i * sizeof(fd), sizeof(fd));
            if (incoming->fd_count < 2)
                incoming->fds[incoming->fd_count] = fd;
            else
                weir_sys_close(fd);
            incoming->fd_count++;
        }
        at += CMSG_ALIGN(header.cmsg_len);
    }
}

static void drop_fds(struct weir_incoming *incoming) {
    for (uint32_t i = 0; i < incoming->fd_count && i < 2; i++)
        weir_sys_close(incoming->fds[i]);
    incoming->fd_count = 0;
}

int weir_client_receive(int fd, uint64_t cookie, struct weir_incoming *incoming) {
    uint8_t control[CMSG_SPACE(FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
    struct iovec part = {incoming->bytes, sizeof(incoming->bytes)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    incoming->fd_count = 0;
    if (weir_sys_socket_cookie(fd) != cookie)
        return -EBADF;
    long got = weir_sys_recvmsg(fd, &message);
    if (got < 0)
        return (int)got;
    keep_fds(&message, control, incoming);
    if (got == 0) {
        drop_fds(incoming);
        return -EPIPE;
    }
    uint32_t wanted_fds = 0;
    size_t length = 0;
    if ((size_t)got >= sizeof(incoming->header)) {
        length = length_of(incoming->header.type);
        wanted_fds = incoming->header.type == WEIR_MSG_WELCOME ? 2 : 0;
    }
    if (length == 0 || (size_t)got != length || incoming->header.bytes != length ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || incoming->fd_count != wanted_fds) {
        drop_fds(incoming);
        return -EPROTO;
    }
    return 0;
}

// The base name of the executable; empty where the kernel does not tell.
static void write_program(char *to, size_t room) {
    char path[512];
    long bytes = weir_sys_readlink("/proc/self/exe", path, sizeof(path));
    if (bytes <= 0)
        return;
    const char *name = path;
    for (long i = 0; i < bytes; i++)
        if (path[i] == '/')
            name = path + i + 1;
    size_t length = (size_t)(path + bytes - name);
    memcpy(to, name, length < room ? length : room - 1);
}

int weir_client_hello(struct weir_state *state, int fd, uint64_t cookie) {
    struct weir_hello hello;
    memset(&hello, 0, sizeof(hello));
    hello.header = (struct weir_header){WEIR_MSG_HELLO, sizeof(hello), HELLO_SEQ};
    hello.magic = WEIR_HELLO_MAGIC;
    hello.abi_oldest = WEIR_ABI_OLDEST;
    hello.abi_newest = WEIR_ABI_VERSION;
    hello.driver_version = state->driver_version > 0 ? (uint32_t)state->driver_version : 0;
    hello.pid = (uint32_t)state->pid;
    memcpy(hello.library, WEIR_VERSION, sizeof(WEIR_VERSION));
    write_program(hello.program, sizeof(hello.program));
    if (weir_lock(&state->lock))
        return -EDEADLK;
    hello.session = state->session;
    hello.usage_inode = state->usage_inode;
    state->page_open = 0;
    state->declaring = 1;
    weir_pieces_forget(state);
    weir_credit_declare(state, &hello);
    weir_unlock(&state->lock);
    // An agent that refuses this process at once has hung up already; its reason is still to be
    // read.
    int rc = weir_client_send(fd, cookie, &hello);
    return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

// It waits in slices that count for no more than their length: a process that was stopped meanwhile
// still looks for the answer.
int weir_client_welcome(int fd, uint64_t cookie, uint64_t left_ms, struct weir_incoming *incoming) {
    for (;;) {
        uint64_t slice_ms = left_ms < WEIR_WAIT_MS_MAX ? left_ms : WEIR_WAIT_MS_MAX;
        uint64_t before = weir_sys_now_ms();
        weir_sys_wait_readable(fd, slice_ms);
        int rc = weir_client_receive(fd, cookie, incoming);
        if (rc == 0 && incoming->header.type == WEIR_MSG_CLOSE)
            return WEIR_ENDED_BY_AGENT;
        if (rc == 0 &&
            (incoming->header.type != WEIR_MSG_WELCOME || incoming->header.seq != HELLO_SEQ)) {
            drop_fds(incoming);
            return -EPROTO;
        }
        // A reset is told once, before what was sent ahead of it.
        if (rc != -EAGAIN && rc != -EINTR && rc != -ECONNRESET)
            return rc;
        if (!left_ms)
            return -ETIMEDOUT;
        uint64_t passed_ms = weir_sys_now_ms() - before;
        left_ms -= passed_ms < slice_ms ? passed_ms : slice_ms;
    }
}
