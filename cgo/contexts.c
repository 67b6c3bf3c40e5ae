// contexts.c: see contexts.h.
#include "contexts.h"

#include <stdbool.h>

#include "ask.h"
#include "attend.h"
#include "code.h"
#include "credit.h"
#include "note.h"

static bool is_used(const struct weir_context *context) {
    return context->handle || context->making;
}

void weir_contexts_show(struct weir_state *state) {
    uint64_t shown[WEIR_GPUS_MAX][2] = {{0}};
    if (!state->page_open)
        return;
    for (uint32_t i = 0; i < state->contexts_used; i++) {
        const struct weir_context *context = &state->contexts[i];
        uint32_t index = is_used(context) ? state->gpus[context->gpu].index : WEIR_NO_INDEX;
        if (index >= WEIR_GPUS_MAX)
            continue;
        for (uint32_t part = 0; part < WEIR_PARTS; part++)
            shown[index][part != WEIR_PART_CONTEXT] += context->bytes[part];
    }
    for (uint32_t i = 0; i < state->gpu_count && i < WEIR_GPUS_MAX; i++) {
        struct weir_gpu_usage *usage = &state->usage->gpus[i];
        __atomic_store_n(&usage->context_bytes, shown[i][0], __ATOMIC_RELAXED);
        __atomic_store_n(&usage->code_bytes, shown[i][1], __ATOMIC_RELAXED);
    }
}

CUresult weir_terms_read(struct weir_state *state, uint32_t gpu, struct weir_terms *terms) {
    uint32_t index = __atomic_load_n(&state->gpus[gpu].index, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&state->control, __ATOMIC_ACQUIRE) || index == WEIR_NO_INDEX) {
        int rc = weir_ask_listed(state, gpu);
        index = __atomic_load_n(&state->gpus[gpu].index, __ATOMIC_RELAXED);
        if (rc == 0 && index == WEIR_NO_INDEX)
            rc = EHOSTUNREACH;  // that connection is lost already
        if (rc == ENODEV)
            weir_note(state, WEIR_NOTE_BIT_UNKNOWN, gpu, 0);
        else if (rc != 0 && rc != EDQUOT)
            weir_note(state, WEIR_NOTE_BIT_REFUSED, gpu, 0);
        if (rc != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct weir_gpu_control *page = &state->control->gpus[index];
    terms->context_bytes = __atomic_load_n(&page->context_bytes, __ATOMIC_RELAXED);
    terms->counted =
        (__atomic_load_n(&page->flags, __ATOMIC_RELAXED) & WEIR_GPU_COUNT_CONTEXT) != 0;
    return CUDA_SUCCESS;
}

struct weir_context *weir_contexts_find(struct weir_state *state, uint64_t handle) {
    struct weir_context *found = NULL;
    for (uint32_t i = 0; handle && i < state->contexts_used; i++) {
        struct weir_context *context = &state->contexts[i];
        if (!context->handle || (context->handle != handle && context->other != handle))
            continue;
        if (!context->ticket)
            return context;
        found = context;
    }
    return found;
}

int weir_contexts_enter(struct weir_state *state, const struct weir_context *context,
                        uint32_t *place) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    const struct weir_context *there = weir_contexts_find(state, context->handle);
    *place = 0;
    while (*place < state->contexts_used && is_used(&state->contexts[*place]))
        ++*place;
    if (there && !there->ticket)
        rc = EEXIST;
    else if (*place == WEIR_CONTEXTS_MAX)
        rc = ENOSPC;
    if (rc == 0) {
        state->contexts[*place] = *context;
        state->contexts[*place].serial = ++state->context_serial;
        if (*place == state->contexts_used)
            state->contexts_used++;
        if (state->contexts_used > 1)
            weir_time_several(state);
        weir_contexts_show(state);
    }
    weir_unlock(&state->lock);
    if (rc == ENOSPC)
        weir_note_bound(state, WEIR_BOUND_CONTEXTS, WEIR_CONTEXTS_MAX);
    return rc;
}

int weir_contexts_look(struct weir_state *state, uint64_t handle, struct weir_context *out) {
    if (weir_lock(&state->lock))
        return ENOENT;
    const struct weir_context *context = weir_contexts_find(state, handle);
    if (context)
        *out = *context;
    weir_unlock(&state->lock);
    return context ? 0 : ENOENT;
}

int weir_contexts_add(struct weir_state *state, uint64_t handle, enum weir_part part,
                      uint64_t bytes) {
    if (weir_lock(&state->lock))
        return ENOENT;
    struct weir_context *context = weir_contexts_find(state, handle);
    if (context) {
        context->bytes[part] += bytes;
        weir_contexts_show(state);
    }
    weir_unlock(&state->lock);
    return context ? 0 : ENOENT;
}

void weir_contexts_give(struct weir_state *state, struct weir_context *context, enum weir_part part,
                        uint64_t bytes) {
    if (bytes > context->bytes[part])
        bytes = context->bytes[part];
    context->bytes[part] -= bytes;
    if (context->counted && bytes)
        weir_credit_give(state, context->gpu, bytes);
    weir_contexts_show(state);
}

uint32_t weir_contexts_count(struct weir_state *state, uint32_t gpu, uint64_t *bytes) {
    uint32_t count = 0;
    *bytes = 0;
    if (weir_lock(&state->lock))
        return 0;
    for (uint32_t i = 0; i < state->contexts_used; i++) {
        const struct weir_context *context = &state->contexts[i];
        if (!is_used(context) || context->gpu != gpu)
            continue;
        count++;
        if (context->counted)
            *bytes += context->bytes[WEIR_PART_CONTEXT];
    }
    weir_unlock(&state->lock);
    return count;
}

void weir_contexts_retire(struct weir_state *state, uint64_t handle, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    struct weir_context *context = weir_contexts_find(state, handle);
    if (context && !context->ticket)
        context->ticket = ticket;
    weir_unlock(&state->lock);
}

static void give_parts(struct weir_state *state, struct weir_context *context, uint32_t parts) {
    for (uint32_t part = 0; part < WEIR_PARTS; part++)
        if (parts & 1u << part)
            weir_contexts_give(state, context, part, UINT64_MAX);
}

#define ALL_PARTS ((1u << WEIR_PARTS) - 1)
#define LOADED_PARTS (1u << WEIR_PART_CODE | 1u << WEIR_PART_LIMIT)

// Gives back all that a context is charged, and its place. Lock held.
static void give_up(struct weir_state *state, struct weir_context *context) {
    give_parts(state, context, ALL_PARTS);
    *context = (struct weir_context){.handle = 0};
}

void weir_contexts_name(struct weir_state *state, uint32_t place, uint64_t handle, uint64_t bytes) {
    if (weir_lock(&state->lock))
        return;
    const struct weir_context *there = weir_contexts_find(state, handle);
    struct weir_context *context = &state->contexts[place];
    context->bytes[WEIR_PART_CONTEXT] += bytes;
    if (there && !there->ticket) {
        give_up(state, context);
    } else {
        context->handle = handle;
        context->making = 0;
    }
    weir_contexts_show(state);
    weir_unlock(&state->lock);
}

void weir_contexts_drop(struct weir_state *state, uint32_t place) {
    if (weir_lock(&state->lock))
        return;
    give_up(state, &state->contexts[place]);
    weir_contexts_show(state);
    weir_unlock(&state->lock);
}

// A context goes on that another thread has entered anew since it was retired, as if it had ended:
// what it takes for being there is counted twice, what was loaded into it is not.
static void join(struct weir_state *state, struct weir_context *context,
                 struct weir_context *entered) {
    for (uint32_t part = 0; part < WEIR_PARTS; part++)
        if ((LOADED_PARTS & 1u << part) && context->counted == entered->counted) {
            entered->bytes[part] += context->bytes[part];
            context->bytes[part] = 0;
        }
    entered->attached += context->attached;
    weir_codes_move(state, context->serial, entered->serial);
    give_up(state, context);
}

void weir_contexts_restore(struct weir_state *state, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < state->contexts_used; i++) {
        struct weir_context *context = &state->contexts[i];
        if (!context->handle || context->ticket != ticket)
            continue;
        struct weir_context *entered = weir_contexts_find(state, context->handle);
        if (entered->ticket)
            context->ticket = 0;
        else
            join(state, context, entered);
    }
    weir_unlock(&state->lock);
}

void weir_contexts_ended(struct weir_state *state, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < state->contexts_used; i++) {
        struct weir_context *context = &state->contexts[i];
        if (!context->handle || context->ticket != ticket)
            continue;
        give_up(state, context);
    }
    weir_unlock(&state->lock);
}

void weir_contexts_emptied(struct weir_state *state, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < state->contexts_used; i++)
        if (state->contexts[i].handle && state->contexts[i].ticket == ticket)
            give_parts(state, &state->contexts[i], LOADED_PARTS);
    weir_unlock(&state->lock);
    weir_contexts_restore(state, ticket);
}
