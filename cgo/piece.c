// piece.c: see piece.h.
#include "piece.h"

#include <string.h>

#include "credit.h"
#include "note.h"
#include "slab.h"

// More than any GPU has: a size that the agent cannot mean.
#define PIECE_BYTES_MAX ((uint64_t)1 << 50)

static const struct weir_slab_shape shape = {
    .record_bytes = sizeof(struct weir_piece),
    .records_max = WEIR_SHARES_MAX,
    .chains = WEIR_SHARES_MAX / 4,
};
_Static_assert(sizeof(struct weir_piece) % 8 == 0, "records of a slab");

int weir_pieces_ready(struct weir_state *state) {
    return weir_slab_ready(&state->pieces, &shape, &state->lock);
}

struct weir_piece *weir_piece_at(const struct weir_state *state, uint32_t number) {
    return weir_slab_at(&state->pieces, &shape, number);
}

static uint64_t hash_of(const struct weir_share_key *key) {
    uint64_t words[4];
    memcpy(words, key->bytes, sizeof(words));
    return weir_slab_hash(words[0] ^ weir_slab_hash(words[1]) ^ words[2] * 3 ^ words[3] * 5);
}

uint32_t weir_piece_find(const struct weir_state *state, const struct weir_share_key *key) {
    uint32_t number = weir_slab_first(&state->pieces, &shape, hash_of(key));
    while (number) {
        const struct weir_piece *piece = weir_piece_at(state, number);
        if (piece->keyed && memcmp(&piece->key, key, sizeof(*key)) == 0)
            return number;
        number = weir_slab_next(&state->pieces, &shape, number);
    }
    return WEIR_NO_PIECE;
}

uint32_t weir_piece_new(struct weir_state *state, const struct weir_share_key *key,
                        enum weir_piece_state as) {
    static const struct weir_share_key none;
    uint32_t number = weir_slab_new(&state->pieces, &shape, hash_of(key ? key : &none));
    if (!number) {
        weir_note_bound(state, WEIR_BOUND_SHARES, WEIR_SHARES_MAX);
        return WEIR_NO_PIECE;
    }
    struct weir_piece *piece = weir_piece_at(state, number);
    piece->state = as;
    piece->uses = 1;
    piece->keyed = key != NULL;
    if (key)
        piece->key = *key;
    return number;
}

static void drop(struct weir_state *state, uint32_t number) {
    weir_slab_free(&state->pieces, &shape, hash_of(&weir_piece_at(state, number)->key), number);
}

// Gives back what is charged here.
static void give(struct weir_state *state, struct weir_piece *piece) {
    if (piece->bytes)
        weir_credit_give(state, piece->gpu, piece->bytes);
    piece->bytes = 0;
}

static void push_ending(struct weir_state *state, uint32_t number) {
    struct weir_piece *piece = weir_piece_at(state, number);
    piece->ending = state->pieces_ending;
    __atomic_store_n(&state->pieces_ending, number, __ATOMIC_RELAXED);
}

void weir_piece_use(struct weir_state *state, uint32_t number) {
    weir_piece_at(state, number)->uses++;
}

void weir_piece_release(struct weir_state *state, uint32_t number) {
    struct weir_piece *piece = weir_piece_at(state, number);
    if (--piece->uses)
        return;
    if (piece->state == WEIR_PIECE_OWN && !piece->asked) {
        give(state, piece);
        drop(state, number);
        return;
    }
    // The bytes of an export that is not answered may be the container's by now: until it is, they
    // stay here. Any other piece that the agent may know of is told to have ended, or left out of
    // the next declaration.
    if (piece->state == WEIR_PIECE_OWN)
        give(state, piece);
    int unanswered = piece->asked != 0;
    int unheard = !state->link_up && !state->declaring;
    piece->state = WEIR_PIECE_ENDING;
    if (!unanswered && unheard)
        drop(state, number);
    else if (!unanswered)
        push_ending(state, number);
}

// Whether an answer can be one to what was asked.
static int fits(const struct weir_state *state, const struct weir_piece *piece,
                const struct weir_shared *answer) {
    if (piece->asked == WEIR_MSG_EXPORT && answer->verdict == WEIR_GRANTED)
        return answer->bytes == piece->bytes;
    if (piece->asked == WEIR_MSG_IMPORT && answer->verdict == WEIR_CHARGED_ELSEWHERE)
        return answer->bytes <= PIECE_BYTES_MAX && answer->gpu < state->gpu_count;
    return 1;
}

// An EXPORT is answered.
static void take_over(struct weir_state *state, uint32_t number, const struct weir_shared *answer) {
    struct weir_piece *piece = weir_piece_at(state, number);
    int ending = piece->state == WEIR_PIECE_ENDING;
    if (answer->verdict == WEIR_GRANTED) {
        weir_credit_move(state, piece->gpu, piece->bytes);
        piece->state = ending ? WEIR_PIECE_ENDING : WEIR_PIECE_TOLD;
        if (ending)
            push_ending(state, number);
    } else if (ending) {
        give(state, piece);
        drop(state, number);
    } else {
        piece->state = WEIR_PIECE_OWN;
    }
}

// An IMPORT is answered.
static void learn_origin(struct weir_state *state, uint32_t number,
                         const struct weir_shared *answer) {
    struct weir_piece *piece = weir_piece_at(state, number);
    int ending = piece->state == WEIR_PIECE_ENDING;
    if (answer->verdict == WEIR_CHARGED_ELSEWHERE) {
        give(state, piece);  // charged meanwhile, for want of an answer
        piece->bytes = answer->bytes;
        memcpy(piece->uuid, state->control->gpus[answer->gpu].uuid, sizeof(piece->uuid));
        piece->state = ending ? WEIR_PIECE_ENDING : WEIR_PIECE_TOLD;
        if (ending)
            push_ending(state, number);
    } else if (ending) {
        drop(state, number);
    } else {
        piece->state = WEIR_PIECE_OWN;
    }
}

int weir_piece_answered(struct weir_state *state, uint32_t number,
                        const struct weir_shared *answer) {
    struct weir_piece *piece = weir_piece_at(state, number);
    if (!fits(state, piece, answer))
        return EPROTO;
    uint32_t asked = piece->asked;
    piece->asked = 0;
    piece->seq = 0;
    if (asked == WEIR_MSG_EXPORT)
        take_over(state, number, answer);
    else if (asked == WEIR_MSG_IMPORT)
        learn_origin(state, number, answer);
    return 0;
}

int weir_piece_answered_late(struct weir_state *state, const struct weir_shared *answer) {
    for (uint32_t number = 1; number <= state->pieces.used; number++) {
        const struct weir_piece *piece = weir_piece_at(state, number);
        if (piece->asked && piece->seq == answer->header.seq)
            return weir_piece_answered(state, number, answer);
    }
    return 0;
}

uint32_t weir_piece_claim_ending(struct weir_state *state) {
    uint32_t number = state->link_up ? state->pieces_ending : WEIR_NO_PIECE;
    if (number) {
        struct weir_piece *piece = weir_piece_at(state, number);
        __atomic_store_n(&state->pieces_ending, piece->ending, __ATOMIC_RELAXED);
        piece->claimed = 1;
    }
    return number;
}

void weir_piece_end(struct weir_state *state, uint32_t number) {
    drop(state, number);
}

void weir_piece_end_later(struct weir_state *state, uint32_t number) {
    weir_piece_at(state, number)->claimed = 0;
    push_ending(state, number);
}

void weir_pieces_forget(struct weir_state *state) {
    __atomic_store_n(&state->pieces_ending, WEIR_NO_PIECE, __ATOMIC_RELAXED);
    for (uint32_t number = 1; number <= state->pieces.used; number++) {
        struct weir_piece *piece = weir_piece_at(state, number);
        if (piece->state == WEIR_PIECE_ENDING && !piece->claimed) {
            if (piece->asked == WEIR_MSG_EXPORT)
                give(state, piece);
            drop(state, number);
        } else if (piece->asked == WEIR_MSG_IMPORT && !piece->awaited) {
            piece->asked = 0;
        }
    }
}
