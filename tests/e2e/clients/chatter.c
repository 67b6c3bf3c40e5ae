// chatter.c: a process of a container that has no GPU and talks to the agent of GPU time all the
// same, in messages that are well formed and say anything, as fast as it can.
//
// chatter SEED read|deaf: says "welcome", and, at the end of its input, "sent COUNT". One that is
// deaf reads nothing of what the agent says to it.
#define _GNU_SOURCE
#include "random.h"
#include "tenant.h"

#include <poll.h>
#include <stdio.h>

enum { LEASES = 64, BETWEEN_LOOKS = 256 };

static uint64_t state;

static uint32_t below(uint32_t bound) {
    return (uint32_t)(next_random(&state) % bound);
}

static struct weir_turn any(void) {
    static const uint16_t types[] = {WEIR_MSG_WANT, WEIR_MSG_DRAINED, WEIR_MSG_PROGRESS,
                                     WEIR_MSG_IDLE};
    struct weir_turn turn = {.header = {.type = types[below(4)], .bytes = sizeof(turn)},
                             .gpu = 0,
                             .lease = below(8) ? below(LEASES) : below(1u << 31)};
    if (turn.header.type == WEIR_MSG_DRAINED || turn.header.type == WEIR_MSG_PROGRESS)
        turn.waiting = below(3);
    return turn;
}

int main(int count, char **arguments) {
    struct weir_hello hello = good_hello("chatter");
    char answer[WEIR_MSG_BYTES_MAX];
    int fd = connect_agent();
    if (count != 3 || fd < 0 || send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
        recv(fd, answer, sizeof(answer), 0) <= 0)
        return 1;
    int deaf = !strcmp(arguments[2], "deaf");
    state = strtoull(arguments[1], NULL, 10);
    long sent = 0;
    puts("welcome");
    fflush(stdout);
    for (struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN}; poll(&input, 1, 0) == 0;) {
        for (int i = 0; i < BETWEEN_LOOKS; i++, sent++) {
            struct weir_turn turn = any();
            if (send(fd, &turn, sizeof(turn), MSG_NOSIGNAL) < 0) {
                struct weir_close end = {0};
                for (ssize_t got; (got = recv(fd, answer, sizeof(answer), 0)) > 0;)
                    memcpy(&end, answer, (size_t)got < sizeof(end) ? (size_t)got : sizeof(end));
                printf("hung up after %ld: %u %s\n", sent, end.reason, end.text);
                return 1;
            }
            while (!deaf && recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0)
                continue;
        }
    }
    printf("sent %ld\n", sent);
    return 0;
}
