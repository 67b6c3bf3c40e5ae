// cases.c: what can happen to a thread at the gate, one case each. A case says what does not hold,
// with its line, and the program fails.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

// Longer than any wait that a case ends by itself.
#define LONG_MS 20000u
#define CROWD 10

static int wrong;
static struct page page;
static int agent_is_there = 1;
static unsigned asked;

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                  \
            wrong = 1;                                                                             \
        }                                                                                          \
    } while (0)

static uint64_t counted(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static int agent_alive(void *argument) {
    asked++;
    return *(int *)argument;
}

// A launch that may be made to take its time, on a thread of its own.
struct slow_launch {
    pthread_t thread;
    sem_t entered, may_leave;
    uint32_t gpu;
};

static void *launch_slowly(void *argument) {
    struct slow_launch *launch = argument;
    struct weir_pass pass = weir_gate_enter(gate, launch->gpu);
    sem_post(&launch->entered);
    while (sem_wait(&launch->may_leave) != 0)
        ;
    weir_gate_leave(gate, launch->gpu, pass);
    return NULL;
}

static void begin_launch(struct slow_launch *launch, uint32_t gpu) {
    sem_init(&launch->entered, 0, 0);
    sem_init(&launch->may_leave, 0, 0);
    launch->gpu = gpu;
    if (pthread_create(&launch->thread, NULL, launch_slowly, launch) != 0)
        exit(1);
}

static void await_entry(struct slow_launch *launch) {
    while (sem_wait(&launch->entered) != 0)
        ;
}

static void end_launch(struct slow_launch *launch) {
    sem_post(&launch->may_leave);
    pthread_join(launch->thread, NULL);
}

static void await_gated(uint64_t count) {
    while (counted(&gate->counts.gated) < count)
        weir_sys_sleep_ms(1);
}

static void launch_once(void) {
    weir_gate_leave(gate, 0, weir_gate_enter(gate, 0));
}

static void opened(void) {
    launch_once();
    HOLDS(gate->used == 1 && !gate->counts.gated && !gate->counts.late);
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == -EAGAIN);
    weir_gate_bind(gate, 0, NULL);
    launch_once();
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == -EAGAIN);
}

// The revoker tells a launch from the next one of the same thread.
static void numbered(void) {
    weir_gate_register(gate);
    for (int i = 0; i < 2; i++) {
        struct weir_pass pass = weir_gate_enter(gate, 0);
        uint64_t state = gate->words[0].state;
        weir_gate_leave(gate, 0, pass);
        pass = weir_gate_enter(gate, 0);
        HOLDS(gate->words[0].state != state);
        weir_gate_leave(gate, 0, pass);
        gate->mode = WEIR_GATE_LOCKED;
    }
}

static uint64_t state_at_load;

static void make_readable(int signal) {
    (void)signal;
    state_at_load = gate->words[0].state;
    weir_sys_mprotect((void *)(uintptr_t)page.seen, WEIR_PAGE_BYTES, PROT_READ);
}

// The compiler leaves E1 before E2: the lease lies where a read is noticed.
static void order(void) {
    struct sigaction action = {.sa_handler = make_readable};
    weir_gate_register(gate);
    launch_once();
    sigaction(SIGSEGV, &action, NULL);
    weir_sys_mprotect((void *)(uintptr_t)page.seen, WEIR_PAGE_BYTES, PROT_NONE);
    launch_once();
    HOLDS(state_at_load & WEIR_GATE_INSIDE);
}

// Who is inside is waited for, and not for longer than was said; a launch that ends while its lease
// is drained is not late, one that ends after it is.
static void inside(void) {
    struct slow_launch launch;
    begin_launch(&launch, 0);
    await_entry(&launch);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    end_launch(&launch);
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == 0);
    HOLDS(gate->counts.late == 0);

    page_write(&page, open_lease(2));
    begin_launch(&launch, 0);
    await_entry(&launch);
    page_write(&page, closed_lease(2));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    page_write(&page, open_lease(3));
    end_launch(&launch);
    HOLDS(gate->counts.late == 1);
}

static void other_gpu(void) {
    struct slow_launch launch;
    begin_launch(&launch, 1);
    await_entry(&launch);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 0) == 0);
    end_launch(&launch);
}

static void waits(void) {
    struct slow_launch launch;
    page_write(&page, closed_lease(1));
    begin_launch(&launch, 0);
    await_gated(1);
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == 0);
    page_write(&page, open_lease(2));
    await_entry(&launch);
    page_write(&page, closed_lease(2));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    end_launch(&launch);
    HOLDS(gate->counts.gated == 1 && !gate->counts.ungated && !gate->counts.late);
}

static void longest_wait(void) {
    page_write(&page, closed_lease(1));
    gate->wait_ms_max = 250;
    errno = 77;
    struct weir_pass pass = weir_gate_enter(gate, 0);
    HOLDS(errno == 77);
    HOLDS(gate->counts.ungated == 1 && gate->counts.gated == 1);
    HOLDS(asked >= 3);  // after each wait of a tenth of a second
    HOLDS(weir_gate_revoke(gate, 0, 0) == 1);
    page_write(&page, open_lease(2));
    weir_gate_leave(gate, 0, pass);
    HOLDS(gate->counts.late == 0);
}

static unsigned wanted;

static uint64_t want(void *argument, uint32_t gpu, uint32_t lease) {
    (void)argument;
    wanted += gpu == 0 && lease == closed_lease(2);
    return gate->wait_ms_max;
}

// What one thread has waited for as long as it may none waits for, but each says that it wants it;
// that holds on its GPU, and until there is another number.
static void waived(void) {
    struct slow_launch launch, waiting;
    gate->want = want;
    page_write(&page, closed_lease(2));
    gate->wait_ms_max = 10;
    launch_once();
    HOLDS(gate->counts.ungated == 1 && gate->counts.gated == 1);
    gate->wait_ms_max = LONG_MS;
    unsigned before = wanted;
    begin_launch(&launch, 0);
    await_entry(&launch);
    end_launch(&launch);
    launch_once();
    HOLDS(gate->counts.ungated == 3 && gate->counts.gated == 1 && wanted == before + 2);
    struct page beside = page_new();
    page_write(&beside, closed_lease(2));
    weir_gate_bind(gate, 1, beside.seen);
    begin_launch(&waiting, 1);
    await_gated(2);
    page_write(&beside, open_lease(3));
    end_launch(&waiting);
    page_write(&page, closed_lease(3));
    begin_launch(&waiting, 0);
    await_gated(3);
    page_write(&page, open_lease(4));
    end_launch(&waiting);
    HOLDS(gate->counts.ungated == 3);
}

// A launch on GPUs 0 and 1, as launchmany.c goes through their gates.
static void *launch_on_two(void *argument) {
    struct slow_launch *launch = argument;
    struct weir_gate_tries tries = {0, 0};
    struct weir_pass passes[2];
    for (uint32_t gpu = 0; gpu < 2;) {
        if (weir_gate_enter_now(gate, gpu, &tries, &passes[gpu])) {
            gpu++;
            continue;
        }
        for (uint32_t i = 0; i < gpu; i++)
            weir_gate_leave(gate, i, passes[i]);
        weir_gate_await(gate, gpu, &tries);
        gpu = 0;
    }
    sem_post(&launch->entered);
    while (sem_wait(&launch->may_leave) != 0)
        ;
    for (uint32_t gpu = 0; gpu < 2; gpu++)
        weir_gate_leave(gate, gpu, passes[gpu]);
    return NULL;
}

static void begin_on_two(struct slow_launch *launch) {
    sem_init(&launch->entered, 0, 0);
    sem_init(&launch->may_leave, 0, 0);
    pthread_create(&launch->thread, NULL, launch_on_two, launch);
}

// Who waits for one GPU is inside no other's gate, so that one's lease ends at once; and it is
// inside both in the end, or has waited for both as long as may be.
static void several(void) {
    struct slow_launch launch;
    struct page beside = page_new();
    page_write(&beside, closed_lease(1));
    weir_gate_bind(gate, 1, beside.seen);
    begin_on_two(&launch);
    await_gated(1);
    HOLDS(weir_gate_inside(gate, 0) == 0);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == 0);
    page_write(&beside, open_lease(2));
    while (!weir_gate_waiting(gate, 0))
        ;
    page_write(&beside, closed_lease(2));
    HOLDS(weir_gate_revoke(gate, 1, LONG_MS) == 0);
    page_write(&page, open_lease(2));
    page_write(&beside, open_lease(3));
    await_entry(&launch);
    HOLDS(weir_gate_inside(gate, 0) == 1 && weir_gate_inside(gate, 1) == 1);
    end_launch(&launch);
    HOLDS(gate->counts.gated == 1 && !gate->counts.ungated && !gate->counts.late);
    HOLDS(!weir_gate_inside(gate, 0) && !weir_gate_inside(gate, 1));

    gate->wait_ms_max = 10;
    page_write(&beside, closed_lease(3));
    page_write(&page, closed_lease(2));
    begin_on_two(&launch);
    await_entry(&launch);
    HOLDS(gate->counts.ungated == 2 && gate->passed_closed[0] == 1 && gate->passed_closed[1] == 1);
    end_launch(&launch);
}

static void agent_gone(void) {
    struct slow_launch launch;
    page_write(&page, closed_lease(1));
    begin_launch(&launch, 0);
    await_gated(1);
    __atomic_store_n(&agent_is_there, 0, __ATOMIC_SEQ_CST);
    await_entry(&launch);
    end_launch(&launch);
    launch_once();
    HOLDS(gate->counts.agentless == 2 && gate->counts.gated == 1 && !gate->counts.ungated);
}

// Whose lease ends because there are none any more is not late.
static void no_leases(void) {
    struct slow_launch launch;
    for (int i = 0; i < 2; i++) {
        begin_launch(&launch, 0);
        await_entry(&launch);
        if (i == 0)
            page_write(&page, 0);
        else
            weir_gate_bind(gate, 0, NULL);
        end_launch(&launch);
        page_write(&page, open_lease(2));
    }
    HOLDS(gate->counts.late == 0);
}

// A page in the place of the one that a thread waits on, and of the one that a launch went by.
static void replaced(void) {
    struct slow_launch launch, waiting;
    begin_launch(&launch, 0);
    await_entry(&launch);
    page_replace(&page, closed_lease(9));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    begin_launch(&waiting, 0);
    await_gated(1);
    page_replace(&page, open_lease(10));
    await_entry(&waiting);
    end_launch(&waiting);
    end_launch(&launch);
    HOLDS(gate->counts.late == 1 && !gate->counts.ungated);

    // The same by a page elsewhere.
    struct page other = page_new();
    page_write(&other, closed_lease(10));
    begin_launch(&launch, 0);
    await_entry(&launch);
    weir_gate_bind(gate, 0, other.seen);
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    end_launch(&launch);
    begin_launch(&waiting, 0);
    await_gated(2);
    weir_gate_bind(gate, 0, NULL);
    await_entry(&waiting);
    end_launch(&waiting);
    HOLDS(gate->counts.late == 1 && !gate->counts.ungated);
}

static void launch_in_handler(int signal) {
    (void)signal;
    launch_once();
}

static void interrupt(int flags) {
    struct sigaction action = {.sa_handler = launch_in_handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    page_write(&page, open_lease(1));
    struct weir_pass pass = weir_gate_enter(gate, 0);
    page_write(&page, closed_lease(1));
    raise(SIGUSR1);
    HOLDS(weir_gate_revoke(gate, 0, 0) == 1);
    weir_gate_leave(gate, 0, pass);
    HOLDS(weir_gate_revoke(gate, 0, 0) == 0);
}

// A handler that launches passes while its thread is inside, since that waits for it. Also where
// its stack lies above the thread's.
static void nested(void) {
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    interrupt(0);
    sigaltstack(&stack, NULL);
    interrupt(SA_ONSTACK);
    HOLDS(gate->counts.nested == 2 && !gate->counts.gated && !gate->counts.abandoned);
}

static void *interrupt_high_stack(void *argument) {
    stack_t stack = {.ss_sp = argument, .ss_size = 65536};
    sigaltstack(&stack, NULL);
    interrupt(SA_ONSTACK);
    return NULL;
}

// The same with the alternate stack above and below the other.
static void nested_beside(void) {
    char *memory = weir_sys_map(3 << 20);
    pthread_attr_t attributes;
    pthread_t thread;
    for (int above = 0; above < 2; above++) {
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, memory + (1 << 20), 1 << 20);
        pthread_create(&thread, &attributes, interrupt_high_stack, memory + above * (2 << 20));
        pthread_join(thread, NULL);
    }
    HOLDS(gate->counts.nested == 2 && !gate->counts.abandoned);
}

static sigjmp_buf back;

// The same frame for a launch that is left by a jump and for one that is not.
__attribute__((noinline)) static void launch_or_jump(int jump) {
    struct weir_pass pass = weir_gate_enter(gate, 0);
    if (jump)
        siglongjmp(back, 1);
    weir_gate_leave(gate, 0, pass);
}

__attribute__((noinline)) static void launch_deeper(void) {
    volatile char room[4096];
    room[0] = 0;
    launch_or_jump(0);
    room[1] = room[0];
}

// A launch whose frame was left by a jump does not let its thread pass for good.
static void jumps(void) {
    if (sigsetjmp(back, 0) == 0)
        launch_or_jump(1);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1);
    gate->wait_ms_max = 1;
    launch_or_jump(0);
    HOLDS(gate->counts.abandoned == 1 && gate->counts.ungated == 1 && !gate->counts.nested);

    page_write(&page, open_lease(2));
    if (sigsetjmp(back, 0) == 0)
        launch_or_jump(1);
    page_write(&page, closed_lease(2));
    for (int i = 0; i < 40; i++)
        launch_deeper();
    HOLDS(gate->counts.abandoned == 2 && gate->counts.nested <= 16);
    HOLDS(gate->counts.ungated == 1 + 40 - gate->counts.nested);
    HOLDS(weir_gate_revoke(gate, 0, 0) == 0);
}

static void *enter_and_end(void *argument) {
    weir_gate_enter(gate, 0);
    pthread_exit(argument);
}

// A thread that ends inside is not waited for, and its word serves the next one.
static void ends_inside(void) {
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        page_write(&page, open_lease(1));
        pthread_create(&thread, NULL, enter_and_end, NULL);
        pthread_join(thread, NULL);
        page_write(&page, closed_lease(1));
        HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == 0);
    }
    HOLDS(gate->used == 1 && gate->counts.abandoned == 2);
}

static int child_of(pid_t pid) {
    int status = 1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

// A child has no thread inside, whatever its parent's were doing, and a gate without a lease.
static void forks(void) {
    struct slow_launch launch;
    weir_gate_register(gate);
    begin_launch(&launch, 0);
    await_entry(&launch);
    struct weir_pass pass = weir_gate_enter(gate, 0);
    pid_t pid = fork();
    if (pid == 0) {
        HOLDS(gate->used == 0 && gate->mode == WEIR_GATE_LOCKED);
        HOLDS(weir_gate_register(gate) == 0);
        launch_once();
        HOLDS(gate->used == 1 && gate->words[0].tid != 0);
        page_write(&page, closed_lease(1));
        gate->wait_ms_max = 1;
        weir_gate_bind(gate, 0, page.seen);
        HOLDS(weir_gate_revoke(gate, 0, 0) == 0);
        launch_once();
        HOLDS(gate->counts.ungated == 1);
        _exit(wrong);
    }
    HOLDS(child_of(pid) == 0);
    HOLDS(weir_gate_revoke(gate, 0, 0) == 2);
    weir_gate_leave(gate, 0, pass);
    end_launch(&launch);
    HOLDS(weir_gate_revoke(gate, 0, 0) == 0);
}

// A vforked child that dies inside has used its parent's word.
static void vforks(void) {
    pid_t pid = vfork();
    struct weir_pass pass = weir_gate_enter(gate, 0);
    if (pid == 0)
        _exit(0);
    weir_gate_leave(gate, 0, pass);
    HOLDS(child_of(pid) == 0);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 0) == 0 && gate->counts.abandoned == 1);
}

// More threads than words.
static void crowded(void) {
    struct slow_launch launches[CROWD];
    for (int i = 0; i < CROWD; i++)
        begin_launch(&launches[i], 0);
    for (int i = 0; i < CROWD; i++)
        await_entry(&launches[i]);
    HOLDS(gate->used <= WEIR_GATE_WORDS);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 20) == CROWD);
    for (int i = 0; i < CROWD; i++)
        end_launch(&launches[i]);
    HOLDS(weir_gate_revoke(gate, 0, LONG_MS) == 0);
}

// A filter that takes membarrier away, as a sandbox may put on late.
static void filtered(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = rules};
    struct slow_launch launch;
    HOLDS(weir_gate_register(gate) == 0 && gate->mode == WEIR_GATE_PLAIN);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        printf("skipped: no filters here\n");
        exit(0);
    }
    begin_launch(&launch, 0);
    await_entry(&launch);
    page_write(&page, closed_lease(1));
    HOLDS(weir_gate_revoke(gate, 0, 20) == 1 && gate->mode == WEIR_GATE_LOST);
    end_launch(&launch);
    HOLDS(weir_gate_revoke(gate, 0, 20) == 0);
    HOLDS(weir_gate_register(gate) == -EPERM && gate->mode == WEIR_GATE_LOST);
}

#define CASE(name)                                                                                 \
    { #name, name }

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(opened),   CASE(numbered),     CASE(order),         CASE(inside),     CASE(other_gpu),
    CASE(waits),    CASE(longest_wait), CASE(waived),        CASE(agent_gone), CASE(no_leases),
    CASE(replaced), CASE(nested),       CASE(nested_beside), CASE(jumps),      CASE(ends_inside),
    CASE(forks),    CASE(vforks),       CASE(crowded),       CASE(filtered),   CASE(several),
};

int run_case(const char *name) {
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(name, "cases") == 0)
            printf("%s\n", cases[i].name);
        if (strcmp(name, cases[i].name) != 0)
            continue;
        page = page_new();
        page_write(&page, open_lease(1));
        gate->wait_ms_max = LONG_MS;
        gate->agent_alive = agent_alive;
        gate->argument = &agent_is_there;
        weir_gate_bind(gate, 0, page.seen);
        cases[i].run();
        return wrong;
    }
    return strcmp(name, "cases") ? 2 : 0;
}
