// motion.c: what memory must know of data that move, or have yet to: they are named by where they
// lie in this process.
//
// Data move with the driver unlocked. So whoever changes what lies somewhere first waits until none
// do, and then keeps the lock; copies and sets that are still to come are told. A kernel finds its
// memory when it runs.
#include "share.h"

#include <stdlib.h>
#include <sys/mman.h>

// Memory that is nobody's any more, but in which data may be moving.
static struct leftover {
    struct leftover *next;
    char *data;
    uint64_t bytes;
} * leftovers;

static bool moving(void) {
    for (const struct op *op = driver.todo; op; op = op->next)
        if (op->running && op->task && op->task->kind != TASK_HOST)
            return true;
    return false;
}

void data_still(void) {
    driver.halted++;
    while (moving())
        data_wait();
    driver.halted--;
    worker_wake();
    pthread_cond_broadcast(&driver.done);
}

void data_settle(void) {
    struct context *context;
    for (uint32_t i = 0; (context = pool_next(&driver.contexts, &i)); i++)
        context_settle(context);
    data_still();
}

static void shift(unsigned char **at, const char *from, uint64_t bytes, char *to) {
    uint64_t offset = (uintptr_t)*at - (uintptr_t)from;
    if (offset < bytes)
        *at = (unsigned char *)to + offset;
}

void data_redirect(const char *from, uint64_t bytes, char *to) {
    for (struct op *op = driver.todo; op; op = op->next) {
        if (op->task && op->task->kind == TASK_COPY) {
            shift(&op->task->copy.to.base, from, bytes, to);
            shift(&op->task->copy.from.base, from, bytes, to);
        } else if (op->task && op->task->kind == TASK_SET) {
            shift(&op->task->set.to.base, from, bytes, to);
        }
    }
}

// Whether rows of planes meet [from, from + bytes).
static bool meets(const struct shape *shape, size_t width, size_t height, size_t depth,
                  const char *from, uint64_t bytes) {
    uintptr_t start = (uintptr_t)shape->base;
    uintptr_t end = start + (depth - 1) * shape->plane + (height - 1) * shape->pitch + width;
    return start < (uintptr_t)from + bytes && (uintptr_t)from < end;
}

static bool touches(const struct task *task, const char *from, uint64_t bytes) {
    if (task->kind == TASK_SET)
        return meets(&task->set.to, task->set.count * task->set.element, task->set.height, 1, from,
                     bytes);
    size_t width = task->copy.width, height = task->copy.height, depth = task->copy.depth;
    return task->kind == TASK_COPY && (meets(&task->copy.to, width, height, depth, from, bytes) ||
                                       meets(&task->copy.from, width, height, depth, from, bytes));
}

// A context with an error passes its tasks over.
void data_lose(const char *from, uint64_t bytes) {
    for (struct op *op = driver.todo; op; op = op->next)
        if (op->task && !op->running && !op->context->error && touches(op->task, from, bytes))
            op->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void unmap_leftovers(void) {
    struct leftover *leftover;
    while (!moving() && (leftover = leftovers)) {
        leftovers = leftover->next;
        munmap(leftover->data, leftover->bytes);
        free(leftover);
    }
}

// Where there is no memory to remember it by it stays.
void data_unmap(char *from, uint64_t bytes) {
    data_lose(from, bytes);
    struct leftover *leftover = malloc(sizeof *leftover);
    if (leftover) {
        *leftover = (struct leftover){.next = leftovers, .data = from, .bytes = bytes};
        leftovers = leftover;
    }
    unmap_leftovers();
}
