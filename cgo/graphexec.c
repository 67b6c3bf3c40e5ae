// graphexec.c: the book of executable graphs with memory nodes; see graph.h.
#include "graph.h"

#include "note.h"

// Executable graphs with memory nodes that a process may have.
#define EXECS_MAX 65536u

static const struct weir_slab_shape shape = {
    .record_bytes = sizeof(struct weir_exec), .records_max = EXECS_MAX, .chains = 4096};

// Lock held, here and in the next two.
static struct weir_exec *find(struct weir_state *state, uint64_t handle, uint32_t *number) {
    uint64_t hash = weir_slab_hash(handle);
    for (*number = weir_slab_first(&state->execs, &shape, hash); *number;
         *number = weir_slab_next(&state->execs, &shape, *number)) {
        struct weir_exec *exec = weir_slab_at(&state->execs, &shape, *number);
        if (exec->handle == handle)
            return exec;
    }
    return NULL;
}

// Changes the filter's count; one that is full stays so.
static void count(struct weir_state *state, uint64_t handle, int change) {
    uint8_t *filter = &state->exec_filter[weir_exec_filter(handle)];
    if (*filter != UINT8_MAX)
        __atomic_store_n(filter, (uint8_t)(*filter + change), __ATOMIC_RELAXED);
}

static int take(struct weir_state *state, uint64_t handle, struct weir_exec *exec) {
    uint32_t number;
    struct weir_exec *known = find(state, handle, &number);
    if (!known)
        return 0;
    *exec = *known;
    weir_slab_free(&state->execs, &shape, weir_slab_hash(handle), number);
    count(state, handle, -1);
    return 1;
}

int weir_exec_remember(struct weir_state *state, uint64_t handle,
                       const struct weir_graph_needs *needs) {
    struct weir_exec old;
    int rc = weir_slab_ready(&state->execs, &shape, &state->lock);
    if (rc == 0)
        rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    take(state, handle, &old);  // one whose end we did not see
    uint32_t number = weir_slab_new(&state->execs, &shape, weir_slab_hash(handle));
    if (number) {
        struct weir_exec *exec = weir_slab_at(&state->execs, &shape, number);
        exec->handle = handle;
        exec->needs = *needs;
        count(state, handle, 1);
    }
    weir_unlock(&state->lock);
    if (number)
        return 0;
    weir_note_bound(state, WEIR_BOUND_GRAPHS, EXECS_MAX);
    return ENOMEM;
}

int weir_exec_recall(struct weir_state *state, uint64_t handle, struct weir_exec *exec) {
    uint32_t number;
    if (weir_lock(&state->lock))
        return 0;
    struct weir_exec *known = find(state, handle, &number);
    if (known)
        *exec = *known;
    weir_unlock(&state->lock);
    return known != NULL;
}

void weir_exec_settled(struct weir_state *state, uint64_t handle, uint64_t stream, uint64_t trims) {
    uint32_t number;
    if (weir_lock(&state->lock))
        return;
    struct weir_exec *exec = find(state, handle, &number);
    if (exec) {
        exec->stream = stream;
        exec->trims = trims;
    }
    weir_unlock(&state->lock);
}

int weir_exec_forget(struct weir_state *state, uint64_t handle, struct weir_exec *exec) {
    if (weir_lock(&state->lock))
        return 0;
    int known = take(state, handle, exec);
    weir_unlock(&state->lock);
    return known;
}
