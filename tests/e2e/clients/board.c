// board.c: see board.h.
#define _GNU_SOURCE
#include "board.h"

#include "../../sim/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct board *board_open(void) {
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    return board == MAP_FAILED ? NULL : board;
}

struct board *board_make(void) {
    int fd = memfd_create("board", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) || dup2(fd, BOARD_FD) < 0)
        return NULL;
    if (fd != BOARD_FD)
        close(fd);
    return board_open();
}

void board_fail(struct board *board, const char *format, ...) {
    va_list arguments;
    if (__atomic_exchange_n(&board->failed, 1, __ATOMIC_SEQ_CST))
        return;
    va_start(arguments, format);
    vsnprintf(board->failure, sizeof(board->failure), format, arguments);
    va_end(arguments);
}

uint64_t board_look(struct board *board, struct sim_machine *machine) {
    uint64_t used;
    if (sim_memory_used(machine, 0, &used))
        return 0;
    used = used / GRANULE * GRANULE;
    uint64_t peak = __atomic_load_n(&board->peak_bytes, __ATOMIC_RELAXED);
    while (used > peak && !__atomic_compare_exchange_n(&board->peak_bytes, &peak, used, false,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    if (used > board->cap_bytes)
        board_fail(board, "the card holds %llu bytes, the cap is %llu", (unsigned long long)used,
                   (unsigned long long)board->cap_bytes);
    return used;
}

struct sim_machine *open_machine(void) {
    char path[4096];
    struct sim_machine *machine = NULL;
    if (sim_machine_path(path, sizeof(path)) || sim_machine_open(path, &machine))
        return NULL;
    return machine;
}

void nap(uint64_t *random, uint64_t us_max) {
    struct timespec time = {0, (long)(next_random(random) % (us_max + 1)) * 1000};
    nanosleep(&time, NULL);
}
