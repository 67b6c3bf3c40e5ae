// keeper.c: a program that changes its memory at random and knows what must be in each byte of it.
//
// keeper SEED MIB: has up to so much memory, in pieces of 2 to 6 MiB that come and go. It begins at
// once, and between its acts answers commands, one a line:
//   pid      "ok PID"
//   count    "ok ACTS BYTES": so many acts, so many bytes compared
//   whole    compares all of its memory; as count
//   hold     does nothing until "go"; both answer as count
// "error CODE ACT" at the first refusal of the driver but out of memory at an allocation, "wrong
// BYTES PIECE BLOCK WANTED FOUND" at the first bytes that are not as they should be: it does
// nothing more.
//
// A block's words are all the same, which the model has one number for: sets, copies to and fro and
// within the device, and kernels that only take time, in two streams.
#define _GNU_SOURCE
#include "random.h"

#include "../../sim/driver/cuda_abi.h"
#include "../../sim/driver/cuda_async_abi.h"

#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECES_MAX = 64,
    BLOCK = 64 << 10,
    WORDS = BLOCK / 4,
    BLOCKS_MAX = 96,  // of 6 MiB
    BLOCKS_MIN = 32,
    AHEAD = 6,  // acts, then it waits for all that it has submitted
};

static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry weir_spin_ns_on(.param .u64 cost, .param .u64 p, "
                          ".param .u64 bytes) { ret; }\n";

static struct piece {
    CUdeviceptr at;  // 0: none
    uint32_t blocks;
    uint32_t tags[BLOCKS_MAX];
} pieces[PIECES_MAX];

static uint64_t seed, most_blocks, held_blocks, acts, compared;
static uint32_t next_tag;
static CUfunction function;
static CUstream side;
static bool ended;
static uint32_t words[WORDS];

static uint32_t below(uint32_t n) {
    return (uint32_t)(next_random(&seed) % n);
}

// Says what went wrong, once. True: nothing has.
static bool good(CUresult code, const char *what) {
    if (!code || ended)
        return !ended;
    printf("error %d %s\n", code, what);
    ended = true;
    return false;
}

static CUdeviceptr block_at(const struct piece *piece, uint32_t block) {
    return piece->at + (uint64_t)block * BLOCK;
}

static struct piece *any_piece(void) {
    for (uint32_t i = 0, first = below(PIECES_MAX); i < PIECES_MAX; i++)
        if (pieces[(first + i) % PIECES_MAX].at)
            return &pieces[(first + i) % PIECES_MAX];
    return NULL;
}

// ---- Acts ----

static void set_blocks(struct piece *piece, uint32_t first, uint32_t count) {
    next_tag += 0x01000193;
    good(cuMemsetD32Async(block_at(piece, first), next_tag, (size_t)count * WORDS, NULL), "set");
    for (uint32_t i = 0; i < count; i++)
        piece->tags[first + i] = next_tag;
}

static void write_block(struct piece *piece, uint32_t block) {
    next_tag += 0x01000193;
    for (int i = 0; i < WORDS; i++)
        words[i] = next_tag;
    good(cuMemcpyHtoD_v2(block_at(piece, block), words, BLOCK), "write");
    piece->tags[block] = next_tag;
}

static void copy_block(struct piece *piece, uint32_t block) {
    const struct piece *from = any_piece();
    uint32_t other = below(from->blocks);
    if (from == piece && other == block)
        return;
    good(cuMemcpyDtoDAsync_v2(block_at(piece, block), block_at(from, other), BLOCK, NULL), "copy");
    piece->tags[block] = from->tags[other];
}

static void compare_block(const struct piece *piece, uint32_t block) {
    uint32_t tag = piece->tags[block], wrong = 0, found = 0;
    if (!good(cuMemcpyDtoH_v2(words, block_at(piece, block), BLOCK), "read"))
        return;
    compared += BLOCK;
    for (int i = 0; i < WORDS; i++)
        if (words[i] != tag) {
            wrong += 4;
            found = words[i];
        }
    if (!wrong)
        return;
    printf("wrong %u %td %u %x %x\n", wrong, piece - pieces, block, tag, found);
    ended = true;
}

static void work(const struct piece *piece) {
    uint64_t cost_ns = 100000 + below(900000), at = piece->at,
             bytes = (uint64_t)piece->blocks * BLOCK;
    void *params[] = {&cost_ns, &at, &bytes};
    good(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, below(2) ? side : NULL, params, NULL),
         "work");
}

static void come(struct piece *piece) {
    uint32_t blocks = BLOCKS_MIN + below(BLOCKS_MAX - BLOCKS_MIN + 1);
    if (held_blocks + blocks > most_blocks)
        return;
    CUresult code = cuMemAlloc_v2(&piece->at, (size_t)blocks * BLOCK);
    if (code) {
        piece->at = 0;
        good(code == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : code, "allocate");
        return;
    }
    piece->blocks = blocks;
    held_blocks += blocks;
    set_blocks(piece, 0, blocks);
}

// With or without waiting for what uses it: the driver waits.
static void go(struct piece *piece) {
    for (uint32_t i = 0; i < 4; i++)
        compare_block(piece, below(piece->blocks));
    if (good(cuMemFree_v2(piece->at), "free")) {
        held_blocks -= piece->blocks;
        piece->at = 0;
    }
}

static void act(void) {
    struct piece *piece = any_piece();
    uint32_t what = below(100);
    if (!piece || what < 6) {
        struct piece *empty = &pieces[below(PIECES_MAX)];
        if (!empty->at)
            come(empty);
    } else if (what < 8) {
        go(piece);
    } else if (what < 20) {
        uint32_t first = below(piece->blocks);
        set_blocks(piece, first, 1 + below(piece->blocks - first));
    } else if (what < 30) {
        write_block(piece, below(piece->blocks));
    } else if (what < 40) {
        copy_block(piece, below(piece->blocks));
    } else if (what < 50) {
        compare_block(piece, below(piece->blocks));
    } else {
        work(piece);
    }
    if (++acts % AHEAD == 0)
        good(cuCtxSynchronize(), "wait");
}

static void compare_all(void) {
    good(cuCtxSynchronize(), "wait");
    for (struct piece *piece = pieces; piece < pieces + PIECES_MAX; piece++)
        for (uint32_t i = 0; piece->at && i < piece->blocks && !ended; i++)
            compare_block(piece, i);
}

// ---- The program ----

static CUresult begin(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUresult code = cuInit(0);
    if (!code)
        code = cuDeviceGet(&device, 0);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, device);
    if (!code)
        code = cuCtxSetCurrent(context);
    if (!code)
        code = cuModuleLoadData(&module, ptx);
    if (!code)
        code = cuModuleGetFunction(&function, module, "weir_spin_ns_on");
    return code ? code : cuStreamCreate(&side, CU_STREAM_NON_BLOCKING);
}

// Obeys a command if there is one. False: there is no more.
static bool obey(bool *holds) {
    char line[64];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, *holds || ended ? 100 : 0) <= 0)
        return true;
    if (!fgets(line, sizeof(line), stdin))
        return false;
    if (!strncmp(line, "pid", 3)) {
        printf("ok %d\n", getpid());
        return true;
    }
    if (!strncmp(line, "whole", 5))
        compare_all();
    *holds = !strncmp(line, "hold", 4) || (*holds && strncmp(line, "go", 2));
    if (!ended)
        printf("ok %" PRIu64 " %" PRIu64 "\n", acts, compared);
    return true;
}

int main(int count, char **arguments) {
    bool holds = false;
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count != 3)
        return 2;
    seed = strtoull(arguments[1], NULL, 0);
    next_tag = (uint32_t)seed;
    most_blocks = strtoull(arguments[2], NULL, 0) * ((1 << 20) / BLOCK);
    good(begin(), "begin");
    while (obey(&holds))
        if (!ended && !holds)
            act();
    return 0;
}
