// piece.h: memory that other processes have too, or may have: exported by this process, or
// imported.
//
// A piece is charged once, whoever has it. One that this process has exported and the agent has
// acknowledged is its container's, no longer its own: the agent has lowered what it granted, and
// `owned` is lowered here (credit.h, equation 1). It stays charged until no session has it any
// more. One that was imported is charged to its exporter's container if the agent knows that; else
// it is this process's own (its origin is unknown). An export that the agent was not told of, or
// does not take, stays this process's own too: then whoever imports it is charged as well.
//
// A piece lasts as long as something uses it: the exported allocation, each import (tie.h,
// physical.h), and a thread that asks the agent about it. From the moment an allocation is
// exported, its charge lies in the piece, not in the allocation's own book, so nothing gives it
// back twice.
//
//     OWN      charged here: unknown origin, or not told
//     ASKED    charged here, and the agent was asked to take it over; may become OWN or TOLD
//     SOUGHT   the agent was asked who is charged; may become OWN or TOLD
//     TOLD     charged to a container by the agent, on whose list of this piece we are
//     ENDING   nothing uses it any more, and the agent is still to hear of it
//
// The functions here want the lock held.
#ifndef WEIR_PIECE_H
#define WEIR_PIECE_H

#include "state.h"

#define WEIR_NO_PIECE 0u

enum weir_piece_state {
    WEIR_PIECE_OWN = 1,
    WEIR_PIECE_ASKED = 2,
    WEIR_PIECE_SOUGHT = 3,
    WEIR_PIECE_TOLD = 4,
    WEIR_PIECE_ENDING = 5,
};

struct weir_piece {
    uint32_t link;  // the slab's
    uint32_t state;
    uint32_t uses;
    uint32_t gpu;    // ordinal; where it is charged here
    uint32_t asked;  // type of the message that is unanswered; 0: none
    uint32_t seq;    // of that message
    uint16_t keyed;  // whether it has a key
    uint16_t exported;
    uint16_t awaited;  // a thread waits for the answer
    uint16_t claimed;  // a thread is telling the agent of its end
    uint32_t ending;   // the next one of those that end
    uint64_t bytes;    // what it is charged with, here or elsewhere
    struct weir_share_key key;
    uint8_t uuid[16];  // of its GPU, where that is known
};

int weir_pieces_ready(struct weir_state *state);  // without the lock: see slab.h

struct weir_piece *weir_piece_at(const struct weir_state *state, uint32_t number);

// The piece of a key, one that ends included; WEIR_NO_PIECE where there is none.
uint32_t weir_piece_find(const struct weir_state *state, const struct weir_share_key *key);

// A new piece with one use; `key` may be NULL. WEIR_NO_PIECE where there are too many.
uint32_t weir_piece_new(struct weir_state *state, const struct weir_share_key *key,
                        enum weir_piece_state as);

void weir_piece_use(struct weir_state *state, uint32_t number);

// Ends a use. What the agent is to hear of it then waits for weir_share_settle.
void weir_piece_release(struct weir_state *state, uint32_t number);

// What the agent has answered to the message about a piece. 0, or EPROTO.
int weir_piece_answered(struct weir_state *state, uint32_t number,
                        const struct weir_shared *answer);

// The same where the thread that asked has left: finds the piece by the number of the question.
int weir_piece_answered_late(struct weir_state *state, const struct weir_shared *answer);

// One of the pieces whose end the agent is to hear of, or WEIR_NO_PIECE. It is claimed then.
uint32_t weir_piece_claim_ending(struct weir_state *state);

// The agent has heard of a claimed piece's end, or will not; or it is to hear of it later.
void weir_piece_end(struct weir_state *state, uint32_t number);
void weir_piece_end_later(struct weir_state *state, uint32_t number);

// A new connection begins with the declaration of what is had, and the page is closed: what has
// ended is left out, and no answer will come any more to what was asked on the old one.
void weir_pieces_forget(struct weir_state *state);

#endif
