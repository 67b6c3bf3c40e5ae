// What the computing programs and tests share: their inputs, and the CPU's own results to compare
// with.
//
// Inputs come from a seed. Sums of floats are of multiples of 1/64 small enough that every order of
// addition is exact, so that all results can be compared bit for bit.
#ifndef WEIR_SIM_PROGRAMS_REFERENCE_H
#define WEIR_SIM_PROGRAMS_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define REFERENCE_COUNT 20000u  // elements of the vector cases
#define REFERENCE_SIZE 50u      // rows of the square matrices; no multiple of the tile
#define REFERENCE_INTEGER64_RESULTS 9u

// The next of a sequence of well-mixed words.
static inline uint64_t reference_random(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// Multiples of 1/64 in [-4, 4).
static inline void reference_floats(float *values, size_t count, uint64_t seed) {
    for (size_t k = 0; k < count; k++)
        values[k] = (float)((int)(reference_random(&seed) % 512) - 256) / 64;
}

static inline void reference_words(uint32_t *values, size_t count, uint64_t seed) {
    for (size_t k = 0; k < count; k++)
        values[k] = (uint32_t)reference_random(&seed);
}

// Of every size, so that quotients and shifts vary.
static inline void reference_wide(uint64_t *values, size_t count, uint64_t seed) {
    for (size_t k = 0; k < count; k++) {
        uint64_t x = reference_random(&seed);
        values[k] = x >> (reference_random(&seed) % 64);
    }
}

static inline size_t reference_same(float a, float b) {
    return memcmp(&a, &b, sizeof(a)) == 0;
}

// The functions below return how many results are wrong.

static inline size_t wrong_vector_add(const float *a, const float *b, const float *c,
                                      size_t count) {
    size_t wrong = 0;
    for (size_t k = 0; k < count; k++)
        wrong += !reference_same(c[k], a[k] + b[k]);
    return wrong;
}

static inline size_t wrong_matrix_product(const float *a, const float *b, const float *c,
                                          size_t size) {
    size_t wrong = 0;
    for (size_t row = 0; row < size; row++) {
        for (size_t column = 0; column < size; column++) {
            float sum = 0;
            for (size_t k = 0; k < size; k++)
                sum = fmaf(a[row * size + k], b[k * size + column], sum);
            wrong += !reference_same(c[row * size + column], sum);
        }
    }
    return wrong;
}

static inline uint32_t reference_sum_unsigned(const uint32_t *values, size_t count) {
    uint32_t sum = 0;
    for (size_t k = 0; k < count; k++)
        sum += values[k];
    return sum;
}

static inline float reference_sum_float(const float *values, size_t count) {
    double sum = 0;
    for (size_t k = 0; k < count; k++)
        sum += (double)values[k];
    return (float)sum;
}

static inline size_t wrong_polynomial(const double *coefficient, int degree, float scale,
                                      const float *in, const float *out, size_t count) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        double value = 0;
        for (int k = degree; k >= 0; k--)
            value = fma(value, (double)in[i], coefficient[k]);
        wrong += !reference_same(out[i], scale * (float)value);
    }
    return wrong;
}

static inline size_t wrong_integer64(const uint64_t *a, const uint64_t *b, const uint64_t *out,
                                     size_t count) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = a[i], y = b[i];
        unsigned shift = (unsigned)y & 63;
        int64_t divisor = (int64_t)(y >> 1) | 1;
        uint64_t expected[REFERENCE_INTEGER64_RESULTS] = {
            (uint64_t)((unsigned __int128)x * y >> 64),
            (uint64_t)((__int128)(int64_t)x * (int64_t)y >> 64),
            x * y,
            x / (y | 1),
            x % (y | 1),
            (uint64_t)((int64_t)x / divisor),
            (uint64_t)((int64_t)x % divisor),
            x << shift | x >> (63 - shift),
            (uint64_t)((int64_t)x >> shift),
        };
        wrong += memcmp(&out[i * REFERENCE_INTEGER64_RESULTS], expected, sizeof(expected)) != 0;
    }
    return wrong;
}

// The word at an index of a buffer that fill_pattern filled (kernels/pattern.cu).
static inline uint32_t reference_pattern(uint64_t index, uint32_t seed) {
    uint32_t x = (uint32_t)index * 2654435761u ^ (uint32_t)(index >> 32) ^ seed;
    x ^= x >> 16;
    x *= 2246822519u;
    return x ^ x >> 13;
}

#endif
