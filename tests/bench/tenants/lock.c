// lock.c: see lock.h. A process has the lock while `serving` is its ticket.
#include "lock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct { uint64_t next, serving; } * lock;

static bool held;
static uint64_t ticket, since_ns;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int lock_open(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    lock = mmap(NULL, sizeof(*lock), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return lock == MAP_FAILED ? -1 : 0;
}

void lock_need(uint64_t quantum_ms, void (*finish)(void)) {
    if (!lock)
        return;
    bool others = held && __atomic_load_n(&lock->next, __ATOMIC_SEQ_CST) > ticket + 1;
    if (others && now_ns() - since_ns >= quantum_ms * 1000000) {
        finish();
        lock_end();
    }
    if (held)
        return;
    ticket = __atomic_fetch_add(&lock->next, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&lock->serving, __ATOMIC_SEQ_CST) != ticket)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    held = true;
    since_ns = now_ns();
}

void lock_end(void) {
    if (held)
        __atomic_fetch_add(&lock->serving, 1, __ATOMIC_SEQ_CST);
    held = false;
}
