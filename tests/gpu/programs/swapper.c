// swapper.c: has more memory than its container may have on the card, and uses all of it in turn.
//
// swapper access              says whether the first GPU and the host can use managed memory at
// once swapper plain PIECE COUNT   allocates so many pieces, sets each to a value of its own, and
// says
//                             "ready"; then each line of its input has it set all of them anew, and
//                             it says how long that took, in ns; at the end of the input it
//                             compares every byte, and says how many words are wrong. A piece that
//                             is refused it says as "refused NUMBER CODE" and ends.
// swapper managed PIECE COUNT the same with managed memory, which it has come to the card by
//                             prefetches and go to the host again instead of setting it
#define _GNU_SOURCE
#include "cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags);
int cuMemPrefetchAsync(uint64_t at, size_t bytes, int device, void *stream);
int cuMemsetD32_v2(uint64_t at, unsigned value, size_t count);
int cuCtxSynchronize(void);

enum {
    PIECES_MOST = 256,
    CONCURRENT_MANAGED_ACCESS = 89,
    ATTACH_GLOBAL = 1,
    TO_HOST = -1,
};

static uint64_t pieces[PIECES_MOST];
static size_t piece_bytes;
static int count, managed, rounds;

static void need(int code, const char *what) {
    if (code == 0)
        return;
    fprintf(stderr, "%s: code %d\n", what, code);
    exit(1);
}

static unsigned value_of(int piece) {
    return 0x01010101u * (unsigned)(piece + 1) + (unsigned)rounds;
}

static void set_all(void) {
    for (int i = 0; i < count; i++)
        need(cuMemsetD32_v2(pieces[i], value_of(i), piece_bytes / 4), "setting memory");
    need(cuCtxSynchronize(), "waiting");
}

static void move_all(int to) {
    for (int i = 0; i < count; i++)
        need(cuMemPrefetchAsync(pieces[i], piece_bytes, to, NULL), "prefetching");
    need(cuCtxSynchronize(), "waiting");
}

static uint64_t wrong_words(void) {
    uint64_t wrong = 0;
    unsigned *words = malloc(piece_bytes);
    for (int i = 0; words && i < count; i++) {
        memset(words, 0, piece_bytes);
        need(cuMemcpyDtoH_v2(words, pieces[i], piece_bytes), "copying");
        for (size_t j = 0; j < piece_bytes / 4; j++)
            wrong += words[j] != value_of(i);
    }
    free(words);
    return words ? wrong : UINT64_MAX;
}

static int allocate_all(void) {
    for (int i = 0; i < count; i++) {
        int code = managed ? cuMemAllocManaged(&pieces[i], piece_bytes, ATTACH_GLOBAL)
                           : cuMemAlloc_v2(&pieces[i], piece_bytes);
        if (code == 0)
            continue;
        printf("refused %d %d\n", i, code);
        return 0;
    }
    return 1;
}

static void say(uint64_t number) {
    printf("%" PRIu64 "\n", number);
    fflush(stdout);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void work(void) {
    char line[64];
    set_all();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n")) {
        uint64_t begun_ns = now_ns();
        if (managed) {
            move_all(TO_HOST);
            move_all(0);
        } else {
            rounds++;
            set_all();
        }
        say(now_ns() - begun_ns);
    }
    say(wrong_words());
}

int main(int argc, char **argv) {
    int can = 0;
    need(use_gpu(0), "a context");
    if (argc == 2 && !strcmp(argv[1], "access")) {
        need(cuDeviceGetAttribute(&can, CONCURRENT_MANAGED_ACCESS, 0), "asking");
        printf("%d\n", can);
        return 0;
    }
    if (argc != 4)
        return 2;
    managed = !strcmp(argv[1], "managed");
    piece_bytes = strtoull(argv[2], NULL, 0);
    count = atoi(argv[3]);
    if (count < 1 || count > PIECES_MOST)
        return 2;
    if (allocate_all())
        work();
    return 0;
}
