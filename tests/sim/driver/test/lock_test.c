// lock_test.c: processes that die or stop while they hold the engines.
#define _GNU_SOURCE
#include "../../engine.h"
#include "test.h"
#include "test_machine.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sim_machine *machine;

// The test's own mapping is not inherited: a child opens the machine anew, and joins it.
static void join(void) {
    char path[128];
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    CHECK_EQ(sim_process_join(machine), 0);
}

static pid_t spawn(void (*run)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        join();
        run();
        _exit(0);
    }
    return pid;
}

static void wait_stopped(pid_t pid) {
    int status;
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
}

static void go_on(pid_t pid) {
    int status;
    kill(pid, SIGCONT);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static uint64_t launches(void) {
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    return state.launches;
}

// Stops with the lock held and a change half made, and makes it again when told that it is lost.
static void stop_inside(void) {
    unsigned tries = 0;
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        engines->gpus[0].launches += 1;
        if (!tries++)
            raise(SIGSTOP);
        engines->gpus[0].loaded = 12345;  // nobody may see what a loser writes
        engines->gpus[0].loaded = 0;
    } while (!sim_unlock(machine, engines));
    CHECK_EQ(tries, 2);
}

static void stopped_holders(void) {
    enum { N = SIM_REGIONS - 2 };
    pid_t pids[N];
    for (unsigned i = 0; i < N; i++) {
        pids[i] = spawn(stop_inside);
        wait_stopped(pids[i]);
        launches();  // is not held up
    }
    uint64_t before = launches();
    for (unsigned i = 0; i < N; i++)
        go_on(pids[i]);
    // Half-made changes may be in the copy, as after a death; each was then made once in full.
    CHECK_EQ(launches(), before + N);
}

static void die_inside(void) {
    sim_lock(machine);
    raise(SIGKILL);
}

static void dead_holders(void) {
    for (unsigned i = 0; i < 3 * SIM_REGIONS; i++) {
        int status;
        pid_t pid = spawn(die_inside);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFSIGNALED(status));
        launches();
    }
}

// One that stopped after it had ended its change is told that it was kept.
static void stop_after(void) {
    struct sim_engines *engines = sim_lock(machine);
    CHECK(sim_unlock(machine, engines));
    raise(SIGSTOP);
    engines = sim_lock(machine);
    CHECK(sim_unlock(machine, engines));
}

static void stopped_outside(void) {
    pid_t pid = spawn(stop_after);
    wait_stopped(pid);
    launches();
    go_on(pid);
}

// Work of a stopped process goes on: what it submitted is done when its time has come.
static void submit_and_stop(void) {
    uint32_t context;
    uint64_t seq, recycled, wait_ns, finish_ns;
    struct sim_work work = {.engine = SIM_ENGINE_COMPUTE, .cost_ns = 10000000};
    CHECK_EQ(sim_context_open(machine, 0, &context), 0);
    CHECK_EQ(sim_work_submit(machine, context, &work, &seq, &recycled, &wait_ns), 0);
    uint64_t submitted = sim_now_ns();
    raise(SIGSTOP);
    CHECK_EQ(sim_work_look(machine, context, seq, &finish_ns, &wait_ns), 0);
    CHECK(finish_ns && finish_ns <= submitted + 10000000 + 1000000);
}

static void work_of_the_stopped(void) {
    pid_t pid = spawn(submit_and_stop);
    wait_stopped(pid);
    usleep(30000);
    go_on(pid);
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    machine = test_machine(&config);
    static const struct test tests[] = {
        TEST(stopped_holders),
        TEST(dead_holders),
        TEST(stopped_outside),
        TEST(work_of_the_stopped),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
