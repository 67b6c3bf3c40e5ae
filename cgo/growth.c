// growth.c: calls that make a reserve grow; see reserve.h.
//
// A figure of the driver's is exact where it was read while no growth but the reader's own went on:
// `moves` counts their beginnings and ends, so it is the same before and after then.
#include "capture.h"
#include "credit.h"
#include "reserve.h"

// How often what is reserved is looked at while credit for it is being obtained: more than thrice
// only where other threads make it grow meanwhile.
#define LOOKS_MAX 8
// How long a growth waits for others to end before it goes on beside them: one whose thread was
// lost must not hold up all others for ever.
#define TURN_MS_MAX 5000u
#define TURN_WAIT_US 1000u

// Wakes those that wait for a growth of theirs to begin. Lock not held.
static void wake(struct weir_reserve *reserve) {
    if (__atomic_load_n(&reserve->waiting, __ATOMIC_RELAXED))
        weir_sys_futex_wake(&reserve->moves, INT32_MAX);
}

// Whether there is credit at hand for a request of so many bytes, and for what the driver may take
// beyond it.
static int has_credit(const struct weir_state *state, const struct weir_reserve *reserve,
                      uint64_t bytes) {
    uint64_t at_hand_bytes = weir_credit_at_hand(state, reserve->gpu);
    return !bytes || (reserve->step_bytes && at_hand_bytes >= reserve->step_bytes &&
                      at_hand_bytes - reserve->step_bytes >= bytes);
}

// Begins a growth. Lock held.
static void enter(struct weir_growth *growth, int exclusive) {
    struct weir_reserve *reserve = &growth->state->reserves[growth->reserve];
    growth->alone = reserve->busy++ == 0;
    growth->exclusive = exclusive && growth->alone;
    if (growth->exclusive)
        reserve->exclusive = 1;
    growth->moves = weir_reserve_move(reserve);
    growth->gpu = reserve->gpu;
    growth->kind = (enum weir_kind)reserve->kind;
    growth->handle = reserve->handle;
}

// Ends a growth. Whether its reserve is left alone with a charge that differs from what was last
// read. Lock held.
static int leave(struct weir_growth *growth, uint64_t reserved_bytes) {
    struct weir_reserve *reserve = &growth->state->reserves[growth->reserve];
    if (growth->held_bytes)
        weir_credit_give(growth->state, growth->gpu, growth->held_bytes);
    reserve->busy--;
    if (growth->exclusive)
        reserve->exclusive = 0;
    weir_reserve_move(reserve);
    return !reserve->busy && reserved_bytes != reserve->charged_bytes;
}

// Begins a growth, if it may now, or however it is. Whether it has begun. Lock held.
static int try_enter(struct weir_growth *growth, uint64_t bytes, int however) {
    struct weir_reserve *reserve = &growth->state->reserves[growth->reserve];
    int credit = has_credit(growth->state, reserve, bytes);
    if (!however && (reserve->exclusive || (!credit && reserve->busy)))
        return 0;
    enter(growth, !credit);
    growth->fits = credit || reserve->room_bytes >= bytes;
    reserve->room_bytes -= reserve->room_bytes < bytes ? reserve->room_bytes : bytes;
    return 1;
}

CUresult weir_growth_begin(struct weir_growth *growth, struct weir_state *state,
                           enum weir_kind kind, uint64_t handle, uint64_t bytes) {
    uint64_t deadline_ms = 0;
    uint32_t *waiting = NULL;
    for (;;) {
        if (weir_lock(&state->lock))
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (waiting)
            __atomic_store_n(waiting, *waiting - 1, __ATOMIC_RELAXED);
        uint32_t number = weir_reserve_number(state, kind, handle);
        struct weir_reserve *reserve = &state->reserves[number % WEIR_RESERVES_MAX];
        int known = number != WEIR_NO_RESERVE && !reserve->orphan;
        int charged = known && reserve->gpu != WEIR_NO_INDEX;
        *growth = (struct weir_growth){.state = charged ? state : NULL, .reserve = number};
        if (!charged || try_enter(growth, bytes, waiting && weir_sys_now_ms() >= deadline_ms)) {
            weir_unlock(&state->lock);
            return known                       ? CUDA_SUCCESS
                   : number == WEIR_NO_RESERVE ? CUDA_ERROR_NOT_FOUND
                                               : CUDA_ERROR_INVALID_VALUE;
        }
        if (!waiting)
            deadline_ms = weir_sys_now_ms() + TURN_MS_MAX;
        waiting = &reserve->waiting;
        __atomic_store_n(waiting, *waiting + 1, __ATOMIC_RELAXED);
        uint32_t moves = reserve->moves;
        weir_unlock(&state->lock);
        weir_sys_futex_wait(&reserve->moves, moves, TURN_WAIT_US);
    }
}

// Has the driver give back unused memory down to `keep_bytes`; graphs all of it, but only if this
// growth is alone: what a graph was given for its launch is not in use before that.
static void trim(const struct weir_growth *growth, uint64_t keep_bytes) {
    int mode = weir_capture_relax();
    if (growth->kind == WEIR_KIND_POOL) {
        WEIR_REAL(cuMemPoolTrimTo)((CUmemoryPool)(uintptr_t)growth->handle, keep_bytes);
    } else if (growth->exclusive) {
        __atomic_fetch_add(&growth->state->gpus[growth->gpu].graph_trims, 1, __ATOMIC_RELAXED);
        WEIR_REAL(cuDeviceGraphMemTrim)((CUdevice)growth->gpu);
    }
    weir_capture_restore(mode);
}

// The same for what is not charged. A driver may give back whole chunks only, and keep one rather
// than be left with less than it was told to keep: then it is told to keep nothing.
static void trim_to(const struct weir_growth *growth, uint64_t charged_bytes) {
    uint64_t reserved;
    trim(growth, charged_bytes);
    if (growth->kind == WEIR_KIND_POOL && charged_bytes &&
        weir_reserved(growth->kind, growth->handle, &reserved) == CUDA_SUCCESS &&
        reserved > charged_bytes)
        trim(growth, 0);
}

// Brings the charge to what was read. 0, or what is missing: then nothing has changed. Lock held.
static uint64_t charge(struct weir_growth *growth, uint64_t reserved_bytes) {
    struct weir_state *state = growth->state;
    struct weir_reserve *reserve = &state->reserves[growth->reserve];
    uint64_t charged_bytes = reserve->charged_bytes;
    int exact = growth->alone && reserve->moves == growth->moves;
    if (reserved_bytes > charged_bytes) {
        uint64_t more = reserved_bytes - charged_bytes;
        uint64_t held = more < growth->held_bytes ? more : growth->held_bytes;
        if (more > held && !weir_credit_take(state, growth->gpu, more - held))
            return more - held;
        growth->held_bytes -= held;
        if (more > reserve->step_bytes)
            reserve->step_bytes = more;
        weir_reserve_charge(state, reserve, reserved_bytes);
    } else if (reserved_bytes < charged_bytes && exact) {
        weir_credit_give(state, growth->gpu, charged_bytes - reserved_bytes);
        weir_reserve_charge(state, reserve, reserved_bytes);
    }
    if (exact)
        growth->moves = reserve->moves;
    return 0;
}

// One look at what is reserved; the last one ends the growth, if nothing is missing. What is.
static uint64_t look(struct weir_growth *growth, int last) {
    struct weir_state *state = growth->state;
    uint64_t reserved;
    int known = weir_reserved(growth->kind, growth->handle, &reserved) == CUDA_SUCCESS;
    if (weir_lock(&state->lock))
        return 0;
    uint64_t missing = known ? charge(growth, reserved) : 0;
    int ended = last && !missing;
    int differs = ended && leave(growth, reserved) && known;
    weir_unlock(&state->lock);
    if (ended)
        wake(&state->reserves[growth->reserve]);
    if (differs)
        weir_reserve_settle(state, growth->reserve);
    if (!known)
        weir_loosen(state);  // it is charged once the driver tells
    return missing;
}

// Whether so much can be had on top of what is reserved, once other reserves have made room.
static int has_room(const struct weir_growth *growth, uint64_t bytes) {
    weir_reserves_make_room(growth->state, growth->gpu, bytes);
    return weir_obtainable(growth->state, growth->gpu, bytes) >= bytes;
}

CUresult weir_growth_cover(struct weir_growth *growth, int finally) {
    uint64_t missing = look(growth, 0);
    for (int i = 0; missing && i < LOOKS_MAX; i++) {
        if (!finally && !has_room(growth, missing))
            return CUDA_ERROR_NOT_READY;
        if (weir_obtain(growth->state, growth->gpu, growth->kind, missing) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
        growth->held_bytes += missing;
        missing = look(growth, 0);
    }
    return missing ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult weir_growth_end(struct weir_growth *growth) {
    int trimmed = 0;
    for (int i = 0; i < LOOKS_MAX; i++) {
        uint64_t missing = look(growth, 1);
        if (!missing)
            return CUDA_SUCCESS;
        if (!trimmed && !has_room(growth, missing)) {
            trim(growth, 0);
            trimmed = 1;
            continue;
        }
        if (weir_obtain(growth->state, growth->gpu, growth->kind, missing) != CUDA_SUCCESS)
            break;
        growth->held_bytes += missing;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_growth_learn(const struct weir_growth *growth, uint64_t before_bytes,
                       uint64_t after_bytes) {
    struct weir_state *state = growth->state;
    uint32_t lag = __atomic_load_n(&state->used_lags, __ATOMIC_RELAXED);
    if (!growth->exclusive)
        return;
    if (after_bytes >= before_bytes)
        lag = WEIR_LAG_SEEN;
    else if (lag < WEIR_LAG_NONE)
        lag++;
    __atomic_store_n(&state->used_lags, lag, __ATOMIC_RELAXED);
}

// What is not charged is given back before another growth can begin, which would find it, or use
// it.
void weir_growth_undone(struct weir_growth *growth) {
    struct weir_state *state = growth->state;
    if (weir_lock(&state->lock))
        return;
    uint64_t charged_bytes = state->reserves[growth->reserve].charged_bytes;
    weir_unlock(&state->lock);
    trim_to(growth, charged_bytes);
    if (weir_lock(&state->lock))
        return;
    leave(growth, 0);
    weir_unlock(&state->lock);
    wake(&state->reserves[growth->reserve]);
    weir_reserve_settle(state, growth->reserve);
}

// What is left of a reserve for the requests that follow, if this one fits into it.
static void set_room(const struct weir_growth *growth, uint64_t bytes) {
    struct weir_state *state = growth->state;
    if (weir_lock(&state->lock))
        return;
    state->reserves[growth->reserve].room_bytes = bytes;
    weir_unlock(&state->lock);
}

CUresult weir_growth_prepare(struct weir_growth *growth, uint64_t bytes) {
    struct weir_state *state = growth->state;
    uint64_t reserved;
    if (weir_reserved(growth->kind, growth->handle, &reserved) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    // So much is missing if nothing of what is in use can be used again, and so much even if all
    // can. Memory that was freed in stream order may be given out again though the driver still
    // counts it as used. Unless it is known not to do so, the larger amount is asked for only if it
    // can be had.
    uint64_t most = weir_reserve_used(growth->kind, growth->handle) + bytes;
    uint64_t least = bytes > reserved ? weir_charge_round(bytes - reserved) : 0;
    uint64_t wanted = most > reserved ? weir_charge_round(most - reserved) : 0;
    uint32_t lag = __atomic_load_n(&state->used_lags, __ATOMIC_RELAXED);
    if (growth->kind == WEIR_KIND_POOL)
        set_room(growth, most < reserved ? reserved - most : 0);
    if (wanted > least && lag != WEIR_LAG_NONE && !has_room(growth, wanted))
        wanted = least;
    CUresult result = weir_obtain(state, growth->gpu, growth->kind, wanted);
    if (result == CUDA_SUCCESS)
        growth->held_bytes = wanted;
    else
        weir_growth_undone(growth);
    return result;
}

void weir_reserve_trim(struct weir_state *state, uint32_t number, uint64_t keep_bytes) {
    struct weir_growth growth = {.state = state, .reserve = number};
    if (weir_lock(&state->lock))
        return;
    int now = !state->reserves[number].busy;
    if (now)
        enter(&growth, 1);
    weir_unlock(&state->lock);
    if (!now)
        return;
    trim_to(&growth, keep_bytes);
    if (weir_lock(&state->lock))
        return;
    leave(&growth, 0);
    weir_unlock(&state->lock);
    wake(&state->reserves[number]);
}
