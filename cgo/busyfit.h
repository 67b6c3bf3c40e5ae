// busyfit.h: what launches of one function take, whatever their grids are, from samples of some of
// them. Pure.
//
// A launch's *amount* is how much there is to do: the threads of a kernel's grid, the bytes of a
// copy. What it takes is a straight line over the amount, learned by least squares: level where the
// grid says nothing about the time, through nothing where each block takes as long. Invariants:
//   - it neither falls nor begins below nothing, and goes through the means of both, so that the
//   sum
//     of many expectations is right where a single one is not;
//   - where samples differ from it, or the amount is far from those of all samples, it is no
//     knowledge but a guess: weir_fit_covers tells.
#ifndef WEIR_BUSYFIT_H
#define WEIR_BUSYFIT_H

#include <stdint.h>

// So many samples make a line; with more than that, a new one has the weight of one of so many.
#define WEIR_FIT_SAMPLES 8u
#define WEIR_FIT_WEIGHT 64u
// So far off the line, in 1/1024 of the mean, samples may be usually.
#define WEIR_FIT_SPREAD 128u
#define WEIR_FIT_SAME 50u
// So many far off in a row, all in one direction, are another line.
#define WEIR_FIT_ODD 4u
// So many that agree by so much among themselves beat all that was before.
#define WEIR_FIT_RUN 6u
#define WEIR_FIT_AGREE 1.06
// Parts of a nanosecond in which the rise is counted.
#define WEIR_FIT_PART_BITS 20
#define WEIR_FIT_RISE_MAX 1e12  // ns for each of an amount
#define WEIR_FIT_NS_MAX (1ull << 50)

// What there is to know of a line, for threads that launch.
struct weir_line {
    uint64_t base_ns;      // of no amount at all; 0: nothing is known
    uint64_t rise;         // for each one, in 1/2^20 ns
    uint64_t least, most;  // amounts of samples
    uint64_t sure;         // samples lie on it
};

struct weir_fit {
    double amount, ns;      // means
    double amount_squared;  // mean of the squares of what amounts are off
    double product;         // and of the products of what both are off
    double spread;          // how far samples are off the line, usually, in 1/1024 of the mean
    uint64_t samples;       // that count
    uint64_t odd;           // so many in a row were far off,
    uint64_t longer;        // and whether above the line
    uint64_t least, most;   // amounts of samples
    // The last ones that were equally far off the line as it was when they began: so many, their
    // least and greatest part of what it said, and the sum of these parts.
    uint64_t run;
    double run_least, run_most, run_sum, run_base, run_rise;
    // Since all may take another time: so many samples, what they took, and by the line.
    uint64_t fresh;
    double fresh_ns, fresh_line_ns;
};

// The rise of the line, which begins nowhere below nothing.
static inline double weir_fit_rise(const struct weir_fit *fit) {
    double rise = fit->amount_squared > 0 ? fit->product / fit->amount_squared : 0;
    double most = fit->amount > 0 ? fit->ns / fit->amount : 0;
    return rise < 0 ? 0 : rise > most ? most : rise;
}

static inline double weir_fit_at(const struct weir_fit *fit, uint64_t amount) {
    return fit->ns + weir_fit_rise(fit) * ((double)amount - fit->amount);
}

// How many samples in a row, this one included, say that launches take another time now.
static inline uint64_t weir_fit_odd(struct weir_fit *fit, uint64_t amount, double off, double at) {
    double far = (at > fit->ns ? at : fit->ns) / 2;
    int near = amount >= fit->least / 2 && amount / 2 <= fit->most;
    int odd = near && fit->samples >= WEIR_FIT_ODD && (off > far || off < -far);
    fit->odd = !odd ? 0 : fit->odd && fit->longer == (off > 0) ? fit->odd + 1 : 1;
    fit->longer = off > 0;
    return fit->odd;
}

// The same line, but steeper or less so.
static inline void weir_fit_scale(struct weir_fit *fit, double factor) {
    fit->ns *= factor;
    fit->product *= factor;
    if (fit->samples > WEIR_FIT_SAMPLES)
        fit->samples = WEIR_FIT_SAMPLES;
    fit->odd = 0;
}

// Samples that agree among themselves say what launches take, whatever was learned before them from
// some that others' work was in. How many in a row do.
static inline uint64_t weir_fit_run(struct weir_fit *fit, uint64_t amount, uint64_t ns) {
    double at = fit->run_base + fit->run_rise * (double)amount;
    double part = at > 0 ? (double)ns / at : 0;
    double least = part < fit->run_least ? part : fit->run_least;
    double most = part > fit->run_most ? part : fit->run_most;
    if (fit->run && part > 0 && most <= least * WEIR_FIT_AGREE) {
        fit->run_least = least;
        fit->run_most = most;
        fit->run_sum += part;
        return ++fit->run;
    }
    fit->run_rise = weir_fit_rise(fit);
    fit->run_base = fit->ns - fit->run_rise * fit->amount;
    at = fit->run_base + fit->run_rise * (double)amount;
    part = at > 0 ? (double)ns / at : 0;
    fit->run_least = fit->run_most = fit->run_sum = part;
    fit->run = part > 0;
    return fit->run;
}

// Where they do, the line goes through them.
static inline void weir_fit_believe(struct weir_fit *fit, uint64_t amount) {
    double at = fit->run_base + fit->run_rise * (double)amount, now = weir_fit_at(fit, amount);
    double factor = now > 0 ? at * fit->run_sum / (double)fit->run / now : 0;
    fit->run = 0;
    if (factor > 0 && (factor < 0.98 || factor > 1.02)) {
        weir_fit_scale(fit, factor);
        fit->spread = 0;
    }
}

// Takes in a sample of a launch that had the GPU to itself. Where all lie on the line, one that is
// far off does not count until it is known which way they go.
static inline void weir_fit_add(struct weir_fit *fit, uint64_t amount, uint64_t ns) {
    if (weir_fit_run(fit, amount, ns) >= WEIR_FIT_RUN)
        weir_fit_believe(fit, amount);
    double at = weir_fit_at(fit, amount), off = (double)ns - at;
    uint64_t odd = weir_fit_odd(fit, amount, off, at);
    if (odd && odd < WEIR_FIT_ODD && fit->spread < WEIR_FIT_SAME)
        return;
    if (odd >= WEIR_FIT_ODD && at > 0) {
        weir_fit_scale(fit, (double)ns / at);
        off = 0;
    }
    fit->least = !fit->samples || amount < fit->least ? amount : fit->least;
    fit->most = !fit->samples || amount > fit->most ? amount : fit->most;
    fit->samples++;
    double part = 1.0 / (double)(fit->samples < WEIR_FIT_WEIGHT ? fit->samples : WEIR_FIT_WEIGHT);
    double more = (double)amount - fit->amount, longer = (double)ns - fit->ns;
    fit->amount += part * more;
    fit->ns += part * longer;
    fit->amount_squared = (1 - part) * (fit->amount_squared + part * more * more);
    fit->product = (1 - part) * (fit->product + part * more * longer);
    double spread = fit->ns > 0 ? (off < 0 ? -off : off) * 1024 / fit->ns : 0;
    spread = spread < 8192 ? spread : 8192;
    fit->spread = fit->samples < 3 ? spread : fit->spread + (spread - fit->spread) / 8;
}

// Takes in a sample where all before it may have had others' work in them: a few new ones say by
// how much. Whether these are enough by now, so that weir_fit_add takes the next ones.
static inline int weir_fit_renew(struct weir_fit *fit, uint64_t amount, uint64_t ns) {
    double at = weir_fit_at(fit, amount);
    if (fit->samples < WEIR_FIT_SAMPLES || !(at > 0)) {
        *fit = (struct weir_fit){.samples = 0};
        weir_fit_add(fit, amount, ns);
        return 1;
    }
    fit->fresh++;
    fit->fresh_ns += (double)ns;
    fit->fresh_line_ns += at;
    if (fit->fresh < WEIR_FIT_ODD)
        return 0;
    weir_fit_scale(fit, fit->fresh_ns / fit->fresh_line_ns);
    fit->fresh = 0;
    fit->fresh_ns = fit->fresh_line_ns = 0;
    return 1;
}

// The line, as far as it is known.
static inline struct weir_line weir_fit_line(const struct weir_fit *fit) {
    double rise = weir_fit_rise(fit), base = fit->ns - rise * fit->amount;
    if (!fit->samples)
        return (struct weir_line){.base_ns = 0};
    return (struct weir_line){
        .base_ns = base > 1 ? (uint64_t)(base + 0.5) : 1,
        .rise = (uint64_t)((rise < WEIR_FIT_RISE_MAX ? rise : WEIR_FIT_RISE_MAX) *
                               (1u << WEIR_FIT_PART_BITS) +
                           0.5),
        .least = fit->least,
        .most = fit->most,
        .sure = fit->samples >= WEIR_FIT_SAMPLES && fit->spread < WEIR_FIT_SPREAD,
    };
}

// What a launch is expected to take, by a line; 0: nothing is known. Far beyond all samples that is
// what it takes there.
static inline uint64_t weir_line_ns(const struct weir_line *line, uint64_t amount) {
    uint64_t most = line->most > UINT64_MAX / 4 ? UINT64_MAX : line->most * 4;
    __uint128_t rising = (__uint128_t)(amount < most ? amount : most) * line->rise;
    rising >>= WEIR_FIT_PART_BITS;
    if (rising > WEIR_FIT_NS_MAX)
        rising = WEIR_FIT_NS_MAX;
    return line->base_ns ? line->base_ns + (uint64_t)rising : 0;
}

// Whether that is knowledge.
static inline int weir_line_covers(const struct weir_line *line, uint64_t amount) {
    return line->sure && amount >= line->least / 2 && amount / 2 <= line->most && amount;
}

// The amount of a launch of a kernel: its threads, by its grid and block as keys have them. What is
// not said counts as one.
static inline uint64_t weir_kernel_amount(uint64_t grid, uint64_t block) {
    const uint64_t sides[6] = {
        grid & 0x7fffffff, grid >> 31 & 0xffff, grid >> 47 & 0xffff,
        block & 0x7ff,     block >> 11 & 0x7ff, block >> 22 & 0x3ff,
    };
    uint64_t amount = 1;
    for (int i = 0; i < 6; i++)
        if (sides[i] && __builtin_mul_overflow(amount, sides[i], &amount))
            return UINT64_MAX;
    return amount;
}

#endif
