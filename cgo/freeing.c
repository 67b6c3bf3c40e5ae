// freeing.c: see freeing.h. Whoever takes a place owns it until its pointer is written, and again
// once the table's lock is held: nobody else writes `pointer` and `stamp`, and `overtaken` is only
// written under the lock, in places whose pointer is written.
#include "freeing.h"

#define TAKING 1u

static int take_place(struct weir_freeing *place) {
    uint64_t none = 0;
    return __atomic_load_n(&place->pointer, __ATOMIC_RELAXED) == 0 &&
           __atomic_compare_exchange_n(&place->pointer, &none, TAKING, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

// At least `count` places are in use from now on.
static void use(struct weir_freeings *freeings, uint32_t count) {
    uint32_t used = __atomic_load_n(&freeings->used, __ATOMIC_RELAXED);
    while (used < count && !__atomic_compare_exchange_n(&freeings->used, &used, count, 0,
                                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

uint32_t weir_freeing_begin(struct weir_freeings *freeings, uint64_t pointer, uint64_t stamp) {
    for (uint32_t i = 0; pointer > TAKING && i < WEIR_FREEING_MAX; i++) {
        struct weir_freeing *place = &freeings->place[i];
        if (!take_place(place))
            continue;
        use(freeings, i + 1);
        place->stamp = stamp;
        place->overtaken = 0;
        __atomic_store_n(&place->pointer, pointer, __ATOMIC_RELEASE);
        return i;
    }
    return WEIR_NO_FREEING;
}

void weir_freeing_overtake(struct weir_freeings *freeings, uint64_t pointer, uint64_t stamp) {
    uint32_t used = __atomic_load_n(&freeings->used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        struct weir_freeing *place = &freeings->place[i];
        if (__atomic_load_n(&place->pointer, __ATOMIC_ACQUIRE) == pointer && place->stamp < stamp)
            place->overtaken = 1;
    }
}

void weir_freeing_end(struct weir_freeings *freeings, uint32_t place) {
    if (place != WEIR_NO_FREEING)
        __atomic_store_n(&freeings->place[place].pointer, 0, __ATOMIC_RELEASE);
}
