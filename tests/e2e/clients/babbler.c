// babbler.c: a process of a container that speaks nonsense on the tenant socket.
//
// babbler hello [PID]: one connection with a right HELLO, which says that it is process PID's:
// "welcome", or "closed REASON". Where it is welcome it stays until its input ends. babbler hand
// PATH: connects, and hands the connection to whoever connects to the socket PATH; "handed".
// babbler take PATH: takes a connection that is handed there, and says HELLO on it, as hello does.
// babbler SEED COUNT: COUNT connections. Each sends one kind of bad talk and expects the agent to
// end it: "closed REASON" with the reason's number, or 0 where the agent just hung up. A connection
// that the agent leaves open although it was spoken to badly is "open KIND", and the program fails.
#define _GNU_SOURCE
#include "random.h"
#include "tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
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
static int greet_as(int fd, uint32_t pid) {
    union {
        struct weir_header header;
        struct weir_close close;
        char bytes[WEIR_MSG_BYTES_MAX];
    } answer = {0};
    struct weir_hello hello = good_hello("babbler");
    hello.pid = pid;
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

static int greet(int fd) {
    return greet_as(fd, (uint32_t)getpid());
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
    switch (next_random(&random_state) % 5) {
    case 0:
        hello.magic ^= 1u << next_random(&random_state) % 32;
        break;
    case 1:
        hello.held_count = WEIR_GPUS_MAX + 1;
        break;
    case 2:
        memset(hello.program, 'x', sizeof(hello.program));
        break;
    case 3:
        hello.reserved = 1;
        break;
    default:
        hello.header.bytes ^= 8;
    }
    say(fd, &hello, sizeof(hello));
}

static void say_hello_of_another_version(int fd) {
    struct weir_hello hello = good_hello("babbler");
    hello.abi_oldest = hello.abi_newest = 77;
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
    say_the_agents_part, send_descriptors, say_junk_later, say_hello_of_another_version,
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

static void say_and_flush(const char *words) {
    puts(words);
    fflush(stdout);
}

static void say_and_stay(const char *words) {
    say_and_flush(words);
    while (getchar() != EOF)
        continue;
}

// Says HELLO on a connection, as process `pid`.
static int only_hello(int fd, uint32_t pid) {
    int reason = fd < 0 ? -1 : greet_as(fd, pid);
    if (reason)
        printf("closed %d\n", reason);
    else
        say_and_stay("welcome");
    return reason != 0;
}

// A socket at `path` by which two babblers meet: the end that listens, or the one that connects.
static int meet(const char *path, bool listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof(address.sun_path))
        return -1;
    strcpy(address.sun_path, path);
    if (!listens)
        return connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -1 : fd;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1))
        return -1;
    say_and_flush("listening");
    return accept(fd, NULL, NULL);
}

// One descriptor in a message: sent, or received, which returns it or -1.
static int move_descriptor(int over, int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.bytes),
    };
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    if (fd < 0) {
        if (recvmsg(over, &message, 0) == 1 && first->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(first), sizeof(fd));
        return fd;
    }
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(first), &fd, sizeof(fd));
    return sendmsg(over, &message, MSG_NOSIGNAL) == 1 ? fd : -1;
}

static int hand(const char *path) {
    int over = meet(path, true), fd = connect_agent();  // which says nothing for a moment only
    if (fd < 0 || over < 0 || move_descriptor(over, fd) < 0) {
        puts("failed to hand it over");
        return 1;
    }
    say_and_stay("handed");
    return 0;
}

int main(int count, char **arguments) {
    const char *word = count > 1 ? arguments[1] : "";
    if (!strcmp(word, "hello"))
        return only_hello(connect_agent(),
                          count > 2 ? (uint32_t)atoi(arguments[2]) : (uint32_t)getpid());
    if (count != 3)
        return 2;
    if (!strcmp(word, "hand"))
        return hand(arguments[2]);
    if (!strcmp(word, "take"))
        return only_hello(move_descriptor(meet(arguments[2], false), -1), (uint32_t)getpid());
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
