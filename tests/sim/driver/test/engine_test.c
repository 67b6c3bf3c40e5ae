// engine_test.c: the time model alone, under random schedules with a pretended clock.
//
// Checked for each operation: it finishes after what it waits for, after its launch, and after its
// cost. Checked for each GPU at each step: no idle engine with ready work, busy and switch time
// within wall time, the processes' books add up to the GPU's.
#include "../../engine.h"
#include "test.h"
#include "test_machine.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#define PROCESSES 4u
#define CONTEXTS 6u
#define OPERATIONS 700u  // of one context, fewer than the ring holds

static uint64_t seed;

static uint64_t random_below(uint64_t bound) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

static struct sim_engines *engines_new(const struct sim_config *config, uint64_t now) {
    struct sim_engines *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(e != MAP_FAILED);
    sim_engines_init(e, config, now);
    e->stays_used = PROCESSES;
    return e;
}

static uint32_t open_context(struct sim_engines *e, unsigned process, unsigned gpu) {
    static uint64_t cookies;
    uint32_t context;
    CHECK_EQ(sim_engines_open(e, process, process + 1, ++cookies, gpu, &context), 0);
    return context;
}

static uint64_t submit(struct sim_engines *e, uint32_t context, enum sim_engine engine,
                       uint64_t cost, struct sim_dep a, struct sim_dep b, uint64_t now) {
    struct sim_work work = {.engine = engine, .cost_ns = cost, .deps = {a, b}};
    uint64_t seq = e->contexts[context].tail, recycled;
    CHECK_EQ(sim_engines_submit(e, context, &work, now, &recycled), 0);
    return seq;
}

// ---- What must hold at every moment ----

static void check_gpu(struct sim_engines *e, unsigned g, uint64_t started) {
    struct sim_gpu *gpu = &e->gpus[g];
    uint64_t busy = 0, copies = 0;
    for (unsigned p = 0; p < PROCESSES; p++) {
        const struct sim_books *books = &e->stays[p][g].books;
        uint64_t by_rivals = 0;
        for (unsigned i = 0; i < SIM_RIVALS_MAX; i++)
            by_rivals += books->busy_by_rivals_ns[i];
        CHECK_EQ(by_rivals, books->busy_ns);
        busy += books->busy_ns;
        copies += books->copy_ns;
    }
    CHECK_EQ(busy, gpu->busy_ns);
    CHECK_EQ(copies, gpu->copy_ns[0] + gpu->copy_ns[1]);
    CHECK(gpu->busy_ns + gpu->switched_ns <= gpu->now_ns - started);
    bool ready = false;
    for (uint32_t i = 0; i < e->contexts_used; i++)
        ready |= e->contexts[i].serial && e->contexts[i].gpu == g && e->contexts[i].ready.head;
    CHECK(!ready || gpu->mode != SIM_IDLE);
    CHECK((gpu->rivals != 0) == ready);
    for (unsigned i = 0; i < 2; i++)
        CHECK(!gpu->copiers[i].queue.head || gpu->copiers[i].running);
}

static void check_operation(struct sim_engines *e, uint32_t context, uint64_t seq) {
    struct sim_item *item = sim_engines_item(e, context, seq);
    CHECK(item);
    uint64_t ready = item->submit_ns;
    for (unsigned i = 0; i < SIM_DEPS_MAX; i++) {
        struct sim_item *dep = NULL;
        if (item->deps[i].seq)
            dep = sim_engines_item(e, item->deps[i].context, item->deps[i].seq);
        if (!dep)
            continue;
        CHECK(!item->finish_ns || dep->finish_ns);
        ready = dep->finish_ns > ready ? dep->finish_ns : ready;
    }
    if (!item->finish_ns)
        return;
    if (item->engine == SIM_ENGINE_NONE) {
        CHECK_EQ(item->finish_ns, ready);
    } else if (item->engine == SIM_ENGINE_HOST) {
        CHECK(item->finish_ns >= ready);
    } else {
        uint64_t launch = item->submit_ns + e->gpus[e->contexts[context].gpu].launch_ns;
        ready = launch > ready ? launch : ready;
        CHECK(item->finish_ns >= ready + item->cost_ns);
    }
}

// ---- Random schedules ----

struct schedule {
    struct sim_engines *e;
    uint32_t contexts[CONTEXTS];
    uint64_t streams[CONTEXTS][3];  // the newest operation of each
    uint64_t now, started;
    uint64_t cost[SIM_GPUS_MAX];    // of the kernels
    uint64_t copied[SIM_GPUS_MAX];  // of the copies
};

static struct sim_dep random_dep(struct schedule *s) {
    unsigned c = (unsigned)random_below(CONTEXTS);
    uint64_t tail = s->e->contexts[s->contexts[c]].tail;
    if (tail <= 1 || random_below(4))
        return (struct sim_dep){0, 0};
    return (struct sim_dep){.seq = 1 + random_below(tail - 1), .context = s->contexts[c]};
}

static void random_submit(struct schedule *s) {
    static const enum sim_engine engines[] = {SIM_ENGINE_NONE, SIM_ENGINE_COMPUTE,
                                              SIM_ENGINE_COMPUTE, SIM_ENGINE_H2D, SIM_ENGINE_D2H};
    unsigned c = (unsigned)random_below(CONTEXTS), stream = (unsigned)random_below(3);
    uint32_t context = s->contexts[c];
    if (s->e->contexts[context].tail >= OPERATIONS)
        return;
    enum sim_engine engine = engines[random_below(5)];
    uint64_t cost = engine == SIM_ENGINE_NONE ? 0 : random_below(random_below(4) ? 30000 : 3000000);
    if (engine == SIM_ENGINE_COMPUTE)
        s->cost[s->e->contexts[context].gpu] += cost;
    else
        s->copied[s->e->contexts[context].gpu] += cost;
    struct sim_dep before = {.seq = s->streams[c][stream], .context = context};
    s->streams[c][stream] = submit(s->e, context, engine, cost, before, random_dep(s), s->now);
}

static void check_all(struct schedule *s) {
    for (unsigned g = 0; g < s->e->gpu_count; g++)
        check_gpu(s->e, g, s->started);
    for (unsigned c = 0; c < CONTEXTS; c++)
        for (uint64_t seq = 1; seq < s->e->contexts[s->contexts[c]].tail; seq++)
            check_operation(s->e, s->contexts[c], seq);
}

// The most that the rest of a schedule can take: slices may be shorter than the switches between
// them, and each operation may be the only one at work.
static uint64_t longest(const struct schedule *s, const struct sim_config *config) {
    uint64_t bound = 1;
    for (unsigned i = 0; i < config->gpu_count; i++) {
        const struct sim_gpu_config *gpu = &config->gpus[i];
        uint64_t turns = s->cost[i] / gpu->slice_ns + CONTEXTS * OPERATIONS;
        bound += s->cost[i] + s->copied[i] + turns * (gpu->switch_ns + gpu->launch_ns);
    }
    return bound;
}

static void run_schedule(bool repairs) {
    struct sim_config config = test_config();
    struct schedule s = {.now = 1000, .started = 1000};
    for (unsigned i = 0; i < config.gpu_count; i++) {
        config.gpus[i].queue_depth = SIM_QUEUE_MAX;
        config.gpus[i].slice_ns = 200 + random_below(2000000);
        config.gpus[i].switch_ns = random_below(200000);
        config.gpus[i].launch_ns = random_below(2) * random_below(5000);
    }
    s.e = engines_new(&config, s.now);
    for (unsigned c = 0; c < CONTEXTS; c++)
        s.contexts[c] = open_context(s.e, c % PROCESSES, c % config.gpu_count);
    for (unsigned step = 0; step < 4000; step++) {
        s.now += random_below(random_below(3) ? 3000 : 400000);
        sim_engines_advance(s.e, s.now);
        for (unsigned i = (unsigned)random_below(3); i; i--)
            random_submit(&s);
        if (repairs && !random_below(20))
            sim_engines_rebuild(s.e);
        sim_engines_advance(s.e, s.now);
        for (unsigned g = 0; g < config.gpu_count; g++)
            check_gpu(s.e, g, s.started);
        if (step % 500 == 0)
            check_all(&s);
    }
    sim_engines_advance(s.e, s.now + longest(&s, &config));
    check_all(&s);
    for (unsigned c = 0; c < CONTEXTS; c++)
        CHECK_EQ(s.e->contexts[s.contexts[c]].floor, s.e->contexts[s.contexts[c]].tail);
    for (unsigned g = 0; g < config.gpu_count; g++)
        CHECK_EQ(s.e->gpus[g].busy_ns, s.cost[g]);
    munmap(s.e, sizeof *s.e);
}

static void random_schedules(void) {
    for (unsigned i = 0; i < 20; i++)
        run_schedule(false);
}

static void random_schedules_with_repairs(void) {
    for (unsigned i = 0; i < 20; i++)
        run_schedule(true);
}

// ---- Contexts that take turns ----

// Keeps each context's queue filled with kernels of its own length, and returns the greatest
// difference between two contexts' times.
static uint64_t spread(const uint64_t *costs, unsigned count) {
    struct sim_config config = test_config();
    config.gpu_count = 1;
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    uint64_t now = 1;
    struct sim_engines *e = engines_new(&config, now);
    for (unsigned i = 0; i < count; i++)
        open_context(e, i, 0);
    for (; now < UINT64_C(2000000000); now += 200000) {
        sim_engines_advance(e, now);
        for (unsigned i = 0; i < count; i++) {
            struct sim_context *c = &e->contexts[i];
            while (c->tail - c->floor < 500) {
                struct sim_dep before = {.seq = c->tail - 1, .context = i};
                submit(e, i, SIM_ENGINE_COMPUTE, costs[i], before, (struct sim_dep){0, 0}, now);
            }
        }
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t busy = e->stays[i][0].books.busy_ns;
        least = busy < least ? busy : least;
        most = busy > most ? busy : most;
    }
    munmap(e, sizeof *e);
    return most - least;
}

static void turns_are_equal(void) {
    uint64_t two[] = {1000000, 20000}, four[] = {1000000, 20000, 300000, 5000};
    CHECK(spread(two, 2) <= 2 * 1024000);
    CHECK(spread(four, 4) <= 2 * 1024000);
}

// A context that has work now and then does not lose its turns to one that always has.
static void yields_early(void) {
    struct sim_config config = test_config();
    config.gpu_count = 1;
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    config.gpus[0].switch_ns = 100000;
    config.gpus[0].launch_ns = 0;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t a = open_context(e, 0, 0), b = open_context(e, 1, 0);
    struct sim_dep none = {0, 0};
    submit(e, a, SIM_ENGINE_COMPUTE, 50000000, none, none, 1);
    sim_engines_advance(e, 500000);
    uint64_t seq = submit(e, b, SIM_ENGINE_COMPUTE, 10000, none, none, 500000);
    sim_engines_advance(e, 100000000);
    // The end of the slice, the switch, the kernel.
    CHECK_EQ(sim_engines_item(e, b, seq)->finish_ns, 1 + 1024000 + 100000 + 10000);
    CHECK_EQ(e->gpus[0].switches, 2);
    CHECK_EQ(sim_engines_item(e, a, 1)->finish_ns, 1 + 50000000 + 2 * 100000 + 10000);
    munmap(e, sizeof *e);
}

// ---- Single rules ----

static void copies_overlap_kernels(void) {
    struct sim_config config = test_config();
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    config.gpus[0].launch_ns = 0;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t context = open_context(e, 0, 0);
    struct sim_dep none = {0, 0};
    submit(e, context, SIM_ENGINE_COMPUTE, 1000, none, none, 1);
    submit(e, context, SIM_ENGINE_H2D, 1000, none, none, 1);
    submit(e, context, SIM_ENGINE_D2H, 1000, none, none, 1);
    submit(e, context, SIM_ENGINE_H2D, 1000, none, none, 1);
    sim_engines_advance(e, 10000);
    for (uint64_t seq = 1; seq <= 3; seq++)
        CHECK_EQ(sim_engines_item(e, context, seq)->finish_ns, 1001);
    CHECK_EQ(sim_engines_item(e, context, 4)->finish_ns, 2001);
    munmap(e, sizeof *e);
}

static void queue_is_bounded(void) {
    struct sim_config config = test_config();
    config.gpus[0].queue_depth = 8;
    config.gpus[0].slice_ns = 1024000;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t context = open_context(e, 0, 0);
    struct sim_dep none = {0, 0};
    struct sim_work work = {.engine = SIM_ENGINE_COMPUTE, .cost_ns = 1000};
    uint64_t recycled;
    for (unsigned i = 0; i < 8; i++)
        submit(e, context, SIM_ENGINE_COMPUTE, 1000, none, none, 1);
    CHECK_EQ(sim_engines_submit(e, context, &work, 1, &recycled), EAGAIN);
    // The launch, the first kernel.
    CHECK_EQ(sim_engines_bound(e, context, 1, 1), config.gpus[0].launch_ns + 1000);
    sim_engines_advance(e, 1 + config.gpus[0].launch_ns + 1000);
    CHECK_EQ(sim_engines_submit(e, context, &work, 4000, &recycled), 0);
    munmap(e, sizeof *e);
}

static void host_functions_hold_their_stream(void) {
    struct sim_config config = test_config();
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t context = open_context(e, 0, 0);
    struct sim_dep none = {0, 0};
    uint64_t host = submit(e, context, SIM_ENGINE_HOST, 0, none, none, 1);
    struct sim_dep before = {.seq = host, .context = context};
    uint64_t kernel = submit(e, context, SIM_ENGINE_COMPUTE, 1000, before, none, 1);
    sim_engines_advance(e, 1000000);
    CHECK_EQ(sim_engines_bound(e, context, kernel, 1000000), UINT64_MAX);
    sim_engines_finish(e, context, host, 1000000);
    sim_engines_advance(e, 2000000);
    CHECK_EQ(sim_engines_item(e, context, kernel)->finish_ns, 1001000);
    munmap(e, sizeof *e);
}

// However long an operation claims to take: it is bounded, and what waits for it knows for how
// long.
static void endless_costs(void) {
    struct sim_config config = test_config();
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    config.gpus[0].launch_ns = 0;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t a = open_context(e, 0, 0), b = open_context(e, 1, 0);
    struct sim_dep before = {0, 0}, none = {0, 0};
    for (unsigned i = 0; i < SIM_QUEUE_MAX; i++)
        before = (struct sim_dep){
            .seq = submit(e, a, SIM_ENGINE_COMPUTE, UINT64_MAX - i, before, none, 1), .context = a};
    uint64_t other = submit(e, b, SIM_ENGINE_COMPUTE, 1000, none, none, 1);
    uint64_t copy = submit(e, b, SIM_ENGINE_D2H, UINT64_MAX, none, none, 1);
    sim_engines_advance(e, 10000000);
    CHECK(sim_engines_item(e, b, other)->finish_ns);
    CHECK(!sim_engines_item(e, b, copy)->finish_ns);
    CHECK(sim_engines_bound(e, a, before.seq, 10000000) > SIM_COST_NS_MAX * (SIM_QUEUE_MAX - 1));
    sim_engines_advance(e, 10000000 + 2 * SIM_COST_NS_MAX);
    CHECK(sim_engines_item(e, a, 1)->finish_ns);
    CHECK(sim_engines_item(e, b, copy)->finish_ns);
    munmap(e, sizeof *e);
}

// A context that goes takes its work along, and what waited for it goes on.
static void closed_context_holds_nobody(void) {
    struct sim_config config = test_config();
    config.gpus[0].queue_depth = SIM_QUEUE_MAX;
    config.gpus[0].slice_ns = 1024000;
    config.gpus[0].launch_ns = 0;
    struct sim_engines *e = engines_new(&config, 1);
    uint32_t a = open_context(e, 0, 0), b = open_context(e, 0, 0);
    struct sim_dep none = {0, 0};
    uint64_t forever = submit(e, a, SIM_ENGINE_COMPUTE, UINT64_C(1) << 50, none, none, 1);
    struct sim_dep on_it = {.seq = forever, .context = a};
    uint64_t kernel = submit(e, b, SIM_ENGINE_COMPUTE, 1000, on_it, none, 1);
    sim_engines_advance(e, 5000000);
    CHECK_EQ(sim_engines_item(e, b, kernel)->finish_ns, 0);
    sim_engines_close(e, a);
    sim_engines_rebuild(e);
    sim_engines_advance(e, 10000000);
    CHECK(sim_engines_item(e, b, kernel)->finish_ns);
    uint32_t again = open_context(e, 0, 0);
    CHECK_EQ(again, a);
    CHECK(!sim_engines_item(e, again, forever));
    munmap(e, sizeof *e);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec << 20 | 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    static const struct test tests[] = {
        TEST(copies_overlap_kernels),
        TEST(queue_is_bounded),
        TEST(host_functions_hold_their_stream),
        TEST(endless_costs),
        TEST(closed_context_holds_nobody),
        TEST(yields_early),
        TEST(turns_are_equal),
        TEST(random_schedules),
        TEST(random_schedules_with_repairs),
    };
    return RUN(tests);
}
