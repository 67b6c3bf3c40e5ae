// peers.c: see peers.h.
#include "peers.h"

#include "contexts.h"

// The ordinal of a context's device; WEIR_ORDINALS_MAX where it is not known.
static uint32_t device_of(struct weir_state *state, CUcontext context) {
    struct weir_context record;
    return context && weir_contexts_look(state, (uint64_t)(uintptr_t)context, &record) == 0
               ? record.gpu
               : WEIR_ORDINALS_MAX;
}

// Goes through the gates of other devices than the stream's. Whether all let it in; else it is
// inside none, not the stream's either, and has waited.
static int pass_others(struct weir_peers *peers, const uint32_t *ordinals,
                       struct weir_transfer_stream in, struct weir_gate_tries *tries) {
    const struct weir_time *time = peers->op.time;
    for (unsigned i = 0; time && i < 2; i++) {
        uint32_t ordinal = ordinals[i];
        if (ordinal == WEIR_ORDINALS_MAX || (i && ordinal == ordinals[0]) ||
            WEIR_GET(time->numbers[ordinal]) == peers->op.gpu + 1)
            continue;
        struct weir_timed *other = &peers->others[peers->count];
        if (weir_timed_try(other, ordinal, in.stream, in.per_thread, tries)) {
            peers->count++;
            continue;
        }
        const struct weir_timed closed = *other;
        weir_peers_end(peers, CUDA_ERROR_NOT_READY);  // what was counted was not launched
        weir_timed_await(&closed, tries);
        return 0;
    }
    return 1;
}

void weir_peers_begin(struct weir_peers *peers, CUcontext to, CUcontext from,
                      struct weir_transfer_stream in, uint64_t bytes, uint64_t row_bytes) {
    struct weir_gate_tries tries = {0, 0};
    struct weir_state *state;
    uint32_t ordinals[2] = {WEIR_ORDINALS_MAX, WEIR_ORDINALS_MAX};
    if (to != from && weir_enforced(&state)) {
        ordinals[0] = device_of(state, to);
        ordinals[1] = device_of(state, from);
    }
    do {
        peers->count = 0;
        weir_transfer_begin(&peers->op, WEIR_TRANSFER_PEER, in, bytes, row_bytes);
    } while (!pass_others(peers, ordinals, in, &tries));
}

CUresult weir_peers_end(struct weir_peers *peers, CUresult result) {
    while (peers->count)
        weir_timed_end(&peers->others[--peers->count], CUDA_SUCCESS);
    return weir_timed_end(&peers->op, result);
}
