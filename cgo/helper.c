// helper.c: see helper.h.
//
// The thread is made by the host's own pthread_create, so that the libc knows it, with all signals
// blocked but those by which a libc speaks to its own threads (blocking these hangs setgid()). It
// owns the receiving side of the connection and is the only one to change connections. It ends with
// the process, or when the agent has released that.
//
// The first connection is opened by the thread that first needs the agent, in its own time: a
// thread takes longer to make than all that, and where many processes start at once each has to
// wait for the others'. Until the helper is there nobody reads what the agent says.
#include "helper.h"

#include <string.h>

#include "ask.h"
#include "attend.h"
#include "client.h"
#include "credit.h"
#include "hooks.h"
#include "log.h"
#include "movable.h"
#include "mover.h"
#include "note.h"
#include "pages.h"
#include "share.h"
#include "used.h"

#define BACKOFF_MS_MIN 5u
#define BACKOFF_MS_MAX 100u
// The same where the agent has ended the session, or is not to be understood; and at most, while it
// repeats that it will have nothing to do with this process.
#define BACKOFF_SLOW_MS 1000u
#define BACKOFF_FINAL_MS 30000u
// The longest that a descriptor which the host has closed under us goes unnoticed: a wait on it
// still holds the socket. Nothing is lost meanwhile.
#define IDLE_NS 500000000u
#define STACK_BYTES (256u << 10)
// The longest that a thread of the host's stays with the first connection; the helper goes on.
#define BEGIN_WAIT_MS 100u
// Signals 32 to 34 are the libcs' own.
#define SIGNALS_BLOCKED (~(7ull << 31))

// How far the helper has come, in the state's `helper`.
enum helper {
    HELPER_NONE = 0,
    HELPER_TAKEN = 1,  // there is one, or a thread is opening the first connection
    HELPER_DUE = 2,    // the first connection has been begun: a helper is to go on with it
};

// How a connection ended, as far as what comes next depends on that.
enum ending_bits {
    ENDED = 1 << 0,
    WAS_UP = 1 << 1,
    RELEASED = 1 << 2,
    FINAL = 1 << 3,
    UNWELCOME = 1 << 4,
};

// Reasons for which the agent will have nothing more to do with this process.
static int is_final(int rc, const struct weir_incoming *last) {
    uint32_t reason = last->close.reason;
    return rc == WEIR_ENDED_BY_AGENT &&
           (reason == WEIR_CLOSE_VERSION || reason == WEIR_CLOSE_IDENTITY ||
            reason == WEIR_CLOSE_PAGE);
}

// Whether the agent has released this process: they do not understand each other, and the
// configuration has it that such a process runs without caps.
static int is_released(int rc, const struct weir_incoming *last) {
    if (rc == WEIR_ENDED_BY_AGENT)
        return last->close.reason == WEIR_CLOSE_VERSION && (last->close.flags & WEIR_CLOSE_PASS);
    return rc == WEIR_BAD_PAGES && (last->welcome.flags & WEIR_WELCOME_PASS);
}

// Whether an agent is there, and it is no use to come back at once.
static int is_unwelcome(int rc, const struct weir_incoming *last) {
    return rc == -EPROTO || rc == WEIR_BAD_PAGES ||
           (rc == WEIR_ENDED_BY_AGENT && last->close.reason != WEIR_CLOSE_SHUTDOWN);
}

// Takes over the pages of a WELCOME, declares what is shared if this is not the first connection,
// and lets the waiting threads' questions go.
static int take_over(struct weir_state *state, int fd, uint64_t cookie,
                     struct weir_incoming *incoming) {
    const struct weir_welcome *welcome = &incoming->welcome;
    int rc = weir_pages_map(state, incoming);
    if (rc == WEIR_BAD_PAGES)
        weir_note_bad_page(state, fd, cookie);
    if (rc < 0)
        return rc;
    int first = state->session == 0;
    state->session = welcome->session;
    __atomic_store_n(&state->plain, (welcome->flags & WEIR_WELCOME_PLAIN) != 0, __ATOMIC_RELAXED);
    __atomic_store_n(&state->agent_wait_ms, welcome->agent_wait_ms, __ATOMIC_RELAXED);
    if (weir_lock(&state->lock))
        return -EDEADLK;
    weir_credit_open(state, welcome->gpu_count);
    state->fd = fd;
    state->cookie = cookie;
    state->refusing = 0;
    weir_unlock(&state->lock);
    rc = first ? 0 : weir_movables_declare(state, fd, cookie);
    if (rc == 0 && !first)
        rc = weir_share_declare(state, fd, cookie);
    if (rc < 0)
        return rc;
    if (weir_lock(&state->lock))
        return -EDEADLK;
    state->declaring = 0;
    __atomic_store_n(&state->link_up, 1, __ATOMIC_RELAXED);
    weir_unlock(&state->lock);
    weir_log(state, "connected, session", (int64_t)welcome->session);
    weir_attend_begin(state);
    weir_share_flush(state);
    weir_movables_tell(state);
    weir_ask_send_all(state);
    weir_notes_send(state);
    return 0;
}

int weir_helper_dispatch(struct weir_state *state, const struct weir_incoming *incoming) {
    switch (incoming->header.type) {
    case WEIR_MSG_VERDICT:
        return -weir_ask_verdict(state, &incoming->verdict);
    case WEIR_MSG_ANSWER:
        return -weir_ask_answer(state, &incoming->answer);
    case WEIR_MSG_MEASURED:
        return -weir_ask_measured(state, &incoming->measured);
    case WEIR_MSG_SHARED:
        return -weir_ask_shared(state, &incoming->shared);
    case WEIR_MSG_LOOK:
        return weir_attend_look(state, &incoming->turn);
    case WEIR_MSG_MOVE:
        return weir_mover_take(state, &incoming->move);
    case WEIR_MSG_CLOSE:
        return WEIR_ENDED_BY_AGENT;
    default:
        return -EPROTO;  // a second WELCOME
    }
}

// Hands out what the agent says, and attends to GPUs, until the connection ends. Returns why, as
// -errno.
static int serve(struct weir_state *state, int fd, uint64_t cookie,
                 struct weir_incoming *incoming) {
    uint64_t idle_ns = weir_busy_clock();
    for (;;) {
        uint64_t ns = weir_attend(state), moves_ns = weir_mover_step(state);
        uint64_t uses_ns = weir_used_step(state);
        ns = moves_ns < ns ? moves_ns : ns;
        ns = uses_ns < ns ? uses_ns : ns;
        int ready = weir_sys_wait(fd, POLLIN, ns < IDLE_NS ? ns : IDLE_NS);
        int idle = ready == 0 && weir_busy_clock() - idle_ns >= IDLE_NS;
        if (ready == 0 && !idle)
            continue;
        int rc = weir_client_receive(fd, cookie, incoming);
        if (rc == 0)
            rc = weir_helper_dispatch(state, incoming);
        if (idle) {
            idle_ns = weir_busy_clock();
            weir_notes_send(state);
            weir_share_flush(state);
            weir_movables_tell(state);
        }
        if (rc == -EAGAIN || rc == -EINTR || rc == -ECONNRESET)
            continue;  // a reset is told once, before what was sent ahead of it
        if (rc != 0)
            return rc;
    }
}

// Connects and says HELLO. 0 once the agent has it, or -errno.
static int begin(struct weir_state *state, int *fd, uint64_t *cookie) {
    int rc = weir_client_connect(state, fd, cookie);
    if (rc < 0)
        return rc;
    weir_remember_socket(*fd, *cookie);
    return weir_client_hello(state, *fd, *cookie);
}

// Ends a connection for this reason, -errno. Returns enum ending_bits.
static uint32_t finish(struct weir_state *state, int fd, uint64_t cookie, int rc,
                       struct weir_incoming *last) {
    uint32_t bits = ENDED;
    if (is_released(rc, last))
        bits |= RELEASED;
    if (is_final(rc, last))
        bits |= FINAL;
    if (is_unwelcome(rc, last))
        bits |= UNWELCOME;
    if (bits & RELEASED)
        __atomic_store_n(&state->mode, WEIR_MODE_PASS, __ATOMIC_RELEASE);
    weir_ask_lost(state, bits & RELEASED ? WEIR_LOSS_RELEASED
                         : bits & FINAL  ? WEIR_LOSS_FOR_GOOD
                                         : WEIR_LOSS_FOR_NOW);
    weir_attend_end(state);
    weir_mover_lost(state);
    weir_remember_socket(-1, 0);
    weir_close_socket(fd, cookie);
    if (rc == WEIR_ENDED_BY_AGENT) {
        last->close.text[sizeof(last->close.text) - 1] = 0;
        weir_log(state, last->close.text, (int64_t)last->close.reason);
    }
    return bits;
}

// One connection from its beginning to its end, or from where the thread that began it has left it.
// *rc: why it ended, as -errno.
static uint32_t attempt(struct weir_state *state, int *rc, struct weir_incoming *incoming) {
    int fd = -1;
    uint64_t cookie = 0;
    if (state->begun == WEIR_BEGUN_NOT) {
        *rc = begin(state, &fd, &cookie);
    } else {
        fd = state->fd;
        cookie = state->cookie;
        *rc = 0;
    }
    int up = state->begun == WEIR_BEGUN_UP;
    state->begun = WEIR_BEGUN_NOT;
    if (*rc == 0 && !up) {
        *rc = weir_client_welcome(fd, cookie, WEIR_AGENT_WAIT_MS, incoming);
        if (*rc == 0)
            *rc = take_over(state, fd, cookie, incoming);
        up = *rc == 0;
    }
    if (up)
        *rc = serve(state, fd, cookie, incoming);
    return finish(state, fd, cookie, *rc, incoming) | (up ? WAS_UP : 0);
}

static void *run(void *argument) {
    struct weir_state *state = argument;
    struct weir_incoming incoming;
    uint64_t backoff_ms = BACKOFF_MS_MIN;
    uint32_t bits = state->begun_bits;
    int rc = state->begun_rc, logged = 0;
    weir_sys_name_thread("weir");
    for (;; bits = attempt(state, &rc, &incoming)) {
        if (!bits)
            continue;
        if ((bits & WAS_UP) || rc != logged)
            weir_log(state, "no connection to the agent, error", rc);
        logged = rc;
        if (bits & RELEASED)
            return NULL;
        uint64_t least_ms = bits & UNWELCOME ? BACKOFF_SLOW_MS : BACKOFF_MS_MIN;
        uint64_t most_ms = bits & UNWELCOME ? BACKOFF_SLOW_MS : BACKOFF_MS_MAX;
        if (bits & FINAL)
            most_ms = BACKOFF_FINAL_MS;
        if ((bits & WAS_UP) || backoff_ms < least_ms)
            backoff_ms = least_ms;
        if (backoff_ms > most_ms)
            backoff_ms = most_ms;
        weir_sys_sleep_ms(backoff_ms);
        backoff_ms *= 2;
    }
    return NULL;
}

// What is used of the host's libc: its types are opaque and no longer than this on any of them.
union thread_attributes {
    uint64_t words[32];
};
typedef uintptr_t thread_id;
typedef int thread_create_fn(thread_id *, const union thread_attributes *, void *(*)(void *),
                             void *);
typedef int thread_detach_fn(thread_id);
typedef int attributes_init_fn(union thread_attributes *);
typedef int attributes_stack_fn(union thread_attributes *, size_t);
typedef int *errno_location_fn(void);

enum { CREATE, DETACH, INIT, SET_STACK, ERRNO, HOST_FUNCTIONS };

// Makes the thread with a small stack, or, where the host needs more (large thread-local data),
// with the usual one.
static int make_thread(struct weir_state *state, const struct weir_host_name *host) {
    thread_create_fn *create = (thread_create_fn *)host[CREATE].function;
    thread_detach_fn *detach = (thread_detach_fn *)host[DETACH].function;
    attributes_init_fn *init = (attributes_init_fn *)host[INIT].function;
    attributes_stack_fn *set_stack = (attributes_stack_fn *)host[SET_STACK].function;
    if (!create || !detach)
        return ENOTSUP;
    union thread_attributes attributes;
    thread_id thread;
    int rc = EINVAL;
    if (init && set_stack && init(&attributes) == 0 && set_stack(&attributes, STACK_BYTES) == 0)
        rc = create(&thread, &attributes, run, state);
    if (rc != 0)
        rc = create(&thread, NULL, run, state);
    if (rc == 0)
        detach(thread);
    return rc;
}

static int take(struct weir_state *state, uint32_t from) {
    return __atomic_compare_exchange_n(&state->helper, &from, HELPER_TAKEN, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

int weir_helper_start(struct weir_state *state) {
    uint32_t helper = __atomic_load_n(&state->helper, __ATOMIC_ACQUIRE);
    if (helper == HELPER_TAKEN || !take(state, helper))
        return 0;
    struct weir_host_name host[HOST_FUNCTIONS] = {
        [CREATE] = {.name = "pthread_create"},  [DETACH] = {.name = "pthread_detach"},
        [INIT] = {.name = "pthread_attr_init"}, [SET_STACK] = {.name = "pthread_attr_setstacksize"},
        [ERRNO] = {.name = "__errno_location"},
    };
    weir_host_functions(host, HOST_FUNCTIONS);
    errno_location_fn *errno_location = (errno_location_fn *)host[ERRNO].function;
    int host_errno = errno_location ? *errno_location() : 0;
    uint64_t blocked = SIGNALS_BLOCKED, mask;
    weir_sys_signal_mask(&blocked, &mask);
    int rc = make_thread(state, host);
    weir_sys_signal_mask(&mask, NULL);
    if (errno_location)
        *errno_location() = host_errno;
    if (rc != 0) {
        weir_log(state, "no helper thread, error", rc);
        __atomic_store_n(&state->helper, helper, __ATOMIC_RELEASE);
    }
    return rc;
}

// The first connection as far as it comes at once.
static void open_first(struct weir_state *state) {
    struct weir_incoming incoming;
    int fd = -1;
    uint64_t cookie = 0;
    int rc = begin(state, &fd, &cookie);
    if (rc == 0)
        rc = weir_client_welcome(fd, cookie, BEGIN_WAIT_MS, &incoming);
    if (rc == 0)
        rc = take_over(state, fd, cookie, &incoming);
    state->begun_rc = rc;
    if (rc == 0) {
        state->begun = WEIR_BEGUN_UP;
    } else if (rc == -ETIMEDOUT && weir_lock(&state->lock) == 0) {
        state->begun = WEIR_BEGUN_HELLO;
        state->fd = fd;
        state->cookie = cookie;
        weir_unlock(&state->lock);
    } else {
        state->begun_bits = finish(state, fd, cookie, rc, &incoming);
    }
}

void weir_helper_begin(struct weir_state *state) {
    if (__atomic_load_n(&state->helper, __ATOMIC_ACQUIRE) != HELPER_NONE ||
        !take(state, HELPER_NONE))
        return;
    // A handler that leaves by a jump would leave nobody to go on.
    uint64_t blocked = SIGNALS_BLOCKED, mask;
    weir_sys_signal_mask(&blocked, &mask);
    open_first(state);
    __atomic_store_n(&state->helper, HELPER_DUE, __ATOMIC_RELEASE);
    weir_sys_signal_mask(&mask, NULL);
    if (weir_ask_waits(state))
        weir_helper_start(state);
}
