// client.h: the library's end of the agent's socket. Everything that is received is checked: type,
// length, number and kind of descriptors. Only the helper, or the thread that opens the first
// connection, calls this, but for sending.
#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include "state.h"

// The agent has ended the connection with a CLOSE, which says why. No errno.
#define WEIR_ENDED_BY_AGENT (-4096)

// One message and the descriptors that came with it, which the receiver must close.
struct weir_incoming {
    union {
        struct weir_header header;
        struct weir_welcome welcome;
        struct weir_verdict verdict;
        struct weir_answer answer;
        struct weir_measured measured;
        struct weir_shared shared;
        struct weir_turn turn;
        struct weir_move move;
        struct weir_close close;
        uint8_t bytes[WEIR_MSG_BYTES_MAX];
    };
    int fds[2];  // WELCOME: the control page, the usage page
    uint32_t fd_count;
};

// Connects to the agent. 0 and *fd, *cookie; or -errno.
int weir_client_connect(const struct weir_state *state, int *fd, uint64_t *cookie);

// Sends one message, whose header says how long it is, without waiting. Any thread may. 0; -EBADF
// where the descriptor is ours no more, -EAGAIN where the agent does not read, other -errno.
int weir_client_send(int fd, uint64_t cookie, const void *message);

// The same, waiting while the agent is slow to read.
int weir_client_send_patiently(int fd, uint64_t cookie, const void *message);

// Receives one message without waiting. 0; -EPIPE at the end of the connection, -EAGAIN where there
// is none, -EPROTO for one that is not valid, -EBADF where the descriptor is ours no more, other
// -errno.
int weir_client_receive(int fd, uint64_t cookie, struct weir_incoming *incoming);

// Closes the page and says HELLO, which declares what is held. 0; or -errno. An agent that has hung
// up already has heard enough: its reason is what comes next.
int weir_client_hello(struct weir_state *state, int fd, uint64_t cookie);

// Waits for the answer to HELLO, at most `left_ms`. 0 and a WELCOME in *incoming;
// WEIR_ENDED_BY_AGENT and a CLOSE in it; -ETIMEDOUT, after which it can be waited for again; other
// -errno.
int weir_client_welcome(int fd, uint64_t cookie, uint64_t left_ms, struct weir_incoming *incoming);

// Moves a descriptor to a number that programs do not reach by counting from 0, where the limit
// allows. Returns the number.
int weir_client_lift(int fd);

#endif
