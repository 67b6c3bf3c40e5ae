// share.c: see share.h.
#include "share.h"

#include <string.h>

#include "ask.h"
#include "client.h"
#include "credit.h"

// What has no answer has any number but 0.
#define UNANSWERED_SEQ 1u
// For how long a piece that another thread asks about, or tells the end of, is waited for.
#define OTHERS_WAIT_MS WEIR_AGENT_WAIT_MS

void weir_share_asked(struct weir_state *state, uint32_t number, enum weir_msg_type type,
                      uint32_t seq) {
    struct weir_piece *piece = weir_piece_at(state, number);
    if (type == WEIR_MSG_DROP)
        return;
    piece->asked = type;
    piece->seq = seq;
}

void weir_share_write(const struct weir_state *state, uint32_t number, enum weir_msg_type type,
                      uint32_t seq, struct weir_share *message) {
    const struct weir_piece *piece = weir_piece_at(state, number);
    *message = (struct weir_share){
        .header = {(uint16_t)type, sizeof(*message), seq},
        .gpu = WEIR_NO_INDEX,
        .key = piece->key,
    };
    if (type == WEIR_MSG_DROP || piece->state == WEIR_PIECE_SOUGHT)
        return;
    message->gpu = weir_credit_index(state, piece->uuid);
    message->bytes = piece->bytes;
}

uint32_t weir_share_take(struct weir_state *state, const struct weir_share_key *key, uint32_t gpu,
                         uint64_t bytes) {
    uint32_t number =
        weir_piece_find(state, key) ? WEIR_NO_PIECE : weir_piece_new(state, key, WEIR_PIECE_ASKED);
    if (!number)
        return WEIR_NO_PIECE;
    struct weir_piece *piece = weir_piece_at(state, number);
    piece->uses = 2;
    piece->gpu = gpu;
    piece->bytes = bytes;
    piece->exported = 1;
    piece->awaited = 1;
    memcpy(piece->uuid, state->gpus[gpu].uuid, sizeof(piece->uuid));
    return number;
}

void weir_share_untake(struct weir_state *state, uint32_t number) {
    struct weir_piece *piece = weir_piece_at(state, number);
    piece->state = WEIR_PIECE_OWN;
    piece->bytes = 0;
    piece->uses = 1;
    weir_piece_release(state, number);
}

void weir_share_export(struct weir_state *state, uint32_t number) {
    weir_ask_piece(state, number, WEIR_MSG_EXPORT);
    if (weir_lock(&state->lock))
        return;
    struct weir_piece *piece = weir_piece_at(state, number);
    piece->awaited = 0;
    if (piece->state == WEIR_PIECE_ASKED && !piece->asked)
        piece->state = WEIR_PIECE_OWN;  // the question could not even be put
    weir_piece_release(state, number);
    weir_unlock(&state->lock);
    weir_share_settle(state);
}

// Finds the piece of a key, or makes it. EAGAIN where it is in another thread's hands for the
// moment; ENOSPC, EDEADLK.
static int get_piece(struct weir_state *state, const struct weir_share_key *key, uint32_t *number) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    *number = key ? weir_piece_find(state, key) : WEIR_NO_PIECE;
    if (*number) {
        const struct weir_piece *piece = weir_piece_at(state, *number);
        rc = piece->state == WEIR_PIECE_SOUGHT || piece->state == WEIR_PIECE_ENDING ? EAGAIN : 0;
        if (rc == 0)
            weir_piece_use(state, *number);
    } else {
        *number = weir_piece_new(state, key, key ? WEIR_PIECE_SOUGHT : WEIR_PIECE_OWN);
        rc = *number ? 0 : ENOSPC;
        if (*number)
            weir_piece_at(state, *number)->awaited = key != NULL;
    }
    weir_unlock(&state->lock);
    return rc;
}

uint32_t weir_share_import(struct weir_state *state, const struct weir_share_key *key) {
    uint32_t number = WEIR_NO_PIECE;
    if (weir_pieces_ready(state) != 0)
        return WEIR_NO_PIECE;
    int rc = get_piece(state, key, &number);
    for (uint64_t left_ms = OTHERS_WAIT_MS; rc == EAGAIN && left_ms > 0; left_ms--) {
        weir_share_settle(state);
        weir_sys_sleep_ms(1);
        rc = get_piece(state, key, &number);
    }
    if (rc == EAGAIN)
        rc = get_piece(state, NULL, &number);
    if (rc)
        return WEIR_NO_PIECE;
    struct weir_piece *piece = weir_piece_at(state, number);
    if (__atomic_load_n(&piece->state, __ATOMIC_RELAXED) != WEIR_PIECE_SOUGHT)
        return number;
    weir_ask_piece(state, number, WEIR_MSG_IMPORT);
    if (weir_lock(&state->lock))
        return number;
    piece->awaited = 0;
    if (piece->state == WEIR_PIECE_SOUGHT)
        piece->state = WEIR_PIECE_OWN;
    weir_unlock(&state->lock);
    return number;
}

// How much more a piece of unknown origin is to be charged, and on which GPU. Lock held.
static uint64_t missing(const struct weir_piece *piece, uint64_t bytes, uint32_t *gpu) {
    if (piece->state != WEIR_PIECE_OWN || piece->exported || piece->bytes >= bytes)
        return 0;
    if (piece->bytes)
        *gpu = piece->gpu;
    return bytes - piece->bytes;
}

CUresult weir_share_charge(struct weir_state *state, uint32_t number, uint32_t gpu,
                           uint64_t bytes) {
    struct weir_piece *piece = weir_piece_at(state, number);
    for (uint64_t obtained = 0;;) {
        if (weir_lock(&state->lock)) {
            weir_give_back(state, gpu, obtained);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        uint32_t on = gpu;
        uint64_t more = missing(piece, bytes, &on);
        int done = more == obtained && on == gpu;
        if (done && more) {
            piece->gpu = gpu;
            piece->bytes += more;
        }
        weir_unlock(&state->lock);
        if (done)
            return CUDA_SUCCESS;
        weir_give_back(state, gpu, obtained);
        gpu = on;
        obtained = more;
        if (weir_obtain(state, gpu, WEIR_KIND_IMPORTED, obtained) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

void weir_share_release(struct weir_state *state, uint32_t number) {
    if (weir_lock(&state->lock))
        return;
    weir_piece_release(state, number);
    weir_unlock(&state->lock);
    weir_share_settle(state);
}

static uint32_t claim(struct weir_state *state) {
    if (weir_lock(&state->lock))
        return WEIR_NO_PIECE;
    uint32_t number = weir_piece_claim_ending(state);
    weir_unlock(&state->lock);
    return number;
}

// Ends a claimed piece, or leaves it for later. Whether it was ended.
static int end(struct weir_state *state, uint32_t number, int told) {
    if (weir_lock(&state->lock))
        return 0;
    if (told)
        weir_piece_end(state, number);
    else
        weir_piece_end_later(state, number);
    weir_unlock(&state->lock);
    return told;
}

void weir_share_settle_slow(struct weir_state *state) {
    for (uint32_t number; (number = claim(state));) {
        int rc = weir_ask_piece(state, number, WEIR_MSG_DROP);
        if (!end(state, number, rc == 0 || rc == EDQUOT))
            return;
    }
}

void weir_share_flush(struct weir_state *state) {
    struct weir_share message;
    for (uint32_t number; (number = claim(state));) {
        if (weir_lock(&state->lock))
            return;
        int fd = state->fd;
        uint64_t cookie = state->cookie;
        weir_share_write(state, number, WEIR_MSG_DROP, weir_ask_number(state), &message);
        weir_unlock(&state->lock);
        if (!end(state, number, weir_client_send(fd, cookie, &message) == 0))
            return;
    }
}

// What is to be said of a piece to a new connection. Whether there is anything. Lock held.
static int declaration(struct weir_state *state, uint32_t number, struct weir_share *message) {
    struct weir_piece *piece = weir_piece_at(state, number);
    enum weir_msg_type type = piece->exported ? WEIR_MSG_EXPORT : WEIR_MSG_IMPORT;
    if (piece->state == WEIR_PIECE_TOLD) {
        weir_share_write(state, number, type, UNANSWERED_SEQ, message);
        message->flags = WEIR_SHARE_AGAIN;
    } else if (piece->state == WEIR_PIECE_ASKED && piece->asked) {
        // Here, not with other questions: the agent may have done what was asked, and is not to
        // take it for something that is had no more.
        weir_share_write(state, number, type, piece->seq, message);
        weir_ask_sent(state, piece->seq);
    } else {
        return 0;
    }
    return message->gpu != WEIR_NO_INDEX;
}

int weir_share_declare(struct weir_state *state, int fd, uint64_t cookie) {
    struct weir_share message;
    for (uint32_t number = 1; number <= state->pieces.used; number++) {
        if (weir_lock(&state->lock))
            return -EDEADLK;
        int due = declaration(state, number, &message);
        weir_unlock(&state->lock);
        int rc = due ? weir_client_send_patiently(fd, cookie, &message) : 0;
        if (rc)
            return rc;
    }
    message = (struct weir_share){
        .header = {WEIR_MSG_DROP, sizeof(message), UNANSWERED_SEQ},
        .flags = WEIR_SHARE_AGAIN,
    };
    return weir_client_send_patiently(fd, cookie, &message);
}
