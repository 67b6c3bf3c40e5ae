// helper.c: see helper.h.
//
// The thread is made by the host's own pthread_create, so that the libc knows it, with all signals
// blocked but those by which a libc speaks to its own threads (blocking these hangs setgid()). It
// owns the receiving side of the connection and is the only one to change connections. It never ends.
#include "helper.h"

#include <string.h>

#include "ask.h"
#include "client.h"
#include "credit.h"
#include "hooks.h"
#include "log.h"
#include "note.h"
#include "pages.h"

#define BACKOFF_MS_MIN 5u
#define BACKOFF_MS_MAX 100u
// After the agent has ended the session for a reason that will not change by itself.
#define BACKOFF_MS_SLOW 1000u
// The longest that a descriptor which the host has closed under us goes unnoticed: a wait on it still
// holds the socket. Nothing is lost meanwhile.
#define IDLE_MS 500u
#define STACK_BYTES (256u << 10)
// Signals 32 to 34 are the libcs' own.
#define SIGNALS_BLOCKED (~(7ull << 31))

static int is_final(uint32_t reason) {
    return reason == WEIR_CLOSE_PROTOCOL || reason == WEIR_CLOSE_VERSION ||
           reason == WEIR_CLOSE_IDENTITY || reason == WEIR_CLOSE_PAGE;
}

// The connection is over. Returns how long to wait before the next, in milliseconds.
static uint64_t lose(struct weir_state *state, int fd, uint64_t cookie, int rc,
                     const struct weir_incoming *last) {
    int closed = rc == -ECONNREFUSED;
    int final = closed && is_final(last->close.reason);
    weir_log(state, closed ? "the agent ended the session, reason" : "connection lost, error",
             closed ? (int64_t)last->close.reason : rc);
    weir_ask_lost(state, final);
    weir_remember_socket(-1, 0);
    weir_close_socket(fd, cookie);
    int patient = final || rc == -EPROTO || (closed && last->close.reason == WEIR_CLOSE_LIMIT);
    return patient ? BACKOFF_MS_SLOW : BACKOFF_MS_MIN;
}

// Takes over the pages of a WELCOME and lets the waiting threads' questions go.
static int take_over(struct weir_state *state, int fd, uint64_t cookie,
                     struct weir_incoming *incoming) {
    const struct weir_welcome *welcome = &incoming->welcome;
    int rc = weir_pages_map(state, incoming);
    if (rc < 0)
        return rc;
    state->session = welcome->session;
    __atomic_store_n(&state->agent_wait_ms, welcome->agent_wait_ms, __ATOMIC_RELAXED);
    if (weir_lock(&state->lock))
        return -EDEADLK;
    weir_credit_open(state, welcome->gpu_count);
    state->fd = fd;
    state->cookie = cookie;
    state->refusing = 0;
    state->link_up = 1;
    weir_unlock(&state->lock);
    weir_log(state, "connected, session", (int64_t)welcome->session);
    weir_ask_send_all(state);
    weir_notes_send(state);
    return 0;
}

static int dispatch(struct weir_state *state, const struct weir_incoming *incoming) {
    switch (incoming->header.type) {
    case WEIR_MSG_VERDICT:
        return -weir_ask_verdict(state, &incoming->verdict);
    case WEIR_MSG_ANSWER:
        return -weir_ask_answer(state, &incoming->answer);
    case WEIR_MSG_CLOSE:
        return -ECONNREFUSED;
    default:
        return -EPROTO;  // a second WELCOME
    }
}

// Hands out what the agent says until the connection ends. Returns why, as -errno.
static int serve(struct weir_state *state, int fd, uint64_t cookie,
                 struct weir_incoming *incoming) {
    for (;;) {
        int ready = weir_sys_wait_readable(fd, IDLE_MS);
        int rc = weir_client_receive(fd, cookie, incoming);
        if (rc == 0)
            rc = dispatch(state, incoming);
        if (rc == -EAGAIN && ready == 0)
            weir_notes_send(state);
        if (rc == -EAGAIN || rc == -EINTR || rc == -ECONNRESET)
            continue;  // a reset is told once, before what was sent ahead of it
        if (rc != 0)
            return rc;
    }
}

static void *run(void *argument) {
    struct weir_state *state = argument;
    struct weir_incoming incoming;
    uint64_t backoff_ms = BACKOFF_MS_MIN;
    weir_sys_name_thread("weir");
    for (;;) {
        int fd = -1;
        uint64_t cookie = 0;
        int rc = weir_client_connect(state, &fd, &cookie);
        if (rc == 0) {
            weir_remember_socket(fd, cookie);
            rc = weir_client_hello(state, fd, cookie, WEIR_AGENT_WAIT_MS, &incoming);
            if (rc == 0)
                rc = take_over(state, fd, cookie, &incoming);
            int connected = rc == 0;
            if (connected)
                rc = serve(state, fd, cookie, &incoming);
            uint64_t pause_ms = lose(state, fd, cookie, rc, &incoming);
            if (connected || pause_ms > backoff_ms)
                backoff_ms = pause_ms;
            if (connected && pause_ms == BACKOFF_MS_MIN)
                continue;
        }
        weir_sys_sleep_ms(backoff_ms);
        backoff_ms = backoff_ms * 2 < BACKOFF_MS_MAX ? backoff_ms * 2 : BACKOFF_MS_MAX;
    }
    return NULL;
}
