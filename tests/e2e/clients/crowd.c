// crowd.c: many processes of one container race for the last bytes below its cap, while some of
// them are killed at random moments. Run under `weir run --memory CAP` on a simulated machine whose
// contexts take no memory, with nobody else on the card.
//
// crowd RACERS KILLS CAP_BYTES greedy|fair SEED
//   greedy: each takes what it gets. fair: each stays within its equal part, so that no refusal is
//   ever right.
// In rounds it lets them run, kills some and starts others in their place, then asks all to stand
// still and proves: the card's books are the exact sum of the living; all that is left below the
// cap can be allocated at once; not a granule more. It says "sum BYTES", waits for a line of input,
// and ends; or says "failed: …" and returns 1.
#define _GNU_SOURCE
#include "board.h"
#include "cuda.h"

#include "../../sim/machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS_A_ROUND = 20, NAP_US_MAX = 2000, STILL_SECONDS_MAX = 30 };

static struct board *board;
static struct sim_machine *machine;
static pid_t pids[RACERS_MAX];
static int racers;
static uint64_t random_state;
static uint64_t too_much_bytes = 1;  // what must be refused once all is in use
static uint64_t death_ns_max;        // from a racer's SIGKILL until its memory was free

static int start_racer(int number) {
    char number_text[16], seed_text[32];
    snprintf(number_text, sizeof(number_text), "%d", number);
    snprintf(seed_text, sizeof(seed_text), "%llu", (unsigned long long)next_random(&random_state));
    board->racers[number] = (struct racer){0};
    pids[number] = vfork();
    if (pids[number] == 0) {
        execl("/proc/self/exe", "racer", "racer", number_text, seed_text, NULL);
        _exit(127);
    }
    return pids[number] > 0;
}

// Whether the card's books still count a process as alive.
static int is_on_the_books(pid_t pid) {
    static struct sim_process_state state;
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        if (state.alive && state.pid == pid)
            return 1;
    return 0;
}

static void replace_racer(int number) {
    uint64_t killed_ns = sim_now_ns(), took_ns;
    if (pids[number] <= 0)  // kill(-1) would end every process of the machine
        return;
    kill(pids[number], SIGKILL);
    do
        took_ns = sim_now_ns() - killed_ns;
    while (is_on_the_books(pids[number]) && took_ns < STILL_SECONDS_MAX * 1000000000ull);
    if (took_ns > death_ns_max)
        death_ns_max = took_ns;
    waitpid(pids[number], NULL, 0);
    if (!start_racer(number))
        board_fail(board, "no racer could be started");
}

static void ask_to_stand_still(void) {
    uint64_t pauses = __atomic_add_fetch(&board->pauses, 1, __ATOMIC_SEQ_CST);
    time_t deadline = time(NULL) + STILL_SECONDS_MAX;
    for (int i = 0; i < racers && !board->failed; i++) {
        while (__atomic_load_n(&board->racers[i].pauses_seen, __ATOMIC_SEQ_CST) != pauses) {
            if (time(NULL) > deadline || waitpid(pids[i], NULL, WNOHANG) != 0) {
                board_fail(board, "racer %d hangs or has ended", i);
                return;
            }
            nap(&random_state, 500);
        }
    }
}

static uint64_t sum_held(void) {
    uint64_t sum = 0;
    for (int i = 0; i < racers; i++)
        sum += __atomic_load_n(&board->racers[i].held_bytes, __ATOMIC_SEQ_CST);
    return sum;
}

// All stand still: the three things to prove.
static void prove(void) {
    uint64_t sum = sum_held(), used = board_look(board, machine);
    uint64_t rest = 0, granule = 0, left = board->cap_bytes - sum;
    if (used != sum)
        board_fail(board, "the living hold %llu bytes, the card's books say %llu",
                   (unsigned long long)sum, (unsigned long long)used);
    int code = left ? cuMemAlloc_v2(&rest, left) : 0;
    if (code)
        board_fail(board, "%llu of %llu bytes are in use, yet the rest is refused: %d",
                   (unsigned long long)sum, (unsigned long long)board->cap_bytes, code);
    board_look(board, machine);
    if (!code && (code = cuMemAlloc_v2(&granule, too_much_bytes)) != CUDA_ERROR_OUT_OF_MEMORY)
        board_fail(board, "all is in use, and %llu bytes more give %d, not a refusal",
                   (unsigned long long)too_much_bytes, code);
    if (granule)
        cuMemFree_v2(granule);
    if (rest)
        cuMemFree_v2(rest);
}

static void go_on(void) {
    __atomic_store_n(&board->resumes, board->pauses, __ATOMIC_SEQ_CST);
}

static int conduct(int kills) {
    int code = use_gpu(0);
    if (code)
        board_fail(board, "starting to use the GPU: %d", code);
    for (int i = 0; i < racers && !board->failed; i++)
        if (!start_racer(i))
            board_fail(board, "no racer could be started");
    for (int killed = 0; killed < kills && !board->failed;) {
        for (int i = 0; i < KILLS_A_ROUND && killed < kills; i++, killed++) {
            nap(&random_state, NAP_US_MAX);
            replace_racer((int)(next_random(&random_state) % (uint64_t)racers));
        }
        ask_to_stand_still();
        if (!board->failed)
            prove();
        if (killed < kills)
            go_on();
    }
    return board->failed;
}

static void end_racers(void) {
    for (int i = 0; i < racers; i++) {
        if (pids[i] <= 0)
            continue;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

int main(int count, char **arguments) {
    char line[16];
    if (count == 4 && !strcmp(arguments[1], "racer"))
        return race(atoi(arguments[2]), strtoull(arguments[3], NULL, 10));
    if (count != 6 || !(board = board_make()) || !(machine = open_machine())) {
        puts("failed: usage, or no simulated machine");
        return 2;
    }
    racers = atoi(arguments[1]);
    board->cap_bytes = strtoull(arguments[3], NULL, 10);
    if (!strcmp(arguments[4], "fair"))
        board->racer_bytes_max = board->cap_bytes / (uint64_t)racers / GRANULE * GRANULE;
    if (!strcmp(arguments[4], "bare"))
        too_much_bytes = GRANULE;
    random_state = strtoull(arguments[5], NULL, 10);
    int failed = racers > RACERS_MAX ? 1 : conduct(atoi(arguments[2]));
    if (failed)
        printf("failed: %s\n", board->failure);
    else
        printf(
            "sum %llu allocations %llu refusals %llu launches %llu peak %llu death-us-max %llu\n",
            (unsigned long long)sum_held(), (unsigned long long)board->allocations,
            (unsigned long long)board->refusals, (unsigned long long)board->launches,
            (unsigned long long)board->peak_bytes, (unsigned long long)death_ns_max / 1000);
    fflush(stdout);
    if (!failed && !fgets(line, sizeof(line), stdin))
        line[0] = 0;
    end_racers();
    return failed;
}
