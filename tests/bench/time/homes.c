// homes.c: see homes.h. Each form does what the gate does while it is open, and no more: says that
// the thread is inside, reads the lease, launches, reads the lease, says that it is outside.
#include "homes.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "../../../cgo/sys.h"

#define WORDS 4096u
#define STRIPES 64u
#define TRIES 3

static struct word {
    uint64_t state;
    uintptr_t owner;
} __attribute__((aligned(64))) words[WORDS], stripes[STRIPES];

static uint32_t lease = 2, used;

static struct word *claim(void) {
    return &words[__atomic_fetch_add(&used, 1, __ATOMIC_SEQ_CST) % WORDS];
}

static inline void inside(struct word *word) {
    __atomic_store_n(&word->state, word->state + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void outside(struct word *word) {
    __atomic_store_n(&word->state, word->state + 1, __ATOMIC_RELEASE);
}

static inline int closed(void) {
    return __atomic_load_n(&lease, __ATOMIC_ACQUIRE) & 1;
}

#define FORM(name, find, enter, leave)                                                             \
    static void name(long count) {                                                                 \
        for (long i = 0; i < count; i++) {                                                         \
            struct word *word = find();                                                            \
            enter(word);                                                                           \
            if (closed())                                                                          \
                return;                                                                            \
            launch();                                                                              \
            if (closed())                                                                          \
                return;                                                                            \
            leave(word);                                                                           \
        }                                                                                          \
    }

// A thread-local word in the static block.
static __thread struct word *mine __attribute__((tls_model("initial-exec")));

static inline struct word *find_local(void) {
    if (__builtin_expect(!mine, 0))
        mine = claim();
    return mine;
}

// A word found by the address of the thread's control block, which a dead thread's successor has,
// too.
static inline struct word *find_by_address(void) {
    uintptr_t self = weir_sys_self();
    uint32_t at = (uint32_t)((self >> 6) * 0x9e3779b97f4a7c15u >> 52);
    while (__builtin_expect(words[at].owner != self, 0)) {
        uintptr_t none = 0;
        if (__atomic_compare_exchange_n(&words[at].owner, &none, self, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            break;
        at = (at + 1) % WORDS;
    }
    return &words[at];
}

// The C library's own thread-specific data, as if its functions had been looked up.
static pthread_key_t key;
static void *(*volatile get_specific)(pthread_key_t) = pthread_getspecific;

static inline struct word *find_specific(void) {
    struct word *word = get_specific(key);
    if (__builtin_expect(!word, 0))
        pthread_setspecific(key, word = claim());
    return word;
}

// Words that threads share, by the same address.
static inline struct word *find_stripe(void) {
    return &stripes[(weir_sys_self() >> 6) * 0x9e3779b97f4a7c15u >> 58];
}

static inline void inside_shared(struct word *word) {
    __atomic_fetch_add(&word->state, 1, __ATOMIC_SEQ_CST);
}

static inline void outside_shared(struct word *word) {
    __atomic_fetch_sub(&word->state, 1, __ATOMIC_RELEASE);
}

static inline void inside_exchange(struct word *word) {
    __atomic_exchange_n(&word->state, word->state + 1, __ATOMIC_SEQ_CST);
}

FORM(local, find_local, inside, outside)
FORM(by_address, find_by_address, inside, outside)
FORM(specific, find_specific, inside, outside)
FORM(local_exchange, find_local, inside_exchange, outside)
FORM(striped, find_stripe, inside_shared, outside_shared)

void measure_homes(double (*added_ns)(void (*launches)(long count), int threads)) {
    static const struct {
        const char *title;
        void (*launches)(long count);
    } homes[] = {
        {"thread-local word, plain store", local},
        {"word by thread's address, plain store", by_address},
        {"word by pthread_getspecific, plain store", specific},
        {"thread-local word, locked exchange", local_exchange},
        {"64 shared words, locked additions", striped},
    };
    pthread_key_create(&key, NULL);
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++)
        for (int threads = 1; threads <= 8; threads += 7) {
            double least = added_ns(homes[i].launches, threads);
            for (int j = 1; j < TRIES; j++) {
                double ns = added_ns(homes[i].launches, threads);
                least = ns < least ? ns : least;
            }
            printf("%s, %d thread%s: %.1f ns added\n", homes[i].title, threads,
                   threads > 1 ? "s" : "", least);
        }
}
