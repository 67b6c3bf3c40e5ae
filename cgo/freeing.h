// freeing.h: the frees that are under way in this process.
//
// A free looks for its entry in the table after the driver has freed the memory; by then another
// thread may have been given the same address and have put an entry of its own. Entries in buckets
// have no stamp by which the two could be told apart. So each free is announced here before the
// driver is called, and told when an entry of its pointer that is younger goes into a bucket.
//
// Announcing takes no lock; all else needs that of the table's owner. A thread that is ended in the
// driver's call leaves its place taken: places are many, and one without a place leaves in a bucket
// what it cannot tell (its charge ends when the address is allocated anew). All zeros is empty.
#ifndef WEIR_FREEING_H
#define WEIR_FREEING_H

#include <stdint.h>

#define WEIR_FREEING_MAX 256u
#define WEIR_NO_FREEING UINT32_MAX

struct weir_freeing {
    uint64_t pointer;  // 0: nobody's place; 1: being taken
    uint64_t stamp : 63;
    uint64_t overtaken : 1;  // an entry of `pointer` younger than `stamp` has got into a bucket
};

struct weir_freeings {
    uint32_t used;  // places that were ever taken: those beyond need not be looked at
    struct weir_freeing place[WEIR_FREEING_MAX];
};

// Announces a free of `pointer`, begun at `stamp`. Returns its place, or WEIR_NO_FREEING: none is
// left, or that is no pointer.
uint32_t weir_freeing_begin(struct weir_freeings *freeings, uint64_t pointer, uint64_t stamp);

// An entry of `pointer` that was put at `stamp` has got into a bucket.
void weir_freeing_overtake(struct weir_freeings *freeings, uint64_t pointer, uint64_t stamp);

// Whether the entry of its pointer in a bucket may be younger than a free.
static inline int weir_freeing_overtaken(const struct weir_freeings *freeings, uint32_t place) {
    return place == WEIR_NO_FREEING || freeings->place[place].overtaken;
}

// The free is over.
void weir_freeing_end(struct weir_freeings *freeings, uint32_t place);

#endif
