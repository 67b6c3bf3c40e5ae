// crowd.c: many small processes, each with a session: says HELLO, maps its usage page, and sleeps.
// Usage: crowd SOCKET HELLO-FILE COUNT. Prints one line when all have been welcomed; ends, with all
// of them, when its input ends.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char hello[4096];
static size_t hello_bytes;

static int say_hello(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return 1;
    if (send(fd, hello, hello_bytes, 0) != (ssize_t)hello_bytes)
        return 2;
    char welcome[64];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } rights;
    struct iovec part = {welcome, sizeof welcome};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
    if (recvmsg(fd, &message, 0) <= 0 || message.msg_controllen < sizeof rights)
        return 3;
    int pages[2];
    memcpy(pages, CMSG_DATA(&rights.header), sizeof pages);
    if (mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, pages[1], 0) == MAP_FAILED)
        return 4;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int file = open(argv[2], O_RDONLY);
    ssize_t n = read(file, hello, sizeof hello);
    int done[2];
    if (n <= 0 || pipe(done) != 0)
        return 2;
    hello_bytes = (size_t)n;
    int count = atoi(argv[3]);
    for (int i = 0; i < count; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char result = (char)('0' + say_hello(argv[1]));
            if (write(done[1], &result, 1) == 1)
                for (;;)
                    pause();
            _exit(1);
        }
    }
    for (int i = 0; i < count; i++) {
        char result;
        if (read(done[0], &result, 1) != 1 || result != '0') {
            printf("failed %c\n", result);
            return 1;
        }
    }
    printf("ready\n");
    fflush(stdout);
    while (read(0, hello, 1) > 0) {
    }
    return 0;
}
