// busylearn.h: what launches of one kind take, learned from samples. Pure.
//
// Samples are of three sorts. Those of a launch that had the GPU to itself are right, and averaged.
// One that was alone when it was made may have others' work in it: of these the least is nearest.
// Those that others were in the way of from the beginning are only better than nothing. Where the
// others' work is known that can be in a sample, that gives a lower bound, too.
#ifndef WEIR_BUSYLEARN_H
#define WEIR_BUSYLEARN_H

#include <stdint.h>

enum weir_sort { WEIR_SORT_CLEAN, WEIR_SORT_MIXED, WEIR_SORT_ROUGH };

#define WEIR_LEARN_SAMPLES 8u
// So many clean samples count: with more, each new one has the weight of one of so many.
#define WEIR_LEARN_WEIGHT 64u

// Far off in a row, where samples differ: chance does not make so many.
#define WEIR_LEARN_ODD 4u

struct weir_learned {
    uint64_t mean_ns;  // of clean samples
    uint64_t clean;    // of these there were so many
    uint64_t spread;   // how far they are off the mean, usually, in 1/1024 of it
    uint64_t odd_ns;   // the last clean one was this, and far off; 0: it was not
    uint64_t odd;      // so many in a row were, all longer or all shorter than the mean
    uint64_t mixed_ns[WEIR_LEARN_SAMPLES];  // the last ones
    uint64_t mixed;
    uint64_t rough_ns;  // the least
    uint64_t low_ns;    // the highest lower bound
    uint64_t rough;
};

// Whether a clean sample is one of so many in a row that are far off the mean in the same
// direction: then launches of this kind take another time now, as where they do as much as an
// argument says. Where all were the same it is soon far off, and two are enough.
static inline int weir_learn_changed(struct weir_learned *l, uint64_t ns) {
    uint64_t off = ns > l->mean_ns ? ns - l->mean_ns : l->mean_ns - ns;
    int same = l->clean > 2 && l->spread < 50;
    int odd =
        same ? off > l->mean_ns / 8 : l->clean && (ns / 2 > l->mean_ns || ns < l->mean_ns / 2);
    if (!odd || (ns > l->mean_ns) != (l->odd_ns > l->mean_ns))
        l->odd = 0;
    l->odd_ns = odd ? ns : 0;
    l->odd += (uint64_t)odd;
    return l->odd >= (same ? 2u : WEIR_LEARN_ODD);
}

// Takes a clean sample. Of those that are far off none counts until it is known which way they go.
static inline void weir_learn_clean(struct weir_learned *l, uint64_t ns) {
    int same = l->clean > 2 && l->spread < 50;
    if (weir_learn_changed(l, ns)) {
        l->clean = 0;
        l->mean_ns = 0;
        l->odd = l->odd_ns = 0;
    } else if (l->odd_ns && same) {
        return;
    }
    uint64_t off = ns > l->mean_ns ? ns - l->mean_ns : l->mean_ns - ns;
    l->clean++;
    uint64_t weight = l->clean < WEIR_LEARN_WEIGHT ? l->clean : WEIR_LEARN_WEIGHT;
    l->mean_ns =
        (uint64_t)((int64_t)l->mean_ns + ((int64_t)ns - (int64_t)l->mean_ns) / (int64_t)weight);
    uint64_t spread = l->clean > 1 && l->mean_ns ? off * 1024 / l->mean_ns : 0;
    l->spread = l->clean < 3 ? (spread > l->spread ? spread : l->spread)
                             : (l->spread * 7 + (spread < 8192 ? spread : 8192)) / 8;
}

// Takes a rough sample, of which so much at most is others' work.
static inline void weir_learn_rough(struct weir_learned *l, uint64_t ns, uint64_t foreign_ns) {
    if (!l->rough++ || ns < l->rough_ns)
        l->rough_ns = ns;
    if (ns > foreign_ns && ns - foreign_ns > l->low_ns)
        l->low_ns = ns - foreign_ns;
}

// The best that rough samples say: where the bounds are near each other, the lower, which is
// reached more often; else the middle. A launch that has become shorter goes below what was the
// lower bound.
static inline uint64_t weir_learned_rough(const struct weir_learned *l) {
    uint64_t low = l->low_ns < l->rough_ns ? l->low_ns : l->rough_ns;
    return low > l->rough_ns / 4 * 3 ? low : low ? low + (l->rough_ns - low) / 2 : l->rough_ns;
}

static inline void weir_learn(struct weir_learned *l, uint64_t ns, enum weir_sort sort,
                              uint64_t foreign_ns) {
    if (sort == WEIR_SORT_CLEAN)
        weir_learn_clean(l, ns);
    else if (sort == WEIR_SORT_MIXED)
        l->mixed_ns[l->mixed++ % WEIR_LEARN_SAMPLES] = ns;
    else
        weir_learn_rough(l, ns, foreign_ns);
}

// Whether only samples with others' work in them are there.
static inline int weir_learned_is_rough(const struct weir_learned *l) {
    return !l->clean && !l->mixed;
}

// What a launch is expected to take, in ns; 0: not known, as long as a few rough samples are all.
static inline uint64_t weir_learned_ns(const struct weir_learned *l) {
    uint64_t least = l->rough ? weir_learned_rough(l) : UINT64_MAX;
    if (weir_learned_is_rough(l) && l->rough < WEIR_LEARN_SAMPLES)
        return 0;
    for (uint64_t i = 0; i < l->mixed && i < WEIR_LEARN_SAMPLES; i++)
        least = l->mixed_ns[i] < least ? l->mixed_ns[i] : least;
    uint64_t ns = l->clean ? l->mean_ns : least;
    return ns ? ns : 1;
}

// The same, as far as can be said at all.
static inline uint64_t weir_learned_roughly_ns(const struct weir_learned *l) {
    uint64_t ns = weir_learned_ns(l);
    return ns ? ns : weir_learned_rough(l);
}

// How many chances to sample go by for each that should be taken: none at first, nor while samples
// differ, and more the longer nothing changes.
static inline uint64_t weir_learn_pause(const struct weir_learned *l) {
    uint64_t samples = l->clean + l->mixed;
    if (samples < 4 || l->odd_ns || (l->clean && l->spread > 20))
        return 1;
    return samples / 2 < 16 ? samples / 2 : 16;
}

#endif
