// babbler.c: a process of a container that speaks nonsense on the tenant socket.
//
// babbler hello: one connection with a right HELLO: "welcome", or "closed REASON".
// babbler SEED COUNT: COUNT connections. Each sends one kind of bad talk and expects the agent to
// end it: "closed REASON" with the reason's number, or 0 where the agent just hung up. A connection
// that the agent leaves open although it was spoken to badly is "open KIND", and the program fails.
#define _GNU_SOURCE
#include "random.h"
#include "tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_MS_MAX = 10000, LONG_BYTES = 60000 };

static uint64_t random_state;

static void fill(void *to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = (unsigned char)next_random(&random_state);
}

// Says hello as the library does; the pages that come are not taken. Returns 0 when it is welcome,
// else the reason of the CLOSE, or -1.
static int greet(int fd) {
    union {
        struct weir_header header;
        struct weir_close close;
        char bytes[WEIR_MSG_BYTES_MAX];
    } answer = {0};
    struct weir_hello hello = good_hello("babbler");
    // An agent that refuses at once may have hung up before it is greeted; what it said lies behind
    // the error, which is told once.
    ssize_t sent = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    ssize_t got = recv(fd, &answer, sizeof(answer), 0);
    if (got < 0 && errno == ECONNRESET)
        got = recv(fd, &answer, sizeof(answer), 0);
    if ((sent != sizeof(hello) && sent >= 0) || got < (ssize_t)sizeof(answer.header))
        return -1;
    if (answer.header.type == WEIR_MSG_WELCOME)
        return 0;
    return answer.header.type == WEIR_MSG_CLOSE ? (int)answer.close.reason : -1;
}

static void say(int fd, const void *message, size_t bytes) {
    // The agent may have hung up already; then there is nothing to say.
    if (send(fd, message, bytes, MSG_NOSIGNAL) < 0)
        return;
}

static void say_random(int fd) {
    unsigned char junk[WEIR_MSG_BYTES_MAX];
    size_t bytes = next_random(&random_state) % sizeof(junk) + 1;
    fill(junk, bytes);
    say(fd, junk, bytes);
}

static void say_short_hello(int fd) {
    struct weir_hello hello = good_hello("babbler");
    say(fd, &hello, next_random(&random_state) % (sizeof(hello) - 1) + 1);
}

static void say_long(int fd) {
    static char message[LONG_BYTES];
    struct weir_hello hello = good_hello("babbler");
    memcpy(message, &hello, sizeof(hello));
    say(fd, message, sizeof(message));
}

static void say_mutated_hello(int fd) {
    struct weir_hello hello = good_hello("babbler");
    switch (next_random(&random_state) % 6) {
    case 0:
        hello.magic ^= 1u << next_random(&random_state) % 32;
        break;
    case 1:
        hello.abi_oldest = hello.abi_newest = 77;
        break;
    case 2:
        hello.held_count = WEIR_GPUS_MAX + 1;
        break;
    case 3:
        memset(hello.program, 'x', sizeof(hello.program));
        break;
    case 4:
        hello.reserved = 1;
        break;
    default:
        hello.header.bytes ^= 8;
    }
    say(fd, &hello, sizeof(hello));
}

static void say_request_first(int fd) {
    struct weir_request request = {
        .header = {.type = WEIR_MSG_REQUEST, .bytes = sizeof(request), .seq = 1}, .bytes = 512};
    request.kind = WEIR_KIND_PLAIN;
    say(fd, &request, sizeof(request));
}

static void say_hello_twice(int fd) {
    struct weir_hello hello = good_hello("babbler");
    if (!greet(fd))
        say(fd, &hello, sizeof(hello));
}

static void say_replayed(int fd) {
    struct weir_query query = {
        .header = {.type = WEIR_MSG_QUERY, .bytes = sizeof(query), .seq = 7}};
    if (greet(fd))
        return;
    say(fd, &query, sizeof(query));
    say(fd, &query, sizeof(query));
}

static void say_bad_request(int fd) {
    struct weir_request request = {
        .header = {.type = WEIR_MSG_REQUEST, .bytes = sizeof(request), .seq = 9},
        .kind = WEIR_KIND_PLAIN,
        .bytes = 512,
    };
    switch (next_random(&random_state) % 4) {
    case 0:
        request.bytes = 0;
        break;
    case 1:
        request.bytes = UINT64_MAX;
        break;
    case 2:
        request.kind = 99;
        break;
    default:
        request.header.seq = 0;
    }
    if (!greet(fd))
        say(fd, &request, sizeof(request));
}

static void say_junk_later(int fd) {
    if (!greet(fd))
        say_random(fd);
}

static void say_the_agents_part(int fd) {
    struct weir_verdict verdict = {
        .header = {.type = WEIR_MSG_VERDICT, .bytes = sizeof(verdict), .seq = 1},
        .verdict = WEIR_GRANTED,
        .granted_bytes = 1 << 30,
    };
    if (!greet(fd))
        say(fd, &verdict, sizeof(verdict));
}

static void send_descriptors(int fd) {
    int sent[8];
    union {
        char bytes[CMSG_SPACE(sizeof(sent))];
        struct cmsghdr align;
    } control = {0};
    struct weir_header header = {.type = 999, .bytes = sizeof(header), .seq = 1};
    struct iovec part = {&header, sizeof(header)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.bytes),
    };
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    for (int i = 0; i < 8; i++)
        sent[i] = STDERR_FILENO;
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof(sent));
    memcpy(CMSG_DATA(first), sent, sizeof(sent));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        return;
}

static void (*const kinds[])(int fd) = {
    say_random,          say_short_hello,  say_long,       say_mutated_hello,
    say_request_first,   say_hello_twice,  say_replayed,   say_bad_request,
    say_the_agents_part, send_descriptors, say_junk_later,
};

enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

// Reads until the agent hangs up. The reason of its CLOSE, 0 if it sent none, -1 if it does not end
// the connection.
static int wait_for_end(int fd) {
    int reason = 0;
    for (;;) {
        char answer[WEIR_MSG_BYTES_MAX];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, ANSWER_MS_MAX) <= 0)
            return -1;
        ssize_t got = recv(fd, answer, sizeof(answer), 0);
        if (got <= 0)
            return reason;
        struct weir_close close_message;
        if (got != sizeof(close_message))
            continue;
        memcpy(&close_message, answer, sizeof(close_message));
        if (close_message.header.type == WEIR_MSG_CLOSE)
            reason = (int)close_message.reason;
    }
}

static int only_hello(void) {
    int fd = connect_agent(), reason = fd < 0 ? -1 : greet(fd);
    if (reason == 0)
        puts("welcome");
    else
        printf("closed %d\n", reason);
    return reason != 0;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "hello"))
        return only_hello();
    if (count != 3)
        return 2;
    random_state = strtoull(arguments[1], NULL, 10);
    for (int i = 0; i < atoi(arguments[2]); i++) {
        int kind = (int)(next_random(&random_state) % KINDS), fd = connect_agent();
        if (fd < 0) {
            puts("failed to connect");
            return 1;
        }
        kinds[kind](fd);
        int reason = wait_for_end(fd);
        close(fd);
        if (reason < 0) {
            printf("open %d\n", kind);
            return 1;
        }
        printf("closed %d\n", reason);
    }
    puts("done");
    return 0;
}
