// busyguess.c: what a launch is expected to take whose kernel is not known well yet, and how such
// launches are counted until it is: they are corrected when more is known.
//
// Whether that ever is the case depends on what else the program does: a launch that is never alone
// has no clean sample, and where the driver refuses events there is none at all. So no key keeps
// its launches from the quick path for good. Invariants:
//   - of launches whose expectation is rough the first GUESSES_EACH of a key are looked at each,
//   then
//     one in GUESS_PART by chance, which stands for as many: what is counted is right on average,
//     whatever kernels take turns;
//   - of a key that is launched all the time something is expected after GIVE_UP_NS, be it next to
//     nothing: its launches then count as unknown ones still, by the same chance, and are made up
//     for if it comes to be known.
#include "busy.h"

#define LAUNCHES_A_MARK 64u
#define GUESSES_EACH 1024u
// The mean of two throws of the dice, and one.
#define GUESS_PART WEIR_BUSY_JITTER
// After so many looks in a row at launches that are no guesses a lane looks for none any more.
#define GUESS_VAIN_MAX 32u
// A key is given up after so many launches and so long, or longer where samples are on their way.
#define GIVE_UP_LAUNCHES 1024u
#define GIVE_UP_NS 500000000u
#define GIVE_UP_NS_MEASURED 5000000000u

// Whether a key is to be given up, with so many launches in vain; the clock is asked now and then.
static int is_hopeless(const struct weir_busy_key *known, uint32_t launches) {
    uint64_t hope_ns = WEIR_GET(known->measuring) ? GIVE_UP_NS_MEASURED : GIVE_UP_NS;
    return launches >= GIVE_UP_LAUNCHES && launches % LAUNCHES_A_MARK == 0 &&
           weir_busy_clock() - WEIR_GET(known->since_ns) > hope_ns;
}

// A sample that comes meanwhile says better.
static void give_up(struct weir_busy_key *known, uint64_t ns) {
    uint64_t none = 0;
    __atomic_compare_exchange_n(&known->expected_ns, &none, ns, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

// Whether it has been, and no sample has come since.
static int is_given_up(const struct weir_busy_key *known) {
    return !WEIR_GET(known->roughly_ns);
}

// Takes a launch's family at its word.
static uint64_t take_told(struct weir_busy_key *known, const struct weir_told *told) {
    uint32_t launches = __atomic_add_fetch(&known->told, 1, __ATOMIC_RELAXED);
    if (!WEIR_GET(known->roughly_ns))
        WEIR_PUT(known->roughly_ns, told->ns);
    if ((told->sure && launches >= WEIR_BUSY_TOLD_MAX) || is_hopeless(known, launches))
        give_up(known, told->ns);
    return told->ns;
}

// Launches of which nothing is expected, up to one of them: work that is not known makes no window
// move, and is waited for longer where no event tells of it.
static void note_blind(struct weir_busy *busy, struct weir_busy_lane *lane, uint64_t launches) {
    __atomic_fetch_add(&busy->gpus[lane->gpu].blind, 1, __ATOMIC_RELAXED);
    WEIR_PUT(lane->blind, launches);
    if (lane->launches % LAUNCHES_A_MARK == 0 && !weir_busy_is_deep(lane))
        WEIR_PUT(lane->mark_at_ns, 0);
}

// Counts launches of a key of which nothing is known; how many there were.
static uint32_t note_unknown(struct weir_busy *busy, struct weir_busy_lane *lane,
                             struct weir_busy_key *known, uint32_t launches) {
    uint32_t before = __atomic_fetch_add(&known->unknown, launches, __ATOMIC_RELAXED);
    if (before == 0 && weir_lock(&busy->lock) == 0) {
        const struct weir_busytime *time = &busy->gpus[lane->gpu].time;
        WEIR_PUT(known->surplus_before_ns, time->surplus_ns);
        WEIR_PUT(known->idle_before_ns, time->idle_ns);
        weir_unlock(&busy->lock);
    }
    return before;
}

// What a launch is expected to take whose key is not known: what its family tells; nothing, to be
// made up for when it is known; as much as others in this lane, where it will not be measured.
static uint64_t guess(struct weir_busy *busy, struct weir_busy_lane *lane,
                      struct weir_busy_key *known, const struct weir_told *told,
                      const struct weir_busy_mark *mark) {
    if (told->sure || (told->ns && !mark && !WEIR_GET(known->measuring)))
        return take_told(known, told);
    if (!mark && lane->work_ns && lane->due >= lane->launches + WEIR_BUSY_DEBT_MAX)
        return lane->work_ns / lane->launches;
    note_blind(busy, lane, lane->launches + 1);
    if (is_hopeless(known, note_unknown(busy, lane, known, 1)))
        give_up(known, 1);
    return 0;
}

// What launches of a key were expected to take is rough: it is corrected when more is known.
static void note_rough(struct weir_busy *busy, struct weir_busy_lane *lane,
                       struct weir_busy_key *known, uint64_t launches, uint64_t ns) {
    __atomic_fetch_add(&known->guessed_ns, launches * ns, __ATOMIC_RELAXED);
    if (__atomic_fetch_add(&known->guesses, launches, __ATOMIC_RELAXED) != 0 ||
        weir_lock(&busy->lock) != 0)
        return;
    weir_busy_guess_first(&busy->gpus[lane->gpu], known);
    weir_unlock(&busy->lock);
}

// How many guesses a launch stands for that is looked at, if it is its turn, and when the next
// one's is. Where kernels take turns it may be one that is known well; where nearly all are, none
// is looked at any more.
static uint32_t stands_for(struct weir_busy_lane *lane, const struct weir_busy_key *known,
                           int is_rough) {
    uint32_t launches = lane->count_for;
    if (launches ? lane->launches < lane->count_at : !is_rough)
        return 0;
    lane->count_vain = is_rough ? 0 : lane->count_vain + 1;
    if (is_rough)
        lane->count_for =
            is_given_up(known) || WEIR_GET(known->guesses) >= GUESSES_EACH ? GUESS_PART : 1;
    lane->count_at = lane->launches + 1;
    if (lane->count_for != 1)
        lane->count_at += weir_busy_dice(lane) + weir_busy_dice(lane);
    if (lane->count_vain > GUESS_VAIN_MAX)
        lane->count_for = lane->count_vain = 0;
    return launches ? launches : 1;
}

uint64_t weir_busy_expect(struct weir_busy *busy, struct weir_busy_lane *lane,
                          struct weir_busy_key *known, const struct weir_told *told,
                          const struct weir_busy_mark *mark) {
    uint64_t ns = WEIR_GET(known->expected_ns);
    int is_rough = ns && !told->sure && !WEIR_GET(known->clean);
    uint32_t launches = stands_for(lane, known, is_rough);
    if (!ns)
        return guess(busy, lane, known, told, mark);
    if (launches && is_rough && is_given_up(known)) {
        note_blind(busy, lane, lane->count_at + 1);
        note_unknown(busy, lane, known, launches);
    } else if (launches && is_rough) {
        note_rough(busy, lane, known, launches, ns);
    }
    return ns;
}
