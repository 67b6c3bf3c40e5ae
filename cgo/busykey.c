// busykey.c: the tables of keys and of their families in busy.h. Nothing here calls the driver.
//
// Both tables are searched without the lock. Who finds no place takes another one's: of a key that
// was never measured before one that was, and the oldest. Of a family's line it is known whose it
// is, so that it is never taken for another's.
#include "busy.h"

#include <string.h>

// Kinds of copies are small numbers, functions and graphs are addresses.
#define KINDS_OF_COPIES 4096u
// All graphs are one family: of what one takes another says little.
#define FAMILY_OF_GRAPHS 1u
// A line that has become another by more than one in so many is told to keys.
#define CHANGED_PART 32u

// ---- Keys ----

// The one of a key's places whose owner is missed least.
static struct weir_busy_key *least_of(struct weir_busy *busy, uint64_t key) {
    struct weir_busy_key *least = NULL;
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        struct weir_busy_key *at = &busy->keys[weir_busy_key_home(key, i)];
        int better = !least || WEIR_GET(at->since_ns) < WEIR_GET(least->since_ns);
        if (least && WEIR_GET(at->sure) != WEIR_GET(least->sure))
            better = !WEIR_GET(at->sure);
        least = better ? at : least;
    }
    return least;
}

struct weir_busy_key *weir_busy_key_enter(struct weir_busy *busy, uint64_t key) {
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        struct weir_busy_key *at = &busy->keys[weir_busy_key_home(key, i)];
        uint64_t none = __atomic_load_n(&at->key, __ATOMIC_ACQUIRE);
        // An exchange of a key that is there would take its line from all threads that launch.
        if (none != key &&
            (none || (!__atomic_compare_exchange_n(&at->key, &none, key, 0, __ATOMIC_ACQ_REL,
                                                   __ATOMIC_ACQUIRE) &&
                      none != key)))
            continue;
        if (!WEIR_GET(at->since_ns))
            WEIR_PUT(at->since_ns, weir_busy_clock());
        return at;
    }
    struct weir_busy_key *at = least_of(busy, key);
    if (weir_lock(&busy->lock))
        return at;
    __atomic_store_n(&at->expected_ns, 0, __ATOMIC_RELAXED);
    WEIR_PUT(at->unknown, 0);
    WEIR_PUT(at->guesses, 0);
    WEIR_PUT(at->guessed_ns, 0);
    WEIR_PUT(at->measuring, 0);
    WEIR_PUT(at->visits, 0);
    WEIR_PUT(at->useless, 0);
    WEIR_PUT(at->told, 0);
    WEIR_PUT(at->roughly_ns, 0);
    WEIR_PUT(at->sure, 0);
    WEIR_PUT(at->eager, 0);
    WEIR_PUT(at->clean, 0);
    WEIR_PUT(at->epoch, 0);
    WEIR_PUT(at->pause, 1);
    WEIR_PUT(at->family, NULL);
    memset(&at->learned, 0, sizeof(at->learned));
    WEIR_PUT(at->since_ns, weir_busy_clock());
    __atomic_store_n(&at->key, key, __ATOMIC_RELEASE);
    weir_unlock(&busy->lock);
    return at;
}

// ---- Families, for launching threads ----

static uint64_t family_of(const struct weir_busy_kind *kind, uint32_t gpu, uint64_t *amount) {
    if (kind->what < KINDS_OF_COPIES) {
        *amount = kind->size;
        return weir_busy_key((void *)(uintptr_t)kind->what, 0, 0, gpu);
    }
    *amount = kind->size ? weir_kernel_amount(kind->size, kind->shape) : 0;
    return kind->size ? weir_busy_key((void *)(uintptr_t)kind->what, 0, 0, gpu)
                      : weir_busy_key(NULL, FAMILY_OF_GRAPHS, 0, gpu);
}

static struct weir_busy_family *enter_family(struct weir_busy *busy, uint64_t key) {
    struct weir_busy_family *at = NULL;
    for (uint32_t i = 0; i < WEIR_BUSY_PROBES; i++) {
        at = &busy->families[(key >> 40 ^ key >> 20 ^ i) & (WEIR_BUSY_FAMILIES - 1)];
        uint64_t none = 0;
        if (WEIR_GET(at->key) == key)
            return at;
        if (__atomic_compare_exchange_n(&at->key, &none, key, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            WEIR_PUT(at->since_ns, weir_busy_clock());
            return at;
        }
        if (none == key)
            return at;
    }
    // The last one's place: what the helper knows is still the old one's, and is not told.
    WEIR_PUT(at->since_ns, weir_busy_clock());
    __atomic_store_n(&at->key, key, __ATOMIC_RELEASE);
    return at;
}

static struct weir_line line_of(const struct weir_busy_family *family) {
    return (struct weir_line){
        .base_ns = WEIR_GET(family->line.base_ns),
        .rise = WEIR_GET(family->line.rise),
        .least = WEIR_GET(family->line.least),
        .most = WEIR_GET(family->line.most),
        .sure = WEIR_GET(family->line.sure),
    };
}

static struct weir_told tell(const struct weir_busy_family *family, uint64_t key, uint64_t amount) {
    if (__atomic_load_n(&family->owner, __ATOMIC_ACQUIRE) != key)
        return (struct weir_told){0, 0, 0};
    struct weir_line line = line_of(family);
    return (struct weir_told){weir_line_ns(&line, amount), weir_line_covers(&line, amount),
                              WEIR_GET(family->epoch)};
}

struct weir_told weir_busy_family_tell(struct weir_busy *busy, struct weir_busy_key *known,
                                       const struct weir_busy_kind *kind, uint32_t gpu) {
    uint64_t amount, key = family_of(kind, gpu, &amount);
    struct weir_busy_family *family = WEIR_GET(known->family);
    if (!family || WEIR_GET(family->key) != key) {
        family = enter_family(busy, key);
        WEIR_PUT(known->amount, amount);
        WEIR_PUT(known->family_key, key);
        WEIR_PUT(known->family, family);
    }
    return tell(family, key, amount);
}

// ---- Families, for the helper ----

struct weir_told weir_busy_family_told(const struct weir_busy_key *known) {
    const struct weir_busy_family *family = WEIR_GET(known->family);
    if (!family)
        return (struct weir_told){0, 0, 0};
    return tell(family, WEIR_GET(known->family_key), WEIR_GET(known->amount));
}

static int differs(uint64_t a, uint64_t b) {
    return (a > b ? a - b : b - a) > (a < b ? a : b) / CHANGED_PART;
}

// Whether keys are to be told of a line.
static int is_news(const struct weir_line *old, const struct weir_line *line) {
    return line->sure &&
           (!old->sure ||
            differs(weir_line_ns(old, line->least), weir_line_ns(line, line->least)) ||
            differs(weir_line_ns(old, line->most), weir_line_ns(line, line->most)));
}

static void publish(struct weir_busy_family *family, const struct weir_line *line) {
    WEIR_PUT(family->line.base_ns, line->base_ns);
    WEIR_PUT(family->line.rise, line->rise);
    WEIR_PUT(family->line.least, line->least);
    WEIR_PUT(family->line.most, line->most);
    WEIR_PUT(family->line.sure, line->sure);
}

int weir_busy_family_learn(struct weir_busy_family *family, const struct weir_busy_key *known,
                           const struct weir_sample *sample) {
    uint64_t key = WEIR_GET(known->family_key);
    if (WEIR_GET(family->key) != key)
        return 0;
    if (WEIR_GET(family->owner) != key) {
        __atomic_store_n(&family->owner, 0, __ATOMIC_RELEASE);
        family->fit = (struct weir_fit){.samples = 0};
        family->learned = (struct weir_learned){.mean_ns = 0};
    }
    int old_epoch = WEIR_GET(family->epoch) != sample->epoch;
    int known_now = 1;
    if (!sample->shared && family->learned_epoch != sample->epoch) {
        family->learned = (struct weir_learned){.mean_ns = 0};
        family->learned_epoch = sample->epoch;
    }
    if (sample->sort != WEIR_SORT_CLEAN)
        weir_learn(&family->learned, sample->ns, sample->sort, sample->foreign_ns);
    else if (old_epoch)
        known_now = weir_fit_renew(&family->fit, WEIR_GET(known->amount), sample->ns);
    else
        weir_fit_add(&family->fit, WEIR_GET(known->amount), sample->ns);
    if (sample->sort == WEIR_SORT_CLEAN && known_now)
        WEIR_PUT(family->epoch, sample->epoch);
    struct weir_line old = line_of(family), line = weir_fit_line(&family->fit);
    if (!line.base_ns)
        line.base_ns = weir_learned_ns(&family->learned);
    publish(family, &line);
    __atomic_store_n(&family->owner, key, __ATOMIC_RELEASE);
    return is_news(&old, &line);
}
