// surveyor.c: a tenant that lies about what its contexts take.
//
// surveyor CONTEXTS BYTES: without weir's library, makes one context on the first GPU, allocates
// BYTES that it declares to nobody, says HELLO to the agent itself and asks it to measure, as if it
// had CONTEXTS contexts. Says "measured BYTES", what the agent answers that one takes, or "closed"
// where it ends the connection; then waits for its input to end.
#define _GNU_SOURCE
#include "cuda.h"
#include "tenant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union message {
    struct weir_header header;
    struct weir_measured measured;
    char bytes[WEIR_MSG_BYTES_MAX];
};

static int greet(void) {
    union message answer;
    struct weir_hello hello = good_hello("surveyor");
    int fd = connect_agent();
    if (fd < 0 || send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
        recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.header) ||
        answer.header.type != WEIR_MSG_WELCOME)
        return -1;
    return fd;
}

int main(int count, char **arguments) {
    uint64_t address;
    union message answer = {0};
    if (count != 3) {
        puts("usage: surveyor CONTEXTS BYTES");
        return 2;
    }
    uint64_t bytes = strtoull(arguments[2], NULL, 10);
    int code = use_gpu(0);
    if (code || (bytes && (code = cuMemAlloc_v2(&address, bytes)))) {
        printf("wrong %d\n", code);
        return 1;
    }
    int fd = greet();
    struct weir_measure measure = {
        .header = {.type = WEIR_MSG_MEASURE, .bytes = sizeof(measure), .seq = 2},
        .contexts = (uint32_t)strtoul(arguments[1], NULL, 10),
    };
    if (fd < 0 || send(fd, &measure, sizeof(measure), MSG_NOSIGNAL) != sizeof(measure)) {
        puts("wrong: not welcome");
        return 1;
    }
    if (recv(fd, &answer, sizeof(answer), 0) == sizeof(answer.measured) &&
        answer.header.type == WEIR_MSG_MEASURED)
        printf("measured %llu\n", (unsigned long long)answer.measured.context_bytes);
    else
        puts("closed");
    fflush(stdout);
    while (read(STDIN_FILENO, answer.bytes, sizeof(answer.bytes)) > 0)
        continue;
    return 0;
}
