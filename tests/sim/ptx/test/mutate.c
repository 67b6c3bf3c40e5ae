// mutate FILE…: the fuzz target over many small damages of each file: bytes changed, pieces
// removed, repeated or swapped in from elsewhere, numbers made extreme. Deterministic for a given
// SEED.
#include "tests/sim/programs/reference.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_BYTES_MAX 32768
#define ROUNDS 250  // a file

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t state;

static size_t pick(size_t below) {
    return below ? reference_random(&state) % below : 0;
}

// One damage to text[0..*bytes), which has room for twice FILE_BYTES_MAX.
static void damage(char *text, size_t *bytes) {
    static const char *const extremes[] = {
        "0", "-1", "4294967295", "65536", "0xffffffffffffffff", "1000000", "64"};
    static const char marks[] = "{}()[]<>,;:=+-@|!._%\"/*";
    size_t at = pick(*bytes), length = pick(24), from = pick(*bytes);
    if (at + length > *bytes)
        length = *bytes - at;
    if (from + length > *bytes)
        from = 0;
    switch (pick(6)) {
    case 0:
        text[at] = (char)pick(256);
        break;
    case 1:
        text[at] = marks[pick(sizeof(marks) - 1)];
        break;
    case 2:
        memmove(text + at, text + at + length, *bytes - at - length);
        *bytes -= length;
        break;
    case 3:
        memmove(text + at, text + from, length);
        break;
    case 4:
        if (*bytes + length <= 2 * FILE_BYTES_MAX) {
            memmove(text + at + length, text + at, *bytes - at);
            *bytes += length;
        }
        break;
    default:
        while (at < *bytes && (text[at] < '0' || text[at] > '9'))
            at++;
        const char *extreme = extremes[pick(sizeof(extremes) / sizeof(extremes[0]))];
        length = strlen(extreme);
        if (at + length <= *bytes)
            memcpy(text + at, extreme, length);
    }
}

static void mutate_file(const char *path) {
    static char original[FILE_BYTES_MAX], text[2 * FILE_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    size_t bytes = f ? fread(original, 1, sizeof(original), f) : 0;
    if (bytes == 0) {
        perror(path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput((const uint8_t *)original, bytes);
    for (int round = 0; round < ROUNDS; round++) {
        size_t mutated = bytes;
        memcpy(text, original, bytes);
        for (size_t k = pick(4) + 1; k > 0; k--)
            damage(text, &mutated);
        LLVMFuzzerTestOneInput((const uint8_t *)text, mutated);
    }
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    state = given ? strtoull(given, NULL, 0) : 1;
    printf("mutate: SEED=%llu\n", (unsigned long long)state);
    for (int k = 1; k < argc; k++)
        mutate_file(argv[k]);
    printf("ok   ptx: %d files, %d damages each\n", argc - 1, ROUNDS);
    return 0;
}
