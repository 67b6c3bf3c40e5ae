// worker.c: the thread that is this process's life in the machine and that moves its data.
//
// It does the tasks of operations in the order of submission, except that it passes over those
// whose dependencies have data to do still, and over host functions, steps and prefetches whose
// time has not come. All signals are blocked in it: the host's handlers never run there.
#define _GNU_SOURCE
#include "driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The longest wait without a look, in ns.
#define LOOK_NS 100000000u

// ---- The list of operations with data to do ----

void todo_append(struct op *op) {
    op->next = NULL;
    op->prev = driver.todo_last;
    if (driver.todo_last)
        driver.todo_last->next = op;
    else
        driver.todo = op;
    driver.todo_last = op;
}

static void todo_remove(struct op *op) {
    *(op->prev ? &op->prev->next : &driver.todo) = op->next;
    *(op->next ? &op->next->prev : &driver.todo_last) = op->prev;
    op->next = op->prev = NULL;
}

bool op_data_ready(const struct op *op) {
    for (unsigned i = 0; i < SIM_DEPS_MAX; i++) {
        const struct sim_dep *dep = &op->deps[i];
        const struct context *context = dep->seq ? driver.by_machine[dep->context] : NULL;
        if (!context)
            continue;
        const struct op *other = &context->ops[dep->seq % SIM_QUEUE_MAX];
        if (other->seq == dep->seq && !other->data_done)
            return false;
    }
    return true;
}

static struct timespec in_ns(uint64_t ns) {
    uint64_t at = sim_now_ns() + (ns < LOOK_NS ? ns : LOOK_NS);
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000u),
                             .tv_nsec = (long)(at % 1000000000u)};
}

void worker_wake(void) {
    pthread_cond_signal(&driver.work);
}

// ---- Tasks ----

static void run_copy(const struct task *task) {
    const struct shape *to = &task->copy.to, *from = &task->copy.from;
    bool flat = task->copy.depth == 1 && task->copy.height == 1;
    if (flat) {
        memmove(to->base, from->base, task->copy.width);
        return;
    }
    for (size_t z = 0; z < task->copy.depth; z++)
        for (size_t y = 0; y < task->copy.height; y++)
            memmove(to->base + z * to->plane + y * to->pitch,
                    from->base + z * from->plane + y * from->pitch, task->copy.width);
}

static void run_set(const struct task *task) {
    unsigned element = task->set.element;
    for (size_t y = 0; y < task->set.height; y++) {
        unsigned char *row = task->set.to.base + y * task->set.to.pitch;
        if (element == 1) {
            memset(row, (int)task->set.value, task->set.count);
            continue;
        }
        for (size_t i = 0; i < task->set.count; i++)
            memcpy(row + i * element, &task->set.value, element);  // little-endian
    }
}

static CUresult run_kernel(struct task *task) {
    struct sim_ptx_memory memory = kernel_memory;
    memory.user = task->context;
    struct sim_ptx_launch launch = {
        .dynamic_shared_bytes = task->kernel.shared_bytes,
        .params = task->params,
        .params_bytes = task->kernel.params_bytes,
        .memory = &memory,
        .processors = driver.config->gpus[task->context->gpu].sm_count,
        .together = task->kernel.cooperative,
    };
    memcpy(launch.grid, task->kernel.grid, sizeof launch.grid);
    memcpy(launch.block, task->kernel.block, sizeof launch.block);
    return (CUresult)sim_ptx_launch(task->kernel.function->ptx, &launch, NULL);
}

static void run_host(const struct task *task, CUresult status) {
    driver_in_callback(true);
    if (task->host.callback)
        task->host.callback(task->host.stream, status, task->host.user);
    else if (!status)
        task->host.function(task->host.user);
    driver_in_callback(false);
}

// After an error of its context a task is passed over, but a callback hears of it.
static CUresult run(struct task *task, CUresult status) {
    if (task->kind == TASK_HOST)
        run_host(task, status);
    if (status || task->kind == TASK_HOST)
        return task->kind == TASK_HOST ? CUDA_SUCCESS : status;
    managed_data_use(true);
    CUresult rc = CUDA_SUCCESS;
    if (task->kind == TASK_COPY)
        run_copy(task);
    else if (task->kind == TASK_SET)
        run_set(task);
    else if (task->kind == TASK_KERNEL)
        rc = run_kernel(task);
    managed_data_use(false);
    return rc;
}

// Whether the machine lets this process say when the operation has ended.
static bool timed(const struct op *op) {
    return op->task && (op->task->kind == TASK_HOST || op->task->kind == TASK_STEP);
}

// Whether the time of an operation is over; else *wait_ns until it may be.
static bool is_over(const struct op *op, uint64_t *wait_ns) {
    uint64_t finish_ns;
    return sim_work_look(driver.machine, op->context->machine, op->seq, &finish_ns, wait_ns) ||
           finish_ns;
}

// Whether an operation's data can be done now; else *wait_ns is lowered to when they may be.
static bool can_run(struct op *op, uint64_t *wait_ns) {
    bool ready;
    uint64_t wait = UINT64_MAX;
    if (op->running || driver.halted || !op_data_ready(op))
        return false;
    bool can = true;
    if (timed(op) && !sim_work_ready(driver.machine, op->context->machine, op->seq, &ready, &wait))
        can = ready;
    if (op->task && op->task->kind == TASK_PREFETCH)
        can = is_over(op, &wait);
    if (can && op->task && op->task->kind == TASK_STEP && !op->context->error)
        can = op->task->step.step(op->task, &wait);
    if (!can && wait < *wait_ns)
        *wait_ns = wait;
    return can;
}

void op_run(struct op *op) {
    struct context *context = op->context;
    struct task *task = op->task;
    if (task) {
        CUresult status = context->error;
        op->running = 1;
        if (!status)
            managed_data_follow(task);
        pthread_mutex_unlock(&driver.lock);
        CUresult rc = run(task, status);
        pthread_mutex_lock(&driver.lock);
        op->running = 0;
        if (rc && !context->error)
            context->error = rc;
        if (timed(op))
            sim_work_finish(driver.machine, context->machine, op->seq);
        free(task);
        op->task = NULL;
    }
    op->data_done = 1;
    todo_remove(op);
    pthread_cond_broadcast(&driver.done);
}

void data_wait(void) {
    uint64_t wait_ns = UINT64_MAX;
    for (struct op *op = driver.todo; op; op = op->next) {
        bool host = op->task && op->task->kind == TASK_HOST;
        if (!host && can_run(op, &wait_ns)) {
            op_run(op);
            return;
        }
    }
    struct timespec until = in_ns(wait_ns);
    pthread_cond_timedwait(&driver.done, &driver.lock, &until);
}

// Waits for what of the context's data is being moved, and drops the rest.
void context_forget_ops(struct context *context) {
    for (struct op *op = driver.todo; op;) {
        struct op *next = op->next;
        if (op->context == context && op->running) {
            data_wait();
            next = driver.todo;
        } else if (op->context == context) {
            free(op->task);
            op->task = NULL;
            op->data_done = 1;
            todo_remove(op);
        }
        op = next;
    }
    for (unsigned i = 0; i < SIM_QUEUE_MAX; i++) {
        struct op *op = &context->ops[i];
        if (op->event && !op->event->finish_ns)
            op->event->finish_ns = sim_now_ns();
        op->event = NULL;
    }
}

// ---- The thread ----

// The first operation whose data can be done; else *wait_ns until one may be.
static struct op *next_op(uint64_t *wait_ns) {
    *wait_ns = UINT64_MAX;
    for (struct op *op = driver.todo; op; op = op->next)
        if (can_run(op, wait_ns))
            return op;
    return NULL;
}

static void serve(void) {
    pthread_mutex_lock(&driver.lock);
    for (;;) {
        uint64_t wait_ns;
        struct op *op = next_op(&wait_ns);
        if (op) {
            op_run(op);
        } else if (user_objects_dead()) {
            user_objects_end();
        } else if (driver.todo) {
            struct timespec until = in_ns(wait_ns);
            pthread_cond_timedwait(&driver.work, &driver.lock, &until);
        } else {
            pthread_cond_wait(&driver.work, &driver.lock);
        }
    }
}

struct birth {
    pthread_mutex_t lock;
    pthread_cond_t born;
    bool done;
    int rc;
};

static void *worker(void *argument) {
    struct birth *birth = argument;
    int rc = visible_join();
    pthread_mutex_lock(&birth->lock);
    birth->rc = rc;
    birth->done = true;
    pthread_cond_signal(&birth->born);
    pthread_mutex_unlock(&birth->lock);
    if (!rc)
        serve();
    return NULL;
}

int worker_start(void) {
    struct birth birth = {.lock = PTHREAD_MUTEX_INITIALIZER, .born = PTHREAD_COND_INITIALIZER};
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, worker, &birth);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return rc;
    pthread_detach(thread);
    pthread_mutex_lock(&birth.lock);
    while (!birth.done)
        pthread_cond_wait(&birth.born, &birth.lock);
    pthread_mutex_unlock(&birth.lock);
    return birth.rc;
}
