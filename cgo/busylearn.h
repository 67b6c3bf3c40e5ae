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
// Rough samples that count: of so many in a row one at least has little of others' work in it.
#define WEIR_LEARN_ROUGH 16u
// So many clean samples count: with more, each new one has the weight of one of so many. Where they
// differ it takes more of them to know their mean.
#define WEIR_LEARN_WEIGHT 64u
#define WEIR_LEARN_WEIGHT_VARIED 256u
// So far off the mean, in 1/1024 of it, are samples usually that differ; and where chance makes
// them much longer or shorter.
#define WEIR_LEARN_VARIED 50u
#define WEIR_LEARN_WILD 200u
// Far off in a row, where samples differ: chance does not make so many.
#define WEIR_LEARN_ODD 4u
#define WEIR_LEARN_ODD_WILD 10u
// So many of an earlier time count as much as what is sampled now.
#define WEIR_LEARN_EARLIER 3u

struct weir_learned {
    uint64_t mean_ns;  // of clean samples
    uint64_t clean;    // of these there were so many
    uint64_t spread;   // how far they are off the mean, usually, in 1/1024 of it
    uint64_t odd_ns;   // the last clean one was this, and far off; 0: it was not
    uint64_t odd;      // so many in a row were, all longer or all shorter than the mean
    uint64_t mixed_ns[WEIR_LEARN_SAMPLES];  // the last ones
    uint64_t mixed;
    uint64_t rough_ns[WEIR_LEARN_ROUGH];  // the last ones
    uint64_t low_ns[WEIR_LEARN_ROUGH];    // their lower bounds
    uint64_t rough;
};

// Whether a clean sample is one of so many in a row that are far off the mean in the same
// direction: then launches of this kind take another time now, as where they do as much as an
// argument says. Where all were the same it is soon far off, and two are enough.
static inline int weir_learn_changed(struct weir_learned *l, uint64_t ns) {
    uint64_t off = ns > l->mean_ns ? ns - l->mean_ns : l->mean_ns - ns;
    int same = l->clean > 2 && l->spread < WEIR_LEARN_VARIED;
    int odd =
        same ? off > l->mean_ns / 8 : l->clean && (ns / 2 > l->mean_ns || ns < l->mean_ns / 2);
    if (!odd || (ns > l->mean_ns) != (l->odd_ns > l->mean_ns))
        l->odd = 0;
    l->odd_ns = odd ? ns : 0;
    l->odd += (uint64_t)odd;
    return l->odd >= (same                          ? 2u
                      : l->spread < WEIR_LEARN_WILD ? WEIR_LEARN_ODD
                                                    : WEIR_LEARN_ODD_WILD);
}

// Takes a clean sample. Of those that are far off none counts until it is known which way they go.
static inline void weir_learn_clean(struct weir_learned *l, uint64_t ns) {
    int same = l->clean > 2 && l->spread < WEIR_LEARN_VARIED;
    if (weir_learn_changed(l, ns)) {
        l->clean = 0;
        l->mean_ns = 0;
        l->odd = l->odd_ns = 0;
    } else if (l->odd_ns && same) {
        return;
    }
    uint64_t off = ns > l->mean_ns ? ns - l->mean_ns : l->mean_ns - ns;
    l->clean++;
    uint64_t most = l->spread < WEIR_LEARN_VARIED ? WEIR_LEARN_WEIGHT : WEIR_LEARN_WEIGHT_VARIED;
    uint64_t weight = l->clean < most ? l->clean : most;
    l->mean_ns =
        (uint64_t)((int64_t)l->mean_ns + ((int64_t)ns - (int64_t)l->mean_ns) / (int64_t)weight);
    uint64_t spread = l->clean > 1 && l->mean_ns ? off * 1024 / l->mean_ns : 0;
    if (l->clean < 3)
        l->spread = spread > l->spread ? spread : l->spread;
    else if (!l->odd_ns)  // one that is far off says nothing of how far others are
        l->spread = (l->spread * 7 + (spread < 8192 ? spread : 8192)) / 8;
}

// What was learned may hold others' work, since they came: it is left behind as soon as samples say
// something else.
static inline void weir_learn_renew(struct weir_learned *l) {
    l->clean = l->clean < WEIR_LEARN_EARLIER ? l->clean : WEIR_LEARN_EARLIER;
    l->mixed = l->rough = 0;
}

// Takes a rough sample, of which so much at most is others' work.
static inline void weir_learn_rough(struct weir_learned *l, uint64_t ns, uint64_t foreign_ns) {
    uint64_t place = l->rough++ % WEIR_LEARN_ROUGH;
    l->rough_ns[place] = ns;
    l->low_ns[place] = ns > foreign_ns ? ns - foreign_ns : 0;
}

// The best that the last rough samples say: the least of them and the highest lower bound. Where
// these are near each other it is the lower, which is reached more often; else the middle. A launch
// that has become shorter goes below what was the lower bound.
static inline uint64_t weir_learned_rough(const struct weir_learned *l) {
    uint64_t least = UINT64_MAX, low = 0;
    for (uint64_t i = 0; i < l->rough && i < WEIR_LEARN_ROUGH; i++) {
        least = l->rough_ns[i] < least ? l->rough_ns[i] : least;
        low = l->low_ns[i] > low ? l->low_ns[i] : low;
    }
    if (!l->rough)
        return 0;
    low = low < least ? low : least;
    return low > least / 4 * 3 ? low : low ? low + (least - low) / 2 : least;
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

// Whether launches of this kind differ, or may take another time now: then more samples are worth
// their calls.
static inline int weir_learned_is_eager(const struct weir_learned *l) {
    return l->odd_ns || (l->clean > 2 && l->spread >= WEIR_LEARN_VARIED);
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
