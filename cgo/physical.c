// physical.c: see physical.h.
#include "physical.h"

#include <string.h>

#include "credit.h"
#include "note.h"
#include "share.h"

// How many mappings are looked at before the lock is left for a moment.
#define BATCH 64u

struct handle {
    uint32_t link;        // the slab's
    uint32_t references;  // that the program has to release
    uint64_t handle;
    uint64_t stamp;
    uint64_t bytes;  // owned for it; 0 where it has a piece
    uint32_t mappings;
    uint32_t gpu;
    uint32_t piece;
    uint32_t padding;
};

struct mapping {
    uint32_t link;  // the slab's
    uint32_t handle;
    uint64_t address;
    uint64_t bytes;
};

static const struct weir_slab_shape handle_shape = {
    .record_bytes = sizeof(struct handle),
    .records_max = WEIR_HANDLES_MAX,
    .chains = WEIR_HANDLES_MAX / 8,
};

static const struct weir_slab_shape mapping_shape = {
    .record_bytes = sizeof(struct mapping),
    .records_max = WEIR_HANDLES_MAX,
    .chains = WEIR_HANDLES_MAX / 8,
};

int weir_physical_ready(struct weir_state *state) {
    int rc = weir_slab_ready(&state->handles, &handle_shape, &state->lock);
    return rc ? rc : weir_slab_ready(&state->mappings, &mapping_shape, &state->lock);
}

static struct handle *handle_at(const struct weir_state *state, uint32_t number) {
    return weir_slab_at(&state->handles, &handle_shape, number);
}

static struct mapping *mapping_at(const struct weir_state *state, uint32_t number) {
    return weir_slab_at(&state->mappings, &mapping_shape, number);
}

static uint32_t find_handle(const struct weir_state *state, uint64_t handle) {
    uint32_t number = weir_slab_first(&state->handles, &handle_shape, weir_slab_hash(handle));
    while (number && handle_at(state, number)->handle != handle)
        number = weir_slab_next(&state->handles, &handle_shape, number);
    return number;
}

static uint32_t find_mapping(const struct weir_state *state, uint64_t address) {
    uint32_t number = weir_slab_first(&state->mappings, &mapping_shape, weir_slab_hash(address));
    while (number && mapping_at(state, number)->address != address)
        number = weir_slab_next(&state->mappings, &mapping_shape, number);
    return number;
}

static int full(struct weir_state *state) {
    weir_note_bound(state, WEIR_BOUND_HANDLES, WEIR_HANDLES_MAX);
    return ENOSPC;
}

// A new handle with one reference. Lock held. Its number, or 0.
static uint32_t add_handle(struct weir_state *state, uint64_t handle, uint32_t gpu) {
    uint32_t number = weir_slab_new(&state->handles, &handle_shape, weir_slab_hash(handle));
    if (!number)
        return 0;
    struct handle *one = handle_at(state, number);
    one->references = 1;
    one->handle = handle;
    one->stamp = ++state->handle_stamp;
    one->gpu = gpu;
    return number;
}

int weir_physical_created(struct weir_state *state, uint64_t handle, uint32_t gpu, uint64_t bytes) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    uint32_t number = add_handle(state, handle, gpu);
    if (number)
        handle_at(state, number)->bytes = bytes;
    weir_unlock(&state->lock);
    return number ? 0 : full(state);
}

int weir_physical_imported(struct weir_state *state, uint64_t handle, uint32_t gpu,
                           uint32_t piece) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    uint32_t number = find_handle(state, handle);
    if (number && handle_at(state, number)->piece == piece) {
        // A driver that knows the memory may give the handle that it has already.
        handle_at(state, number)->references++;
        weir_piece_release(state, piece);
    } else {
        number = add_handle(state, handle, gpu);
        if (number)
            handle_at(state, number)->piece = piece;
    }
    weir_unlock(&state->lock);
    return number ? 0 : full(state);
}

void weir_physical_retained(struct weir_state *state, uint64_t handle) {
    if (weir_lock(&state->lock))
        return;
    uint32_t number = find_handle(state, handle);
    if (number)
        handle_at(state, number)->references++;
    weir_unlock(&state->lock);
}

struct weir_physical weir_physical_find(struct weir_state *state, uint64_t handle) {
    struct weir_physical physical = {0, 0};
    if (weir_lock(&state->lock))
        return physical;
    physical.number = find_handle(state, handle);
    if (physical.number)
        physical.stamp = handle_at(state, physical.number)->stamp;
    weir_unlock(&state->lock);
    return physical;
}

// The record of what was found, or NULL where that has ended. Lock held.
static struct handle *get(struct weir_state *state, struct weir_physical physical) {
    struct handle *one = physical.number ? handle_at(state, physical.number) : NULL;
    return one && one->stamp == physical.stamp ? one : NULL;
}

// Ends what has neither references nor mappings. Lock held.
static void end_unused(struct weir_state *state, uint32_t number) {
    struct handle one = *handle_at(state, number);
    if (one.references || one.mappings)
        return;
    weir_slab_free(&state->handles, &handle_shape, weir_slab_hash(one.handle), number);
    if (one.bytes)
        weir_credit_give(state, one.gpu, one.bytes);
    if (one.piece)
        weir_piece_release(state, one.piece);
}

void weir_physical_released(struct weir_state *state, struct weir_physical physical) {
    if (!physical.number || weir_lock(&state->lock))
        return;
    struct handle *one = get(state, physical);
    if (one && one->references) {
        one->references--;
        end_unused(state, physical.number);
    }
    weir_unlock(&state->lock);
    weir_share_settle(state);
}

CUresult weir_physical_pin(struct weir_state *state, struct weir_physical physical,
                           uint64_t bytes) {
    if (!physical.number)
        return CUDA_SUCCESS;
    if (weir_lock(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct handle *one = get(state, physical);
    uint32_t piece = one ? one->piece : WEIR_NO_PIECE;
    uint32_t gpu = one ? one->gpu : 0;
    if (one)
        one->mappings++;
    weir_unlock(&state->lock);
    CUresult result = piece ? weir_share_charge(state, piece, gpu, bytes) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        weir_physical_unpin(state, physical);
    return result;
}

void weir_physical_unpin(struct weir_state *state, struct weir_physical physical) {
    if (!physical.number || weir_lock(&state->lock))
        return;
    struct handle *one = get(state, physical);
    if (one && one->mappings) {
        one->mappings--;
        end_unused(state, physical.number);
    }
    weir_unlock(&state->lock);
    weir_share_settle(state);
}

// Ends one mapping. Lock held. Returns its length.
static uint64_t drop_mapping(struct weir_state *state, uint32_t number) {
    struct mapping mapping = *mapping_at(state, number);
    weir_slab_free(&state->mappings, &mapping_shape, weir_slab_hash(mapping.address), number);
    handle_at(state, mapping.handle)->mappings--;
    end_unused(state, mapping.handle);
    return mapping.bytes;
}

int weir_physical_mapped(struct weir_state *state, struct weir_physical physical, uint64_t address,
                         uint64_t bytes) {
    if (!physical.number)
        return 0;
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    uint32_t older = find_mapping(state, address);
    if (older)  // whose end we did not see
        drop_mapping(state, older);
    uint32_t number = weir_slab_new(&state->mappings, &mapping_shape, weir_slab_hash(address));
    if (number) {
        struct mapping *mapping = mapping_at(state, number);
        mapping->handle = physical.number;
        mapping->address = address;
        mapping->bytes = bytes;
    }
    weir_unlock(&state->lock);
    return number ? 0 : full(state);
}

// Ends some of the mappings that follow each other from *address on. Whether it came to the end of
// them before that of the range.
static int unmap_chain(struct weir_state *state, uint64_t *address, uint64_t end) {
    if (weir_lock(&state->lock))
        return 1;
    uint32_t number = 0;
    for (uint32_t i = 0; i < BATCH && *address < end; i++) {
        number = find_mapping(state, *address);
        if (!number)
            break;
        *address += drop_mapping(state, number);
    }
    weir_unlock(&state->lock);
    return !number;
}

// Ends those of some mappings, of any address, that are in a range.
static void unmap_among(struct weir_state *state, uint32_t first, uint64_t address, uint64_t end) {
    if (weir_lock(&state->lock))
        return;
    for (uint32_t number = first; number < first + BATCH && number <= state->mappings.used;
         number++) {
        const struct mapping *mapping = mapping_at(state, number);
        if (mapping->bytes && mapping->address >= address && mapping->address < end)
            drop_mapping(state, number);
    }
    weir_unlock(&state->lock);
}

// Mostly a range is full of mappings. Where it has holes, all mappings are looked through.
void weir_physical_unmapped(struct weir_state *state, uint64_t address, uint64_t bytes) {
    uint64_t end = address + bytes;
    int holes = 0;
    while (!holes && address < end)
        holes = unmap_chain(state, &address, end);
    for (uint32_t first = 1; holes && first <= state->mappings.used; first += BATCH)
        unmap_among(state, first, address, end);
    weir_share_settle(state);
}

struct weir_physical weir_physical_mapped_at(struct weir_state *state, uint64_t address) {
    struct weir_physical physical = {0, 0};
    if (weir_lock(&state->lock))
        return physical;
    uint32_t number = find_mapping(state, address);
    if (number) {
        physical.number = mapping_at(state, number)->handle;
        physical.stamp = handle_at(state, physical.number)->stamp;
    }
    weir_unlock(&state->lock);
    return physical;
}

void weir_physical_exported(struct weir_state *state, struct weir_physical physical,
                            const struct weir_share_key *key) {
    if (weir_pieces_ready(state) != 0 || weir_lock(&state->lock))
        return;
    struct handle *one = get(state, physical);
    uint32_t piece = WEIR_NO_PIECE;
    if (one && !one->piece && one->bytes)
        piece = weir_share_take(state, key, one->gpu, one->bytes);
    if (piece) {
        one->piece = piece;
        one->bytes = 0;
    }
    weir_unlock(&state->lock);
    if (piece)
        weir_share_export(state, piece);
}
