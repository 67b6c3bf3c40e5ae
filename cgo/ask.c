// ask.c: see ask.h.
#include "ask.h"

#include "client.h"
#include "credit.h"
#include "helper.h"
#include "movable.h"
#include "share.h"

// How long an answer is waited for where an estimate can be given instead.
#define REPORT_WAIT_MS 500u
// What a QUERY is for, in its detail.
#define FOR_REPORT 1u

_Static_assert((WEIR_ASKS_MAX & (WEIR_ASKS_MAX - 1)) == 0, "places are part of sequence numbers");

static uint32_t place_of(const struct weir_state *state, const struct weir_ask *ask) {
    return (uint32_t)(ask - state->asks);
}

uint32_t weir_ask_number(struct weir_state *state) {
    // Never 0, and not met again before 2^32 / WEIR_ASKS_MAX questions.
    state->ask_round += WEIR_ASKS_MAX;
    if (!state->ask_round)
        state->ask_round = WEIR_ASKS_MAX;
    return state->ask_round;
}

// A place for a new question, or NULL. Lock held.
static struct weir_ask *new_ask(struct weir_state *state) {
    struct weir_ask *ask;
    if (state->ask_free) {
        ask = &state->asks[state->ask_free - 1];
        state->ask_free = ask->next;
    } else if (state->asks_used < WEIR_ASKS_MAX) {
        ask = &state->asks[state->asks_used];
        __atomic_store_n(&state->asks_used, state->asks_used + 1, __ATOMIC_RELAXED);
    } else {
        return NULL;
    }
    ask->seq = weir_ask_number(state) | place_of(state, ask);
    return ask;
}

// Lock held. The thread is woken after the lock is left; it may have left its place by then, which
// only wakes someone else for nothing.
static void finish(struct weir_ask *ask, uint32_t outcome) {
    __atomic_store_n(&ask->state, outcome, __ATOMIC_RELEASE);
}

static void free_ask(struct weir_state *state, struct weir_ask *ask) {
    finish(ask, WEIR_ASK_FREE);
    ask->next = state->ask_free;
    state->ask_free = place_of(state, ask) + 1;
}

static void wake(struct weir_ask *ask) {
    weir_sys_futex_wake(&ask->state, 1);
}

union question {
    struct weir_header header;
    struct weir_request request;
    struct weir_query query;
    struct weir_measure measure;
    struct weir_share share;
};

static int is_of_piece(const struct weir_ask *ask) {
    return ask->type == WEIR_MSG_EXPORT || ask->type == WEIR_MSG_IMPORT ||
           ask->type == WEIR_MSG_DROP;
}

static int is_for_movable(const struct weir_ask *ask) {
    return ask->type == WEIR_MSG_REQUEST && ask->detail == WEIR_KIND_MOVABLE;
}

static int is_of_unlisted_gpu(const struct weir_state *state, const struct weir_ask *ask) {
    return !is_of_piece(ask) && state->gpus[ask->gpu].index == WEIR_NO_INDEX;
}

// A question for a report, which can give an estimate instead of the answer.
static int is_for_report(const struct weir_ask *ask) {
    return ask->type == WEIR_MSG_QUERY && ask->detail == FOR_REPORT;
}

// A question of whether the agent lists a GPU.
static int is_for_list(const struct weir_ask *ask) {
    return ask->type == WEIR_MSG_QUERY && ask->detail != FOR_REPORT;
}

// Lock held.
static void write_question(const struct weir_state *state, const struct weir_ask *ask,
                           union question *question) {
    uint32_t index = is_of_piece(ask) ? 0 : state->gpus[ask->gpu].index;
    struct weir_header header = {(uint16_t)ask->type, 0, ask->seq};
    switch (ask->type) {
    case WEIR_MSG_REQUEST:
        header.bytes = sizeof(question->request);
        question->request = (struct weir_request){
            .header = header, .gpu = index, .kind = ask->detail, .bytes = ask->bytes};
        if (is_for_movable(ask))
            question->request.id = weir_movable_at(state->swap, ask->piece)->id;
        return;
    case WEIR_MSG_QUERY:
        header.bytes = sizeof(question->query);
        question->query = (struct weir_query){header, index, 0};
        return;
    case WEIR_MSG_MEASURE:
        header.bytes = sizeof(question->measure);
        question->measure = (struct weir_measure){header, index, ask->detail, ask->bytes};
        return;
    default:
        weir_share_write(state, ask->piece, ask->type, ask->seq, &question->share);
    }
}

// Sends a question that was not sent on the present connection, if there is one. Where the agent
// does not take it now, or the descriptor is ours no more, it stays unsent and is tried again.
static void send_ask(struct weir_state *state, struct weir_ask *ask) {
    union question question;
    if (weir_lock(&state->lock))
        return;
    int due = ask->state == WEIR_ASK_WAITING && state->link_up && !ask->sent;
    // What GPUs the agent lists it has said with its WELCOME.
    int unlisted = due && is_of_unlisted_gpu(state, ask);
    if (unlisted || (due && is_for_list(ask))) {
        finish(ask, unlisted ? WEIR_ASK_UNKNOWN : WEIR_ASK_ANSWERED);
        weir_unlock(&state->lock);
        wake(ask);
        return;
    }
    int fd = state->fd;
    uint64_t cookie = state->cookie;
    if (due) {
        ask->sent = 1;
        write_question(state, ask, &question);
    }
    weir_unlock(&state->lock);
    if (!due || weir_client_send(fd, cookie, &question) == 0)
        return;
    if (weir_lock(&state->lock))
        return;
    if (ask->seq == question.header.seq && state->cookie == cookie)
        ask->sent = 0;
    weir_unlock(&state->lock);
}

// An allocation waits for agent_wait each time. A report waits long only where nothing was ever
// heard of the agent, and for all reports of the process together not longer than that.
static uint64_t longest_wait_ms(const struct weir_state *state, const struct weir_ask *question) {
    int report = is_for_report(question);
    if (__atomic_load_n(&state->control, __ATOMIC_ACQUIRE)) {
        uint64_t wait_ms = __atomic_load_n(&state->agent_wait_ms, __ATOMIC_RELAXED);
        return report && wait_ms > REPORT_WAIT_MS ? REPORT_WAIT_MS : wait_ms;
    }
    if (!report)
        return WEIR_AGENT_WAIT_MS;
    uint64_t waited = weir_sys_now_ms() - __atomic_load_n(&state->started_ms, __ATOMIC_RELAXED);
    return waited < WEIR_AGENT_WAIT_MS ? WEIR_AGENT_WAIT_MS - waited : 0;
}

// Waits for an outcome, in slices, since a question may have to be sent again and a helper may have
// to be made. No slice counts for more than its length: a process that was stopped for long still
// gives its helper the time to read the answer.
static void wait_for(struct weir_state *state, struct weir_ask *ask, uint64_t left_ms) {
    for (;;) {
        int started = __atomic_load_n(&state->mode, __ATOMIC_ACQUIRE) != WEIR_MODE_STARTING;
        if (started)
            weir_helper_begin(state);
        send_ask(state, ask);
        if (__atomic_load_n(&ask->state, __ATOMIC_ACQUIRE) != WEIR_ASK_WAITING)
            return;
        if (started)
            weir_helper_start(state);
        uint64_t slice_ms = left_ms < WEIR_WAIT_MS_MAX ? left_ms : WEIR_WAIT_MS_MAX;
        uint64_t before = weir_sys_now_ms();
        weir_sys_futex_wait(&ask->state, WEIR_ASK_WAITING, slice_ms * 1000);
        if (!left_ms || __atomic_load_n(&ask->state, __ATOMIC_ACQUIRE) != WEIR_ASK_WAITING)
            return;
        uint64_t passed_ms = weir_sys_now_ms() - before;
        left_ms -= passed_ms < slice_ms ? passed_ms : slice_ms;
    }
}

static int error_of(uint32_t outcome) {
    switch (outcome) {
    case WEIR_ASK_GRANTED:
    case WEIR_ASK_ANSWERED:
        return 0;
    case WEIR_ASK_REFUSED:
        return EDQUOT;
    case WEIR_ASK_UNKNOWN:
        return ENODEV;
    default:
        return EHOSTUNREACH;  // still waiting at the deadline, or lost
    }
}

// Puts a question into a place of its own. 0 and *out; EDQUOT, EAGAIN where all are taken, EDEADLK.
static int put_question(struct weir_state *state, const struct weir_ask *question,
                        struct weir_ask **out) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    struct weir_ask *ask = state->refusing ? NULL : new_ask(state);
    rc = state->refusing ? EDQUOT : EAGAIN;
    if (ask) {
        ask->type = question->type;
        ask->gpu = question->gpu;
        ask->detail = question->detail;
        ask->piece = question->piece;
        ask->bytes = question->bytes;
        ask->sent = 0;
        ask->left = 0;
        if (is_of_piece(ask))
            weir_share_asked(state, ask->piece, ask->type, ask->seq);
        finish(ask, WEIR_ASK_WAITING);
        rc = 0;
    }
    weir_unlock(&state->lock);
    *out = ask;
    return rc;
}

// The thread leaves its place. What is movable and not granted is out of the book then, but where
// an answer may yet come: then the place waits for it. Lock held.
static void leave(struct weir_state *state, struct weir_ask *ask, struct weir_ask *outcome) {
    *outcome = *ask;
    int movable = is_for_movable(ask), granted = ask->state == WEIR_ASK_GRANTED;
    ask->left = movable && ask->state == WEIR_ASK_WAITING && ask->sent;
    if (ask->left)
        return;
    if (movable && !granted)
        weir_movable_unwanted(state->swap, ask->piece);
    free_ask(state, ask);
}

// The answer to a question that its thread has left. Lock held.
static void answer_left(struct weir_state *state, struct weir_ask *ask, int granted) {
    if (granted)
        weir_movable_granted(state->swap, ask->piece);
    weir_movable_unwanted(state->swap, ask->piece);
    free_ask(state, ask);
}

// Puts a question and waits for what comes of it. `outcome`: the place as it was at the end.
static int ask_and_wait(struct weir_state *state, const struct weir_ask *question,
                        struct weir_ask *outcome) {
    uint64_t left_ms = longest_wait_ms(state, question);
    struct weir_ask *ask = NULL;
    int rc;
    while ((rc = put_question(state, question, &ask)) == EAGAIN && left_ms-- > 0)
        weir_sys_sleep_ms(1);
    if (rc)
        return rc;
    wait_for(state, ask, left_ms);
    rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    leave(state, ask, outcome);
    weir_unlock(&state->lock);
    return error_of(outcome->state);
}

int weir_ask_credit(struct weir_state *state, uint32_t gpu, uint32_t kind, uint64_t bytes) {
    struct weir_ask question = {
        .type = WEIR_MSG_REQUEST, .gpu = gpu, .detail = kind, .bytes = bytes};
    struct weir_ask outcome;
    return ask_and_wait(state, &question, &outcome);
}

int weir_ask_movable(struct weir_state *state, uint32_t number) {
    const struct weir_movable *movable = weir_movable_at(state->swap, number);
    struct weir_ask question = {.type = WEIR_MSG_REQUEST,
                                .gpu = movable->gpu,
                                .detail = WEIR_KIND_MOVABLE,
                                .piece = number,
                                .bytes = movable->bytes};
    struct weir_ask outcome = {.left = 0};
    int rc = ask_and_wait(state, &question, &outcome);
    // Where the question was not even put, nobody has taken it out of the book.
    if (rc && !outcome.type && weir_lock(&state->lock) == 0) {
        weir_movable_unwanted(state->swap, number);
        weir_unlock(&state->lock);
    }
    return rc;
}

int weir_ask_room(struct weir_state *state, uint32_t gpu, struct weir_room *room) {
    struct weir_ask question = {.type = WEIR_MSG_QUERY, .gpu = gpu, .detail = FOR_REPORT}, outcome;
    int rc = ask_and_wait(state, &question, &outcome);
    if (rc)
        return rc;
    *room = (struct weir_room){outcome.answer_bytes, outcome.cap_bytes, outcome.used_bytes};
    return 0;
}

int weir_ask_listed(struct weir_state *state, uint32_t gpu) {
    struct weir_ask question = {.type = WEIR_MSG_QUERY, .gpu = gpu}, outcome;
    return ask_and_wait(state, &question, &outcome);
}

int weir_ask_measure(struct weir_state *state, uint32_t gpu, uint32_t contexts,
                     uint64_t other_bytes, uint64_t *context_bytes) {
    struct weir_ask question = {
        .type = WEIR_MSG_MEASURE, .gpu = gpu, .detail = contexts, .bytes = other_bytes};
    struct weir_ask outcome;
    int rc = ask_and_wait(state, &question, &outcome);
    if (rc == 0)
        *context_bytes = outcome.answer_bytes;
    return rc;
}

int weir_ask_piece(struct weir_state *state, uint32_t piece, enum weir_msg_type type) {
    struct weir_ask question = {.type = type, .piece = piece}, outcome;
    int rc = ask_and_wait(state, &question, &outcome);
    // What was sent arrives, whether or not an answer has come in time; and the next connection
    // does without.
    int over = rc == EHOSTUNREACH && (outcome.sent || outcome.state == WEIR_ASK_LOST);
    return type == WEIR_MSG_DROP && over ? 0 : rc;
}

// The place where a thread waits for `seq`, or NULL. Lock held.
static struct weir_ask *find(struct weir_state *state, uint32_t seq) {
    struct weir_ask *ask = &state->asks[seq & (WEIR_ASKS_MAX - 1)];
    return ask->seq == seq && ask->state == WEIR_ASK_WAITING ? ask : NULL;
}

void weir_ask_sent(struct weir_state *state, uint32_t seq) {
    struct weir_ask *ask = find(state, seq);
    if (ask)
        ask->sent = 1;
}

int weir_ask_verdict(struct weir_state *state, const struct weir_verdict *verdict) {
    int granted = verdict->verdict == WEIR_GRANTED;
    if (weir_lock(&state->lock))
        return 0;
    struct weir_ask *ask = find(state, verdict->header.seq);
    int fits = !ask || (ask->type == WEIR_MSG_REQUEST &&
                        (!granted || verdict->granted_bytes == ask->bytes));
    if (ask && fits && ask->left) {
        answer_left(state, ask, granted);
    } else if (ask && fits && granted) {
        if (is_for_movable(ask))
            weir_movable_granted(state->swap, ask->piece);
        else
            weir_credit_grant(state, ask->gpu, verdict->granted_bytes);
        finish(ask, WEIR_ASK_GRANTED);
    } else if (ask && fits) {
        finish(ask, verdict->verdict == WEIR_NO_SUCH_GPU ? WEIR_ASK_UNKNOWN : WEIR_ASK_REFUSED);
    } else if (fits && granted) {
        weir_credit_grant_late(state, verdict->gpu, verdict->granted_bytes);
    }
    weir_unlock(&state->lock);
    if (ask)
        wake(ask);
    weir_movables_tell(state);
    return fits ? 0 : EPROTO;
}

// Hands a thread the figures that it asked for with a question of this type.
static int answer_with(struct weir_state *state, uint32_t seq, enum weir_msg_type type,
                       struct weir_room room) {
    if (weir_lock(&state->lock))
        return 0;
    struct weir_ask *ask = find(state, seq);
    int fits = !ask || ask->type == type;
    if (ask && fits) {
        ask->answer_bytes = room.free_bytes;
        ask->cap_bytes = room.cap_bytes;
        ask->used_bytes = room.used_bytes;
        finish(ask, WEIR_ASK_ANSWERED);
    }
    weir_unlock(&state->lock);
    if (ask)
        wake(ask);
    return fits ? 0 : EPROTO;
}

int weir_ask_answer(struct weir_state *state, const struct weir_answer *answer) {
    return answer_with(
        state, answer->header.seq, WEIR_MSG_QUERY,
        (struct weir_room){answer->free_bytes, answer->cap_bytes, answer->used_bytes});
}

int weir_ask_measured(struct weir_state *state, const struct weir_measured *measured) {
    return answer_with(state, measured->header.seq, WEIR_MSG_MEASURE,
                       (struct weir_room){.free_bytes = measured->context_bytes});
}

int weir_ask_shared(struct weir_state *state, const struct weir_shared *shared) {
    if (weir_lock(&state->lock))
        return 0;
    struct weir_ask *ask = find(state, shared->header.seq);
    int rc = 0;
    if (ask && !is_of_piece(ask))
        rc = EPROTO;
    else if (ask && ask->type != WEIR_MSG_DROP)
        rc = weir_piece_answered(state, ask->piece, shared);
    else if (!ask)
        rc = weir_piece_answered_late(state, shared);
    if (ask && rc == 0)
        finish(ask, WEIR_ASK_ANSWERED);
    weir_unlock(&state->lock);
    if (ask)
        wake(ask);
    return rc;
}

int weir_ask_waits(struct weir_state *state) {
    if (weir_lock(&state->lock))
        return 0;
    int waits = 0;
    for (uint32_t i = 0; i < state->asks_used && !waits; i++)
        waits = state->asks[i].state == WEIR_ASK_WAITING;
    weir_unlock(&state->lock);
    return waits;
}

void weir_ask_send_all(struct weir_state *state) {
    uint32_t used = __atomic_load_n(&state->asks_used, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < used; i++) {
        struct weir_ask *ask = &state->asks[i];
        if (__atomic_load_n(&ask->state, __ATOMIC_ACQUIRE) == WEIR_ASK_WAITING)
            send_ask(state, ask);
    }
}

// What becomes of a question whose connection has ended. Lock held.
static void lose(struct weir_state *state, struct weir_ask *ask, enum weir_loss loss) {
    ask->sent = 0;
    if (ask->left) {
        answer_left(state, ask, 0);
    } else if (loss == WEIR_LOSS_RELEASED && ask->type == WEIR_MSG_REQUEST) {
        if (is_for_movable(ask))
            weir_movable_granted(state->swap, ask->piece);
        else
            weir_credit_grant(state, ask->gpu, ask->bytes);
        finish(ask, WEIR_ASK_GRANTED);
    } else if (loss != WEIR_LOSS_FOR_NOW) {
        finish(ask, WEIR_ASK_REFUSED);
    } else if (ask->type == WEIR_MSG_DROP || (is_for_report(ask) && state->control)) {
        finish(ask, WEIR_ASK_LOST);
    }
}

void weir_ask_lost(struct weir_state *state, enum weir_loss loss) {
    if (weir_lock(&state->lock))
        return;
    __atomic_store_n(&state->link_up, 0, __ATOMIC_RELAXED);
    state->declaring = 0;
    state->refusing = loss != WEIR_LOSS_FOR_NOW;
    for (uint32_t i = 0; i < state->asks_used; i++)
        if (state->asks[i].state == WEIR_ASK_WAITING)
            lose(state, &state->asks[i], loss);
    uint32_t used = state->asks_used;
    weir_unlock(&state->lock);
    for (uint32_t i = 0; i < used; i++)
        if (__atomic_load_n(&state->asks[i].state, __ATOMIC_ACQUIRE) != WEIR_ASK_FREE)
            wake(&state->asks[i]);
}
