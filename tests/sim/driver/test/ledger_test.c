// ledger_test.c: the books of device memory, of one process and of many: what is taken, shared,
// held and dropped, by processes that die or stop at every instruction. SEED as environment.
#define _GNU_SOURCE
#include "../../layout.h"
#include "test.h"
#include "test_child.h"
#include "test_machine.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sim_machine *machine;
static unsigned seed;

static void join(void) {
    char path[128];
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    CHECK_EQ(sim_process_join(machine), 0);
}

static uint64_t used_on(unsigned gpu) {
    uint64_t used;
    CHECK_EQ(sim_memory_used(machine, gpu, &used), 0);
    return used;
}

// ---- A process that does as it is told ----

enum order { TAKE, GIVE, MOVE, HOLD, DROP, OPEN, CLOSE };

// Reads an order and its two arguments, and answers with an errno and a share or context.
static void obey(uint64_t unused) {
    (void)unused;
    join();
    tell(0);
    for (;;) {
        uint64_t order = listen_word(), a = listen_word(), b = listen_word(), made = 0;
        unsigned gpu = (unsigned)(order >> 8);
        int rc = 0;
        switch (order & 255) {
        case TAKE:
            rc = sim_memory_take(machine, gpu, a);
            break;
        case GIVE:
            sim_memory_give(machine, gpu, a);
            break;
        case MOVE:
            made = sim_share_name(machine);
            rc = sim_share_move(machine, gpu, made, a);
            break;
        case HOLD:
            rc = sim_share_hold(machine, gpu, b, a);
            break;
        case DROP:
            sim_share_drop(machine, b);
            break;
        case OPEN: {
            uint32_t context = 0;
            rc = sim_context_open(machine, gpu, &context);
            made = context;
            break;
        }
        case CLOSE:
            sim_context_close(machine, (uint32_t)b);
            break;
        }
        tell((uint64_t)rc);
        tell(made);
    }
}

static struct child obeying(void) {
    struct child child = spawn(obey, 0);
    hear(child);
    return child;
}

static uint64_t made;  // by the last order

static int order_on(unsigned gpu, struct child child, enum order order, uint64_t a, uint64_t b) {
    say(child, order | gpu << 8);
    say(child, a);
    say(child, b);
    int rc = (int)hear(child);
    made = hear(child);
    return rc;
}

static int order(struct child child, enum order what, uint64_t a, uint64_t b) {
    return order_on(0, child, what, a, b);
}

static void die(struct child child) {
    kill_now(child);
    close(child.to);
}

// ---- Simple sequences ----

static void one_process(void) {
    struct child a = obeying();
    CHECK_EQ(order(a, TAKE, 64 * MIB + SIM_GRANULE, 0), ENOMEM);
    CHECK_EQ(order(a, TAKE, 60 * MIB, 0), 0);
    CHECK_EQ(order(a, TAKE, 4 * MIB + SIM_GRANULE, 0), ENOMEM);
    CHECK_EQ(order(a, OPEN, 0, 0), 0);
    uint64_t context = made;
    CHECK_EQ(test_used(0), 62 * MIB);
    CHECK_EQ(order(a, TAKE, 2 * MIB, 0), 0);
    CHECK_EQ(order(a, TAKE, SIM_GRANULE, 0), ENOMEM);
    CHECK_EQ(order(a, OPEN, 0, 0), ENOMEM);
    CHECK_EQ(order_on(1, a, TAKE, 64 * MIB, 0), 0);  // another GPU
    struct sim_process_gpu books = test_books_of(a.pid, 0);
    CHECK_EQ(books.allocated_bytes, 62 * MIB);
    CHECK_EQ(books.context_bytes, 2 * MIB);
    CHECK_EQ(books.contexts, 1);
    CHECK_EQ(order(a, CLOSE, 0, context), 0);
    CHECK_EQ(order(a, GIVE, 62 * MIB, 0), 0);
    CHECK_EQ(test_used(0), 0);
    CHECK_EQ(used_on(1), 64 * MIB);
    CHECK_EQ(test_books_of(a.pid, 0).contexts, 0);
    finish(a);
    CHECK_EQ(used_on(1), 0);
}

// Counts once, for the exporter while it holds it, then for the importer that came first.
static void shared(void) {
    struct child a = obeying(), b = obeying(), c = obeying();
    CHECK_EQ(order(a, TAKE, 40 * MIB, 0), 0);
    CHECK_EQ(order(a, MOVE, 30 * MIB, 0), 0);
    uint64_t share = made;
    CHECK_EQ(test_used(0), 40 * MIB);
    CHECK_EQ(test_books_of(a.pid, 0).allocated_bytes, 40 * MIB);
    CHECK_EQ(test_books_of(a.pid, 0).shared_bytes, 30 * MIB);

    CHECK_EQ(order(b, HOLD, 30 * MIB, share), 0);
    CHECK_EQ(order(b, HOLD, 30 * MIB, share), EEXIST);
    CHECK_EQ(order(c, HOLD, 29 * MIB, share), EINVAL);
    CHECK_EQ(order_on(1, c, HOLD, 30 * MIB, share), EINVAL);
    CHECK_EQ(order(c, HOLD, 30 * MIB, 0), EINVAL);
    CHECK_EQ(order(c, HOLD, 30 * MIB, share), 0);
    CHECK_EQ(test_used(0), 40 * MIB);
    CHECK_EQ(test_books_of(b.pid, 0).allocated_bytes, 0);
    CHECK_EQ(test_books_of(b.pid, 0).imported_bytes, 30 * MIB);

    CHECK_EQ(order(a, DROP, 0, share), 0);
    CHECK_EQ(test_used(0), 40 * MIB);
    CHECK_EQ(test_books_of(a.pid, 0).allocated_bytes, 10 * MIB);
    CHECK_EQ(test_books_of(b.pid, 0).allocated_bytes, 30 * MIB);
    CHECK_EQ(test_books_of(b.pid, 0).imported_bytes, 0);
    CHECK_EQ(test_books_of(c.pid, 0).imported_bytes, 30 * MIB);
    die(b);
    CHECK_EQ(test_used(0), 40 * MIB);
    CHECK_EQ(test_books_of(c.pid, 0).shared_bytes, 30 * MIB);
    CHECK(sim_share_held(machine, share));
    CHECK_EQ(order(c, DROP, 0, share), 0);
    CHECK(!sim_share_held(machine, share));
    CHECK_EQ(test_used(0), 10 * MIB);

    // Nobody holds it any more: it must find room anew.
    CHECK_EQ(order(c, TAKE, 25 * MIB, 0), 0);
    CHECK_EQ(order(c, HOLD, 30 * MIB, share), ENOMEM);
    CHECK_EQ(order(c, GIVE, 1 * MIB, 0), 0);
    CHECK_EQ(order(c, HOLD, 30 * MIB, share), 0);
    CHECK_EQ(test_used(0), 64 * MIB);
    finish(a);
    CHECK_EQ(test_used(0), 54 * MIB);
    finish(c);
    CHECK_EQ(test_used(0), 0);
}

// The slot of a dead process takes nothing over. Not for the thread sanitizer either.
static void slots_begin_empty(void) {
#if defined(__SANITIZE_THREAD__)
    return;
#endif
    struct child keeper = obeying();
    CHECK_EQ(order(keeper, TAKE, MIB, 0), 0);
    CHECK_EQ(order(keeper, MOVE, MIB, 0), 0);
    uint64_t share = made;
    for (unsigned i = 0; i < SIM_PROCESSES_MAX + 10; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            join();
            CHECK_EQ(sim_memory_take(machine, 0, 2 * MIB), 0);
            CHECK_EQ(sim_share_hold(machine, 0, share, MIB), 0);
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(test_used(0), MIB);
    finish(keeper);
    CHECK_EQ(test_used(0), 0);
}

// Not for the thread sanitizer, under which it takes a minute and has but one thread.
static void full_of_holds(void) {
#if defined(__SANITIZE_THREAD__)
    return;
#endif
    struct child a = obeying();
    CHECK_EQ(order(a, TAKE, 16 * MIB, 0), 0);
    for (unsigned i = 0; i < SIM_HOLDS_MAX; i++)
        CHECK_EQ(order(a, MOVE, SIM_GRANULE, 0), 0);
    uint64_t share = made;
    CHECK_EQ(order(a, MOVE, SIM_GRANULE, 0), ENOSPC);
    CHECK_EQ(test_used(0), 16 * MIB);
    struct child b = obeying();
    CHECK_EQ(order(b, HOLD, SIM_GRANULE, share), ENOSPC);
    die(a);
    CHECK_EQ(order(b, HOLD, SIM_GRANULE, share), 0);
    CHECK_EQ(test_used(0), SIM_GRANULE);
    finish(b);
}

// ---- Every instruction ----

// What the stepped child does between its two stops.
static uint64_t stepped_share;

static void step_take(void) {
    CHECK_EQ(sim_memory_take(machine, 0, 8 * MIB), 0);
}

static void step_give(void) {
    sim_memory_give(machine, 0, 8 * MIB);
}

static void step_move(void) {
    CHECK_EQ(sim_share_move(machine, 0, sim_share_name(machine), 8 * MIB), 0);
}

static void step_hold(void) {
    CHECK_EQ(sim_share_hold(machine, 0, stepped_share, 8 * MIB), 0);
}

static void step_drop(void) {
    sim_share_drop(machine, stepped_share);
}

// A child that stands before the call, traced: it has 8 MiB for itself and holds no share.
static pid_t step_child(void (*call)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        join();
        CHECK_EQ(sim_memory_take(machine, 0, 8 * MIB), 0);
        CHECK_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
        if (call == step_drop)
            step_hold();
        raise(SIGSTOP);
        call();
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return pid;
}

// Lets the child make its call instruction by instruction. At each place the books are those before
// or after, with one change from the one to the other; and what is free can be had by another,
// which makes the child begin anew: so that is tried at some places only.
static void step_through(struct child other, void (*call)(void), uint64_t before, uint64_t after) {
    pid_t pid = step_child(call);
    unsigned steps = 0, changes = 0, tries = 0;
    uint64_t last = before;
    CHECK_EQ(test_used(0), before);
    for (;; steps++) {
        int status;
        CHECK_EQ(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        uint64_t now = test_used(0);
        CHECK(now == before || now == after);
        changes += now != last;
        last = now;
        if (steps % 97 == 0 && tries++ < 40) {
            uint64_t rest = 64 * MIB - now;
            CHECK_EQ(order(other, TAKE, rest + SIM_GRANULE, 0), ENOMEM);
            CHECK_EQ(order(other, TAKE, rest, 0), 0);
            CHECK_EQ(order(other, GIVE, rest, 0), 0);
        }
    }
    CHECK_EQ(last, after);
    CHECK_EQ(changes, before != after);
    CHECK(steps > 100 && tries > 1);
    int status;
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
}

static void every_instruction(void) {
    struct child other = obeying();
    CHECK_EQ(order(other, TAKE, 8 * MIB, 0), 0);
    CHECK_EQ(order(other, MOVE, 8 * MIB, 0), 0);
    stepped_share = made;
    step_through(other, step_take, 16 * MIB, 24 * MIB);
    step_through(other, step_give, 16 * MIB, 8 * MIB);
    step_through(other, step_move, 16 * MIB, 16 * MIB);
    step_through(other, step_hold, 16 * MIB, 16 * MIB);
    step_through(other, step_drop, 16 * MIB, 16 * MIB);
    CHECK_EQ(test_used(0), 8 * MIB);
    finish(other);
    CHECK_EQ(test_used(0), 0);
}

// ---- At random ----

enum { CROWD = 5 };

static uint64_t *offered;  // a page of them all: the last share of each

static void thrash(uint64_t number) {
    unsigned state = seed + (unsigned)number;
    uint64_t own = 0, share = 0;
    join();
    tell(0);
    for (;;) {
        uint64_t bytes = (1 + (unsigned)rand_r(&state) % 8) * SIM_GRANULE;
        switch (rand_r(&state) % 4) {
        case 0:
            if (own < 4 * MIB)
                own += sim_memory_take(machine, 0, bytes) ? 0 : bytes;
            break;
        case 1:
            bytes = bytes < own ? bytes : own;
            sim_memory_give(machine, 0, bytes);
            own -= bytes;
            break;
        case 2:
            bytes = bytes < own ? bytes : own;
            if (share)
                sim_share_drop(machine, share);
            share = sim_share_name(machine);
            CHECK_EQ(sim_share_move(machine, 0, share, bytes), 0);
            own -= bytes;
            __atomic_store_n(&offered[number % CROWD], share, __ATOMIC_SEQ_CST);
            break;
        case 3:
            // Somebody's, or nobody's any more.
            sim_share_hold(machine, 0, offered[rand_r(&state) % CROWD], SIM_GRANULE);
            break;
        }
    }
}

// Among many that change the books all the time, some of them stopped and some killed, one that
// has reserved its part always gets it, and never does the sum exceed the card.
static void crowd(void) {
    enum { ROUNDS = 150 };
    offered = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(offered != MAP_FAILED);
    struct child children[CROWD], one = obeying();
    for (unsigned i = 0; i < CROWD; i++) {
        children[i] = spawn(thrash, i);
        hear(children[i]);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned victim = (unsigned)rand() % CROWD;
        kill(children[victim].pid, SIGSTOP);
        for (unsigned i = 0; i < 10; i++)
            CHECK(test_used(0) <= 64 * MIB);
        CHECK_EQ(order(one, TAKE, 16 * MIB, 0), 0);
        CHECK(test_used(0) >= 16 * MIB);
        CHECK_EQ(order(one, MOVE, 16 * MIB, 0), 0);
        uint64_t share = made;
        CHECK(test_used(0) >= 16 * MIB && test_used(0) <= 64 * MIB);
        CHECK_EQ(order(one, DROP, 0, share), 0);
        if (rand() % 4) {
            kill(children[victim].pid, SIGCONT);
        } else {
            die(children[victim]);
            children[victim] = spawn(thrash, victim + CROWD * (round + 1));
            hear(children[victim]);
        }
    }
    for (unsigned i = 0; i < CROWD; i++)
        die(children[i]);
    CHECK_EQ(test_used(0), 0);
    finish(one);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    seed = given ? (unsigned)atoi(given) : (unsigned)sim_now_ns();
    printf("SEED=%u\n", seed);
    srand(seed);
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    static const struct test tests[] = {
        TEST(one_process), TEST(shared),        TEST(every_instruction),
        TEST(crowd),       TEST(full_of_holds), TEST(slots_begin_empty),  // last: fills the slots
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
