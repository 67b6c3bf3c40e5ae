// movable.c: see movable.h. Live ones are found by binary search among their addresses: putting one
// in moves those behind it, which for some thousands takes as long as the driver's call.
#include "movable.h"

#include <string.h>

#include "client.h"

static const struct weir_slab_shape shape = {sizeof(struct weir_movable), WEIR_MOVABLES_MAX, 4096};

_Static_assert(sizeof(struct weir_movable) % 8 == 0, "a slab's record");

struct weir_swap *weir_swap_make(struct weir_state *state) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    if (!swap) {
        struct weir_swap *mine = weir_sys_map(sizeof(*mine));
        if (!mine)
            return NULL;
        weir_sys_madvise(mine, sizeof(*mine), WEIR_MADV_WIPEONFORK);
        mine->state = state;
        if (!__atomic_compare_exchange_n(&state->swap, &swap, mine, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            weir_sys_unmap(mine, sizeof(*mine));  // another thread was faster
        else
            swap = mine;
    }
    return weir_slab_ready(&swap->movables, &shape, &state->lock) == 0 ? swap : NULL;
}

struct weir_swap *weir_swap_live(struct weir_state *state) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    int live = swap && __atomic_load_n(&swap->places_used, __ATOMIC_RELAXED);
    return live && weir_enforced(&state) ? swap : NULL;
}

struct weir_movable *weir_movable_at(const struct weir_swap *swap, uint32_t number) {
    return weir_slab_at(&swap->movables, &shape, number);
}

static void forget(struct weir_swap *swap, uint32_t number) {
    weir_slab_free(&swap->movables, &shape, weir_slab_hash(weir_movable_at(swap, number)->id),
                   number);
}

uint32_t weir_movable_new(struct weir_swap *swap, uint32_t gpu, uint64_t context, uint64_t asked) {
    uint64_t id = swap->ids + 1;
    uint32_t number = weir_slab_new(&swap->movables, &shape, weir_slab_hash(id));
    if (!number)
        return 0;
    struct weir_movable *movable = weir_movable_at(swap, number);
    swap->ids = movable->id = id;
    __atomic_fetch_or(&swap->gpus_used, 1ull << gpu, __ATOMIC_RELAXED);
    movable->state = WEIR_MOVABLE_ASKED;
    movable->gpu = gpu;
    movable->context = context;
    movable->asked_bytes = asked;
    movable->bytes = (asked + WEIR_MOVABLE_UNIT - 1) / WEIR_MOVABLE_UNIT * WEIR_MOVABLE_UNIT;
    return number;
}

void weir_movable_granted(struct weir_swap *swap, uint32_t number) {
    struct weir_movable *movable = weir_movable_at(swap, number);
    movable->state = WEIR_MOVABLE_GRANTED;
    movable->connection = swap->connection;
}

static void list_gone(struct weir_swap *swap, uint32_t number) {
    struct weir_movable *movable = weir_movable_at(swap, number);
    movable->state = WEIR_MOVABLE_GONE;
    movable->next = swap->gone;
    swap->gone = number;
}

void weir_movable_unwanted(struct weir_swap *swap, uint32_t number) {
    if (weir_movable_at(swap, number)->state == WEIR_MOVABLE_ASKED)
        forget(swap, number);
    else
        list_gone(swap, number);
}

// The first place behind those that begin at or before an address.
static uint32_t place_behind(const struct weir_swap *swap, uint64_t address) {
    uint32_t low = 0, high = swap->places_used;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (swap->places[middle].pointer <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_in(struct weir_swap *swap, uint32_t number) {
    uint64_t pointer = weir_movable_at(swap, number)->pointer;
    uint32_t at = place_behind(swap, pointer), used = swap->places_used;
    memmove(&swap->places[at + 1], &swap->places[at], (used - at) * sizeof(swap->places[0]));
    swap->places[at] = (struct weir_movable_place){pointer, number};
    __atomic_store_n(&swap->places_used, used + 1, __ATOMIC_RELAXED);
}

// Of two at one address, one of which ended unseen, the one that is meant.
static void take_out(struct weir_swap *swap, uint32_t number) {
    uint64_t pointer = weir_movable_at(swap, number)->pointer;
    uint32_t at = place_behind(swap, pointer), used = swap->places_used;
    while (at > 0 && swap->places[at - 1].pointer == pointer) {
        at--;
        if (swap->places[at].number != number)
            continue;
        memmove(&swap->places[at], &swap->places[at + 1],
                (used - at - 1) * sizeof(swap->places[0]));
        __atomic_store_n(&swap->places_used, used - 1, __ATOMIC_RELAXED);
        return;
    }
}

void weir_movable_made(struct weir_swap *swap, uint32_t number, uint64_t pointer) {
    struct weir_movable *movable = weir_movable_at(swap, number);
    movable->pointer = pointer;
    movable->state = WEIR_MOVABLE_LIVE;
    put_in(swap, number);
}

uint32_t weir_movable_holding(const struct weir_swap *swap, uint64_t address) {
    uint32_t at = place_behind(swap, address);
    if (!at)
        return 0;
    const struct weir_movable_place *place = &swap->places[at - 1];
    const struct weir_movable *movable = weir_movable_at(swap, (uint32_t)place->number);
    return address - place->pointer < movable->bytes ? (uint32_t)place->number : 0;
}

uint32_t weir_movable_beginning(const struct weir_swap *swap, uint64_t address) {
    uint32_t number = weir_movable_holding(swap, address);
    return number && weir_movable_at(swap, number)->pointer == address ? number : 0;
}

uint32_t weir_movable_with(const struct weir_swap *swap, uint64_t id) {
    uint32_t number = weir_slab_first(&swap->movables, &shape, weir_slab_hash(id));
    while (number && weir_movable_at(swap, number)->id != id)
        number = weir_slab_next(&swap->movables, &shape, number);
    const struct weir_movable *movable = number ? weir_movable_at(swap, number) : NULL;
    int known = movable && movable->connection == swap->connection &&
                (movable->state == WEIR_MOVABLE_LIVE || movable->state == WEIR_MOVABLE_FREEING);
    return known ? number : 0;
}

void weir_movable_freeing(struct weir_swap *swap, uint32_t number) {
    take_out(swap, number);
    weir_movable_at(swap, number)->state = WEIR_MOVABLE_FREEING;
}

void weir_movable_kept(struct weir_swap *swap, uint32_t number) {
    weir_movable_at(swap, number)->state = WEIR_MOVABLE_LIVE;
    put_in(swap, number);
}

void weir_movable_freed(struct weir_swap *swap, uint32_t number) {
    list_gone(swap, number);
}

// ---- The ends of contexts ----

void weir_movables_retire(struct weir_state *state, uint64_t context, uint32_t ticket) {
    struct weir_swap *swap = state->swap;
    for (uint32_t i = 0; swap && i < swap->places_used; i++) {
        struct weir_movable *movable = weir_movable_at(swap, (uint32_t)swap->places[i].number);
        if (movable->context == context && !movable->ticket)
            movable->ticket = ticket;
    }
}

void weir_movables_restore(struct weir_state *state, uint32_t ticket) {
    struct weir_swap *swap = state->swap;
    for (uint32_t i = 0; swap && i < swap->places_used; i++) {
        struct weir_movable *movable = weir_movable_at(swap, (uint32_t)swap->places[i].number);
        if (movable->ticket == ticket)
            movable->ticket = 0;
    }
}

void weir_movables_ended(struct weir_state *state, uint32_t ticket) {
    struct weir_swap *swap = state->swap;
    uint32_t kept = 0;
    for (uint32_t i = 0; swap && i < swap->places_used; i++) {
        struct weir_movable_place place = swap->places[i];
        if (weir_movable_at(swap, (uint32_t)place.number)->ticket == ticket)
            list_gone(swap, (uint32_t)place.number);
        else
            swap->places[kept++] = place;
    }
    if (swap)
        __atomic_store_n(&swap->places_used, kept, __ATOMIC_RELAXED);
}

// ---- What the agent hears ----

// Those that are gone, of one GPU, as many as a message holds, taken off the list. Of those that
// this connection does not know of it is not told. Whether there is anything to be said.
static int gather(struct weir_swap *swap, struct weir_named *named) {
    struct weir_state *state = swap->state;
    uint32_t kept = 0, next;
    *named = (struct weir_named){.header = {WEIR_MSG_FREED, sizeof(*named), 0}};
    for (uint32_t number = swap->gone; number; number = next) {
        struct weir_movable *movable = weir_movable_at(swap, number);
        uint32_t index = state->gpus[movable->gpu].index;
        int known = movable->connection == swap->connection && index != WEIR_NO_INDEX;
        next = movable->next;
        if (known && (named->count == WEIR_NAMED_MAX || (named->count && named->gpu != index))) {
            movable->next = kept;
            kept = number;
            continue;
        }
        if (known) {
            named->gpu = index;
            named->ids[named->count++] = movable->id;
        }
        forget(swap, number);
    }
    swap->gone = kept;
    return named->count != 0;
}

// What the agent is to hear: what found no room before, else what is gone since. Whether there is
// anything. Lock held.
static int to_tell(struct weir_swap *swap) {
    if (swap->told.count && swap->told_on == swap->connection)
        return 1;
    swap->told_on = swap->connection;
    swap->told.count = 0;  // what another connection was to hear
    return swap->gone && gather(swap, &swap->told);
}

void weir_movables_tell(struct weir_state *state) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    struct weir_named named;
    while (swap && weir_lock(&state->lock) == 0) {
        int due = state->link_up && !swap->telling && to_tell(swap);
        int fd = state->fd;
        uint64_t cookie = state->cookie;
        swap->telling |= (uint32_t)due;
        if (due)
            named = swap->told;
        weir_unlock(&state->lock);
        if (!due)
            return;
        int rc = weir_client_send(fd, cookie, &named);
        if (weir_lock(&state->lock))
            return;
        swap->telling = 0;
        if (rc != -EAGAIN)
            swap->told.count = 0;
        weir_unlock(&state->lock);
        if (rc)
            return;
    }
}

// What is to be said of one to a new connection. Whether there is anything.
static int declaration(struct weir_swap *swap, uint32_t number, struct weir_request *request) {
    struct weir_movable *movable = weir_movable_at(swap, number);
    uint32_t index = swap->state->gpus[movable->gpu].index;
    if (movable->state < WEIR_MOVABLE_GRANTED || movable->state > WEIR_MOVABLE_FREEING ||
        index == WEIR_NO_INDEX)
        return 0;
    movable->connection = swap->connection;
    *request = (struct weir_request){
        .header = {WEIR_MSG_REQUEST, sizeof(*request), 1},
        .gpu = index,
        .kind = WEIR_KIND_MOVABLE,
        .bytes = movable->bytes,
        .id = movable->id,
        .here_bytes = movable->here_bytes,
        .flags = WEIR_REQUEST_AGAIN,
    };
    return 1;
}

int weir_movables_declare(struct weir_state *state, int fd, uint64_t cookie) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    struct weir_request request;
    if (!swap)
        return 0;
    if (weir_lock(&state->lock))
        return -EDEADLK;
    swap->connection++;
    uint32_t used = swap->movables.used;
    weir_unlock(&state->lock);
    // What is granted later is on this connection already.
    for (uint32_t number = 1; number <= used; number++) {
        if (weir_lock(&state->lock))
            return -EDEADLK;
        int due = declaration(swap, number, &request);
        weir_unlock(&state->lock);
        int rc = due ? weir_client_send_patiently(fd, cookie, &request) : 0;
        if (rc)
            return rc;
    }
    return 0;
}
