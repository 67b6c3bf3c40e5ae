// engine.c: the discrete-event simulation (engine.h says what it models).
//
// Operations are linked by numbers, not pointers, since each process maps the file elsewhere: an
// operation's number is context * SIM_QUEUE_MAX + slot + 1, an edge's is 4 times that plus its
// place. All lists are derived state.
#include "engine.h"

#include <errno.h>
#include <string.h>

#define NEVER UINT64_MAX

static uint32_t ref_of(uint32_t context, uint64_t seq) {
    return context * SIM_QUEUE_MAX + (uint32_t)(seq % SIM_QUEUE_MAX) + 1;
}

static struct sim_item *item_of(struct sim_engines *e, uint32_t ref) {
    return &e->items[(ref - 1) / SIM_QUEUE_MAX][(ref - 1) % SIM_QUEUE_MAX];
}

static uint32_t context_of(uint32_t ref) {
    return (ref - 1) / SIM_QUEUE_MAX;
}

static void items_push(struct sim_engines *e, struct sim_list *list, uint32_t ref) {
    item_of(e, ref)->next = 0;
    if (list->tail)
        item_of(e, list->tail)->next = ref;
    else
        list->head = ref;
    list->tail = ref;
}

static uint32_t items_pop(struct sim_engines *e, struct sim_list *list) {
    uint32_t ref = list->head;
    if (ref) {
        list->head = item_of(e, ref)->next;
        if (!list->head)
            list->tail = 0;
    }
    return ref;
}

// Keeps the list ordered by time of arrival. New ones nearly always belong at the end.
static void arriving_insert(struct sim_engines *e, struct sim_list *list, uint32_t ref) {
    struct sim_item *item = item_of(e, ref);
    if (!list->tail || item_of(e, list->tail)->arrive_ns <= item->arrive_ns) {
        items_push(e, list, ref);
        return;
    }
    uint32_t *link = &list->head;
    while (item_of(e, *link)->arrive_ns <= item->arrive_ns)
        link = &item_of(e, *link)->next;
    item->next = *link;
    *link = ref;
}

static void runnable_push(struct sim_engines *e, struct sim_gpu *gpu, uint32_t context) {
    e->contexts[context].next = 0;
    if (gpu->runnable.tail)
        e->contexts[gpu->runnable.tail - 1].next = context + 1;
    else
        gpu->runnable.head = context + 1;
    gpu->runnable.tail = context + 1;
}

static uint32_t runnable_pop(struct sim_engines *e, struct sim_gpu *gpu) {
    uint32_t context = gpu->runnable.head - 1;
    gpu->runnable.head = e->contexts[context].next;
    if (!gpu->runnable.head)
        gpu->runnable.tail = 0;
    return context;
}

static struct sim_stay *stay_of(struct sim_engines *e, uint32_t context) {
    struct sim_context *c = &e->contexts[context];
    return &e->stays[c->process][sim_column(c->gpu)];
}

// Writes the books of a GPU up to t. The clock goes first: cut off half-way, time is lost, not
// counted twice.
static void account(struct sim_engines *e, struct sim_gpu *gpu, uint64_t t) {
    if (t <= gpu->now_ns)
        return;
    uint64_t passed = t - gpu->now_ns;
    gpu->now_ns = t;
    uint32_t rivals = gpu->rivals < SIM_RIVALS_MAX ? gpu->rivals : SIM_RIVALS_MAX;
    if (rivals)
        gpu->wall_by_rivals_ns[rivals - 1] += passed;
    if (gpu->mode == SIM_RUNNING) {
        struct sim_stay *stay = stay_of(e, gpu->loaded - 1);
        item_of(e, e->contexts[gpu->loaded - 1].ready.head)->left_ns -= passed;
        stay->books.busy_ns += passed;
        stay->books.busy_by_rivals_ns[rivals - 1] += passed;
        gpu->busy_ns += passed;
    } else if (gpu->mode == SIM_SWITCHING) {
        gpu->switched_ns += passed;
    }
    for (unsigned i = 0; i < 2; i++) {
        uint32_t ref = gpu->copiers[i].running;
        if (ref) {
            item_of(e, ref)->left_ns -= passed;
            stay_of(e, context_of(ref))->books.copy_ns += passed;
            gpu->copy_ns[i] += passed;
        }
    }
}

static void make_ready(struct sim_engines *e, uint32_t ref, uint64_t t) {
    struct sim_item *item = item_of(e, ref);
    uint32_t context = context_of(ref);
    struct sim_context *c = &e->contexts[context];
    struct sim_gpu *gpu = &e->gpus[c->gpu];
    account(e, gpu, t);
    item->state = SIM_READY;
    gpu->kick = 1;
    if (item->engine != SIM_ENGINE_COMPUTE) {
        items_push(e, &gpu->copiers[item->engine - SIM_ENGINE_H2D].queue, ref);
        return;
    }
    bool first = !c->ready.head;
    items_push(e, &c->ready, ref);
    if (first) {
        if (stay_of(e, context)->working++ == 0)
            gpu->rivals++;
        if (gpu->loaded != context + 1 || gpu->mode == SIM_IDLE)
            runnable_push(e, gpu, context);
    }
}

// All dependencies of an operation are done at t. True: the operation is done with that, too.
static bool resolve(struct sim_engines *e, uint32_t ref, uint64_t t) {
    struct sim_item *item = item_of(e, ref);
    if (item->engine == SIM_ENGINE_NONE)
        return true;
    if (item->engine == SIM_ENGINE_HOST) {
        item->state = SIM_READY;
        item->arrive_ns = t;
        return false;
    }
    struct sim_gpu *gpu = &e->gpus[e->contexts[context_of(ref)].gpu];
    item->arrive_ns = item->submit_ns + gpu->launch_ns;
    if (item->arrive_ns > t) {
        item->state = SIM_ARRIVING;
        arriving_insert(e, &gpu->arriving, ref);
    } else {
        make_ready(e, ref, t);
    }
    return false;
}

// Marks an operation done at t, and all that becomes done by that.
static void finish(struct sim_engines *e, uint32_t ref, uint64_t t) {
    struct sim_list done = {0, 0};
    items_push(e, &done, ref);
    while ((ref = items_pop(e, &done))) {
        struct sim_item *item = item_of(e, ref);
        item->state = SIM_DONE;
        __atomic_store_n(&item->finish_ns, t, __ATOMIC_RELEASE);
        uint32_t edge = item->waiters;
        item->waiters = 0;
        while (edge) {
            uint32_t waiter = (edge - 1) / 4 + 1;
            struct sim_item *other = item_of(e, waiter);
            edge = other->deps[(edge - 1) % 4].next;
            if (--other->unmet == 0 && resolve(e, waiter, t))
                items_push(e, &done, waiter);
        }
        struct sim_context *c = &e->contexts[context_of(ref)];
        while (c->floor < c->tail && item_of(e, ref_of(context_of(ref), c->floor))->finish_ns)
            c->floor++;
    }
}

struct sim_item *sim_engines_item(struct sim_engines *e, uint32_t context, uint64_t seq) {
    struct sim_context *c = &e->contexts[context];
    if (!seq || seq >= c->tail)
        return NULL;
    struct sim_item *item = item_of(e, ref_of(context, seq));
    // One that never finished before the floor belonged to an earlier context in this place.
    bool known = item->seq == seq && (seq >= c->floor || item->finish_ns);
    return known ? item : NULL;
}

// Counts the dependencies that are not done and queues the operation behind them.
static void link_deps(struct sim_engines *e, uint32_t ref) {
    struct sim_item *item = item_of(e, ref);
    item->unmet = 0;
    for (unsigned i = 0; i < SIM_DEPS_MAX; i++) {
        struct sim_edge *edge = &item->deps[i];
        if (!edge->seq || edge->context >= SIM_CONTEXTS_MAX)
            continue;
        struct sim_item *dep = sim_engines_item(e, edge->context, edge->seq);
        if (!dep || dep->finish_ns || !e->contexts[edge->context].serial)
            continue;
        edge->next = dep->waiters;
        dep->waiters = (ref - 1) * 4 + i + 1;
        item->unmet++;
    }
}

// An engine begins an operation at t, with what its managed pages cost.
static void begin(struct sim_engines *e, uint32_t ref, uint64_t t) {
    struct sim_item *item = item_of(e, ref);
    if (item->begun)
        return;
    if (item->touches[0].kind != SIM_TOUCH_NONE)
        item->left_ns += sim_paging_cost(e, context_of(ref), item->touches, t);
    item->begun = 1;
}

// Gives the compute engine its next work at t.
static void dispatch(struct sim_engines *e, struct sim_gpu *gpu, uint64_t t) {
    if (gpu->mode == SIM_SWITCHING)
        return;
    if (gpu->mode == SIM_RUNNING) {
        uint32_t context = gpu->loaded - 1;
        if (!e->contexts[context].ready.head) {
            gpu->mode = SIM_IDLE;
        } else if (t == gpu->slice_end_ns && gpu->runnable.head) {
            runnable_push(e, gpu, context);
            gpu->mode = SIM_IDLE;
        } else if (t >= gpu->slice_end_ns) {  // it was alone, and slices passed unseen
            uint64_t past = t - gpu->slice_end_ns;
            gpu->slice_end_ns += (past / gpu->slice_ns + 1) * gpu->slice_ns;
        }
    }
    if (gpu->mode == SIM_IDLE) {
        if (!gpu->runnable.head) {
            gpu->until_ns = NEVER;
            return;
        }
        uint32_t context = runnable_pop(e, gpu);
        if (gpu->loaded != context + 1) {
            gpu->switches += gpu->loaded != 0;
            gpu->until_ns = gpu->loaded ? t + gpu->switch_ns : t;
            gpu->loaded = context + 1;
            gpu->mode = SIM_SWITCHING;
            return;
        }
        gpu->mode = SIM_RUNNING;
        gpu->slice_end_ns = t + gpu->slice_ns;
    }
    uint32_t ref = e->contexts[gpu->loaded - 1].ready.head;
    begin(e, ref, t);
    uint64_t end = t + item_of(e, ref)->left_ns;
    bool sliced = gpu->runnable.head && gpu->slice_end_ns < end;
    gpu->until_ns = sliced ? gpu->slice_end_ns : end;
}

static void run_compute(struct sim_engines *e, struct sim_gpu *gpu, uint64_t t) {
    if (gpu->mode == SIM_SWITCHING && gpu->until_ns <= t) {
        gpu->mode = SIM_RUNNING;
        gpu->slice_end_ns = t + gpu->slice_ns;
    } else if (gpu->mode == SIM_RUNNING) {
        struct sim_context *c = &e->contexts[gpu->loaded - 1];
        if (!item_of(e, c->ready.head)->left_ns) {
            uint32_t ref = items_pop(e, &c->ready);
            // The next kernel of the same stream keeps the turn: it becomes ready at this moment.
            uint32_t loaded = gpu->loaded - 1;
            bool emptied = !c->ready.head;
            finish(e, ref, t);
            if (emptied) {
                if (--stay_of(e, loaded)->working == 0)
                    gpu->rivals--;
            }
        }
    }
    dispatch(e, gpu, t);
}

static void run_copiers(struct sim_engines *e, struct sim_gpu *gpu, uint64_t t) {
    for (unsigned i = 0; i < 2; i++) {
        struct sim_copier *copier = &gpu->copiers[i];
        if (copier->running && copier->end_ns <= t) {
            uint32_t ref = copier->running;
            copier->running = 0;
            finish(e, ref, t);
        }
        if (!copier->running && copier->queue.head) {
            copier->running = items_pop(e, &copier->queue);
            begin(e, copier->running, t);
            copier->end_ns = t + item_of(e, copier->running)->left_ns;
        }
    }
}

static uint64_t next_event(struct sim_engines *e, const struct sim_gpu *gpu) {
    if (gpu->kick)
        return gpu->now_ns;
    uint64_t next = gpu->mode == SIM_IDLE ? NEVER : gpu->until_ns;
    if (gpu->arriving.head && item_of(e, gpu->arriving.head)->arrive_ns < next)
        next = item_of(e, gpu->arriving.head)->arrive_ns;
    for (unsigned i = 0; i < 2; i++)
        if (gpu->copiers[i].running && gpu->copiers[i].end_ns < next)
            next = gpu->copiers[i].end_ns;
    return next;
}

static void step(struct sim_engines *e, struct sim_gpu *gpu, uint64_t t) {
    account(e, gpu, t);
    gpu->kick = 0;
    while (gpu->arriving.head && item_of(e, gpu->arriving.head)->arrive_ns <= t)
        make_ready(e, items_pop(e, &gpu->arriving), t);
    run_copiers(e, gpu, t);
    run_compute(e, gpu, t);
}

void sim_engines_advance(struct sim_engines *e, uint64_t now) {
    for (;;) {
        struct sim_gpu *first = NULL;
        uint64_t when = NEVER;
        for (unsigned i = 0; i < e->active_count; i++) {
            struct sim_gpu *gpu = &e->gpus[e->active[i]];
            uint64_t next = next_event(e, gpu);
            if (next < when) {
                when = next;
                first = gpu;
            }
        }
        if (!first || when > now)
            break;
        step(e, first, when > first->now_ns ? when : first->now_ns);
    }
    for (unsigned i = 0; i < e->active_count; i++)
        account(e, &e->gpus[e->active[i]], now);
}

int sim_engines_submit(struct sim_engines *e, uint32_t context, const struct sim_work *work,
                       uint64_t now, uint64_t *recycled_finish_ns) {
    struct sim_context *c = &e->contexts[context];
    struct sim_gpu *gpu = &e->gpus[c->gpu];
    if (c->tail - c->floor >= gpu->depth)
        return EAGAIN;
    uint64_t seq = c->tail;
    uint32_t ref = ref_of(context, seq);
    struct sim_item *item = item_of(e, ref);
    *recycled_finish_ns = item->seq ? item->finish_ns : 0;
    uint64_t cost_ns = work->cost_ns < SIM_COST_NS_MAX ? work->cost_ns : SIM_COST_NS_MAX;
    *item = (struct sim_item){.seq = seq,
                              .submit_ns = now,
                              .cost_ns = cost_ns,
                              .left_ns = cost_ns,
                              .engine = (uint8_t)work->engine};
    for (unsigned i = 0; i < SIM_DEPS_MAX; i++)
        item->deps[i] =
            (struct sim_edge){.seq = work->deps[i].seq, .context = work->deps[i].context};
    if (work->touches[0].kind != SIM_TOUCH_NONE)
        memcpy(item->touches, work->touches, sizeof item->touches);
    __atomic_store_n(&c->tail, seq + 1, __ATOMIC_RELEASE);
    struct sim_stay *stay = stay_of(e, context);
    if (work->engine == SIM_ENGINE_COMPUTE) {
        stay->books.launches += !work->part;
        gpu->launches += !work->part;
    } else if (work->engine == SIM_ENGINE_H2D || work->engine == SIM_ENGINE_D2H) {
        stay->books.copies += !work->part;
    }
    link_deps(e, ref);
    if (!item->unmet && resolve(e, ref, now))
        finish(e, ref, now);
    return 0;
}

void sim_engines_finish(struct sim_engines *e, uint32_t context, uint64_t seq, uint64_t now) {
    struct sim_item *item = sim_engines_item(e, context, seq);
    if (item && item->engine == SIM_ENGINE_HOST && item->state == SIM_READY)
        finish(e, ref_of(context, seq), now);
}

uint64_t sim_engines_bound(struct sim_engines *e, uint32_t context, uint64_t seq, uint64_t now) {
    uint64_t bound = 0;
    for (unsigned steps = 0; steps < SIM_QUEUE_MAX; steps++) {
        struct sim_item *item = sim_engines_item(e, context, seq);
        if (!item || item->finish_ns)
            break;
        if (item->engine == SIM_ENGINE_HOST)
            return NEVER;
        bound += item->left_ns;
        if (item->state == SIM_ARRIVING)
            return bound + (item->arrive_ns > now ? item->arrive_ns - now : 0);
        // One chain of dependencies gives a lower bound; the first that is not done leads it.
        seq = 0;
        for (unsigned i = 0; i < SIM_DEPS_MAX && !seq; i++) {
            struct sim_item *dep = NULL;
            if (item->deps[i].seq)
                dep = sim_engines_item(e, item->deps[i].context, item->deps[i].seq);
            if (dep && !dep->finish_ns) {
                seq = dep->seq;
                context = item->deps[i].context;
            }
        }
        if (!seq)
            break;
    }
    return bound;
}

// Readiness of one operation from the facts alone; what was begun goes on with what is left.
static void rebuild_item(struct sim_engines *e, uint32_t context, uint64_t seq) {
    uint32_t ref = ref_of(context, seq);
    struct sim_item *item = item_of(e, ref);
    uint64_t now = e->gpus[e->contexts[context].gpu].now_ns;
    if (item->finish_ns)
        return;
    link_deps(e, ref);
    if (!item->unmet && resolve(e, ref, now))
        finish(e, ref, now);
}

// Forgets all that is derived.
static void forget(struct sim_engines *e) {
    uint64_t now = 0;
    sim_mig_activate(e);
    for (unsigned i = 0; i < e->active_count; i++)
        if (e->gpus[e->active[i]].now_ns > now)
            now = e->gpus[e->active[i]].now_ns;
    for (unsigned i = 0; i < e->active_count; i++) {
        struct sim_gpu *gpu = &e->gpus[e->active[i]];
        gpu->now_ns = now;
        gpu->runnable = gpu->arriving = (struct sim_list){0, 0};
        memset(gpu->copiers, 0, sizeof gpu->copiers);
        gpu->mode = SIM_IDLE;
        gpu->rivals = 0;
        gpu->kick = 1;
        if (gpu->loaded > SIM_CONTEXTS_MAX || (gpu->loaded && !e->contexts[gpu->loaded - 1].serial))
            gpu->loaded = 0;
    }
    for (uint32_t i = 0; i < e->stays_used; i++)
        for (unsigned g = 0; g < SIM_COLUMNS; g++)
            e->stays[i][g].working = 0;
    for (uint32_t i = 0; i < e->contexts_used; i++) {
        struct sim_context *c = &e->contexts[i];
        c->ready = (struct sim_list){0, 0};
        c->next = 0;
        if (!c->serial)
            continue;
        for (uint64_t seq = c->floor; seq < c->tail; seq++) {
            struct sim_item *item = item_of(e, ref_of(i, seq));
            item->waiters = 0;
            item->state = item->finish_ns ? SIM_DONE : SIM_WAITING;
        }
        while (c->floor < c->tail && item_of(e, ref_of(i, c->floor))->finish_ns)
            c->floor++;
    }
}

void sim_engines_repair(struct sim_engines *e) {
    sim_residency_rebuild(&e->residency);
    sim_engines_rebuild(e);
}

void sim_engines_rebuild(struct sim_engines *e) {
    forget(e);
    // The loaded context comes last, so that frequent repairs favour nobody.
    for (unsigned k = 0; k < e->active_count; k++)
        for (uint32_t n = 0; n < e->contexts_used; n++) {
            uint32_t gpu = e->active[k], i = (n + e->gpus[gpu].loaded) % e->contexts_used;
            struct sim_context *c = &e->contexts[i];
            if (c->serial && c->gpu == gpu)
                for (uint64_t seq = c->floor; seq < c->tail; seq++)
                    rebuild_item(e, i, seq);
        }
}
