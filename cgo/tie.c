// tie.c: see tie.h.
#include "tie.h"

#include "note.h"
#include "piece.h"
#include "share.h"

struct tie {
    uint32_t link;  // the slab's
    uint32_t kind;
    uint64_t name;
    uint64_t stamp;
    uint64_t table_stamp;  // of when it was made
    uint64_t count;
    uint32_t piece;
    uint32_t owner;
};

static const struct weir_slab_shape shape = {
    .record_bytes = sizeof(struct tie),
    .records_max = WEIR_SHARES_MAX,
    .chains = WEIR_SHARES_MAX / 4,
};

int weir_ties_ready(struct weir_state *state) {
    int rc = weir_pieces_ready(state);
    return rc ? rc : weir_slab_ready(&state->ties, &shape, &state->lock);
}

static struct tie *tie_at(const struct weir_state *state, uint32_t number) {
    return weir_slab_at(&state->ties, &shape, number);
}

static uint64_t hash_of(enum weir_tie_kind kind, uint64_t name) {
    return weir_slab_hash(name + (uint64_t)kind);
}

static uint32_t find(const struct weir_state *state, enum weir_tie_kind kind, uint64_t name) {
    uint32_t number = weir_slab_first(&state->ties, &shape, hash_of(kind, name));
    while (number && (tie_at(state, number)->kind != kind || tie_at(state, number)->name != name))
        number = weir_slab_next(&state->ties, &shape, number);
    return number;
}

int weir_tie_make(struct weir_state *state, enum weir_tie_kind kind, uint64_t name, uint32_t piece,
                  uint32_t owner) {
    uint32_t number = find(state, kind, name);
    if (number && tie_at(state, number)->piece == piece && tie_at(state, number)->owner == owner) {
        tie_at(state, number)->count++;
        weir_piece_release(state, piece);
        if (owner != WEIR_NO_OWNER)
            weir_owner_release(&state->owners, owner);
        return 0;
    }
    number = weir_slab_new(&state->ties, &shape, hash_of(kind, name));
    if (!number) {
        weir_note_bound(state, WEIR_BOUND_SHARES, WEIR_SHARES_MAX);
        return ENOSPC;
    }
    struct tie *tie = tie_at(state, number);
    tie->kind = kind;
    tie->name = name;
    tie->stamp = ++state->tie_stamp;
    tie->table_stamp = weir_table_stamp(&state->table);
    tie->count = 1;
    tie->piece = piece;
    tie->owner = owner;
    return 0;
}

struct weir_tie_hold weir_tie_find(const struct weir_state *state, enum weir_tie_kind kind,
                                   uint64_t name) {
    uint32_t number = find(state, kind, name);
    return (struct weir_tie_hold){number, number ? tie_at(state, number)->stamp : 0};
}

uint32_t weir_tie_piece(const struct weir_state *state, struct weir_tie_hold hold) {
    return hold.number ? tie_at(state, hold.number)->piece : WEIR_NO_PIECE;
}

static void end(struct weir_state *state, uint32_t number) {
    struct tie tie = *tie_at(state, number);
    weir_slab_free(&state->ties, &shape, hash_of(tie.kind, tie.name), number);
    weir_piece_release(state, tie.piece);
    if (tie.owner != WEIR_NO_OWNER)
        weir_owner_release(&state->owners, tie.owner);
}

void weir_tie_release(struct weir_state *state, struct weir_tie_hold hold) {
    if (!hold.number || tie_at(state, hold.number)->stamp != hold.stamp)
        return;
    if (--tie_at(state, hold.number)->count == 0)
        end(state, hold.number);
}

void weir_tie_gone_slow(struct weir_state *state, uint64_t key, uint64_t stamp) {
    uint32_t number = weir_slab_first(&state->ties, &shape, hash_of(WEIR_TIE_EXPORTED, key));
    while (number) {
        const struct tie *tie = tie_at(state, number);
        uint32_t next = weir_slab_next(&state->ties, &shape, number);
        if (tie->kind == WEIR_TIE_EXPORTED && tie->name == key && tie->table_stamp <= stamp)
            end(state, number);
        number = next;
    }
}

CUresult weir_untie_begin(struct weir_untie *untie, enum weir_tie_kind kind, uint64_t name) {
    if (!weir_enforced(&untie->state)) {
        untie->state = NULL;
        return CUDA_SUCCESS;
    }
    if (weir_lock(&untie->state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    untie->hold = weir_tie_find(untie->state, kind, name);
    weir_unlock(&untie->state->lock);
    return CUDA_SUCCESS;
}

void weir_untie_end(const struct weir_untie *untie, CUresult result) {
    struct weir_state *state = untie->state;
    if (!state || result != CUDA_SUCCESS || !untie->hold.number || weir_lock(&state->lock))
        return;
    weir_tie_release(state, untie->hold);
    weir_unlock(&state->lock);
    weir_share_settle(state);
}

void weir_ties_end(struct weir_state *state, uint32_t ticket) {
    for (uint32_t number = 1; number <= state->ties.used; number++) {
        const struct tie *tie = tie_at(state, number);
        if (tie->count && tie->owner != WEIR_NO_OWNER &&
            state->owners.owner[tie->owner].ticket == ticket)
            end(state, number);
    }
}
