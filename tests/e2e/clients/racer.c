// racer.c: one process of a crowd. It allocates, writes, launches kernels, reads back what it wrote
// and frees, at random, and looks into the card's own books right after each allocation, when the
// use is at its peak. CROWD_PTX names a file with the kernel weir_spin_ns; without it none is
// launched.
#define _GNU_SOURCE
#include "board.h"
#include "cuda.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum {
    PIECES_MAX = 32,
    NAP_US_MAX = 1500,
    DATA_WORDS = 256,
    KERNEL_NS = 20000,
};

struct piece {
    uint64_t address, bytes, seed;
};

static struct board *board;
static struct sim_machine *machine;
static struct racer *self;
static struct piece pieces[PIECES_MAX];
static int count;
static uint64_t random_state;
static void *kernel;

static void stand_still(void) {
    uint64_t pauses = __atomic_load_n(&board->pauses, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&board->resumes, __ATOMIC_SEQ_CST) == pauses)
        return;
    __atomic_store_n(&self->pauses_seen, pauses, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&board->resumes, __ATOMIC_SEQ_CST) < pauses)
        nap(&random_state, 500);
}

// The end of a piece is where it would overlap with another first.
static uint64_t data_address(const struct piece *piece) {
    return piece->address + piece->bytes - DATA_WORDS * sizeof(uint64_t);
}

static void write_data(struct piece *piece) {
    uint64_t data[DATA_WORDS], state = piece->seed = next_random(&random_state);
    for (int i = 0; i < DATA_WORDS; i++)
        data[i] = next_random(&state);
    int code = cuMemcpyHtoD_v2(data_address(piece), data, sizeof(data));
    if (code)
        board_fail(board, "cuMemcpyHtoD: %d", code);
}

static void check_data(const struct piece *piece) {
    uint64_t data[DATA_WORDS], state = piece->seed;
    int code = cuMemcpyDtoH_v2(data, data_address(piece), sizeof(data));
    if (code)
        board_fail(board, "cuMemcpyDtoH: %d", code);
    for (int i = 0; i < DATA_WORDS && !code; i++)
        if (data[i] != next_random(&state))
            board_fail(board, "word %d of an allocation is not what was written", i);
}

static void launch_some(void) {
    uint64_t cost_ns = KERNEL_NS;
    void *parameters[] = {&cost_ns};
    int code = 0;
    for (uint64_t i = next_random(&random_state) % 4; kernel && i > 0 && !code; i--) {
        code = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
        __atomic_fetch_add(&board->launches, 1, __ATOMIC_RELAXED);
    }
    if (code)
        board_fail(board, "cuLaunchKernel: %d", code);
}

static void free_one(void) {
    int victim = (int)(next_random(&random_state) % (uint64_t)count);
    check_data(&pieces[victim]);
    int code = cuMemFree_v2(pieces[victim].address);
    if (code)
        board_fail(board, "cuMemFree: %d", code);
    __atomic_store_n(&self->held_bytes, self->held_bytes - pieces[victim].bytes, __ATOMIC_SEQ_CST);
    pieces[victim] = pieces[--count];
}

// Sizes from one granule to a good part of what there is, small ones more often.
static uint64_t some_bytes(void) {
    uint64_t most =
        board->racer_bytes_max ? board->racer_bytes_max - self->held_bytes : board->cap_bytes / 8;
    uint64_t bytes = most >> next_random(&random_state) % 12;
    return bytes ? next_random(&random_state) % bytes + 1 : 1;
}

static void allocate_one(void) {
    struct piece *piece = &pieces[count];
    piece->bytes = (some_bytes() + GRANULE - 1) / GRANULE * GRANULE;
    uint64_t wanted = piece->bytes - next_random(&random_state) % ROUNDING;
    if (board->racer_bytes_max && self->held_bytes + piece->bytes > board->racer_bytes_max)
        return;
    int code = cuMemAlloc_v2(&piece->address, wanted);
    if (code == CUDA_SUCCESS) {
        __atomic_store_n(&self->held_bytes, self->held_bytes + piece->bytes, __ATOMIC_SEQ_CST);
        count++;
        board_look(board, machine);
        write_data(piece);
        __atomic_fetch_add(&board->allocations, 1, __ATOMIC_RELAXED);
    } else if (code != CUDA_ERROR_OUT_OF_MEMORY) {
        board_fail(board, "cuMemAlloc: %d", code);
    } else {
        __atomic_fetch_add(&board->refusals, 1, __ATOMIC_RELAXED);
        if (board->racer_bytes_max)
            board_fail(board, "refused %llu bytes, though all may have what they ask for",
                       (unsigned long long)wanted);
    }
}

int race(int number, uint64_t seed) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    random_state = seed;
    board = board_open();
    machine = open_machine();
    if (!board || !machine || number >= RACERS_MAX)
        return 1;
    self = &board->racers[number];
    int code = use_gpu(0);
    if (code) {
        board_fail(board, "starting to use the GPU: %d", code);
        return 1;
    }
    const char *ptx = getenv("CROWD_PTX");
    if (ptx && load_kernel(ptx, "weir_spin_ns", &kernel))
        board_fail(board, "%s cannot be loaded", ptx);
    for (;;) {
        stand_still();
        launch_some();
        if (count == PIECES_MAX || (count && next_random(&random_state) % 100 < 45))
            free_one();
        else
            allocate_one();
        nap(&random_state, NAP_US_MAX);
    }
}
