// forger.c: a tenant that attacks the pages that weir's library shares with the agent.
//
// forger ATTACK: uses CUDA as any program does, finds the pages in its own /proc/self/maps by their
// size and first word, and attacks one:
//   usage-fill     every byte of the usage page becomes 0xff
//   usage-credit   the credit words claim a terabyte that nobody granted
//   usage-header   the usage page's own header is overwritten
//   usage-shrink   the usage page is truncated, by every descriptor and mapping that leads to it
//   usage-unmap    the usage page is no longer mapped; another lies in its place
//   control-write  the control page is written, through every way to it
//   control-shrink the control page is truncated
// It says "held" where the kernel refused each try, "done" where something was changed, then waits
// for its input to end and allocates a little in between, so that the agent has reason to look.
#define _GNU_SOURCE
#include "../../../cgo/abi/weir_abi.h"
#include "cuda.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAYS_MAX = 1024 };

static const uint64_t FORGED_BYTES = 1ull << 40;

struct page {
    char *at;
    unsigned long inode;
};

static bool readable(const char *permissions) {
    return permissions[0] == 'r' && permissions[3] == 's';
}

// The newest page with this magic; an older one may still be mapped.
static bool find_page(uint32_t magic, struct page *page) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    bool found = false;
    while (maps && fgets(line, sizeof(line), maps)) {
        unsigned long start, end, inode;
        char permissions[8];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, permissions, &inode) != 4 ||
            end - start != WEIR_PAGE_BYTES || !readable(permissions))
            continue;
        if (*(uint32_t *)start == magic) {
            *page = (struct page){(char *)start, inode};
            found = true;
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

// Descriptors for a page with write access: those that the process has, and new ones by way of
// /proc. Returns how many.
static int open_ways(const struct page *page, int *ways) {
    int count = 0;
    char path[64];
    for (int fd = 3; fd < WAYS_MAX; fd++) {
        struct stat status;
        if (fstat(fd, &status) || status.st_ino != page->inode)
            continue;
        ways[count++] = fd;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC);
        if (again >= WAYS_MAX)
            close(again);
        else if (again >= 0)
            ways[count++] = again;
        if (again > fd)
            break;  // the rest are ours
    }
    snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)page->at,
             (unsigned long)page->at + WEIR_PAGE_BYTES);
    int mapped = open(path, O_RDWR | O_CLOEXEC);
    if (mapped >= 0)
        ways[count++] = mapped;
    return count;
}

static bool shrink(const struct page *page) {
    int ways[2 * WAYS_MAX], count = open_ways(page, ways);
    bool changed = false;
    for (int i = 0; i < count; i++)
        changed |= ftruncate(ways[i], 0) == 0 || ftruncate(ways[i], 1 << 20) == 0;
    return changed;
}

static bool write_control(const struct page *page) {
    int ways[2 * WAYS_MAX], count = open_ways(page, ways);
    const char forged[] = "forged";
    bool changed = mprotect(page->at, WEIR_PAGE_BYTES, PROT_READ | PROT_WRITE) == 0;
    for (int i = 0; i < count; i++) {
        changed |= pwrite(ways[i], forged, sizeof(forged), 0) > 0;
        changed |= mmap(NULL, WEIR_PAGE_BYTES, PROT_WRITE, MAP_SHARED, ways[i], 0) != MAP_FAILED;
    }
    for (int i = 0; i < count; i++) {
        changed |= fallocate(ways[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
        changed |= fallocate(ways[i], 0, 0, 2 * WEIR_PAGE_BYTES) == 0;
    }
    changed |= madvise(page->at, WEIR_PAGE_BYTES, MADV_REMOVE) == 0;
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    changed |= pwrite(memory, forged, sizeof(forged), (off_t)(uintptr_t)page->at) > 0 &&
               *(uint32_t *)page->at != WEIR_CONTROL_MAGIC;
    close(memory);
    return changed;
}

static bool attack(const char *name, const struct page *usage, const struct page *control) {
    struct weir_usage_page *page = (struct weir_usage_page *)usage->at;
    if (!strcmp(name, "usage-fill")) {
        memset(usage->at, 0xff, WEIR_PAGE_BYTES);
    } else if (!strcmp(name, "usage-credit")) {
        for (unsigned i = 0; i < WEIR_GPUS_MAX; i++)
            __atomic_store_n(&page->gpus[i].credit_bytes, FORGED_BYTES, __ATOMIC_SEQ_CST);
    } else if (!strcmp(name, "usage-header")) {
        memset(usage->at, 0x5a, offsetof(struct weir_usage_page, gpus));
    } else if (!strcmp(name, "usage-shrink")) {
        return shrink(usage);
    } else if (!strcmp(name, "usage-unmap")) {
        return mmap(usage->at, WEIR_PAGE_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == usage->at;
    } else if (!strcmp(name, "control-write")) {
        return write_control(control);
    } else if (!strcmp(name, "control-shrink")) {
        return shrink(control);
    } else {
        puts("wrong attack");
        exit(2);
    }
    return true;
}

int main(int count, char **arguments) {
    struct page usage = {0}, control = {0};
    uint64_t kept, address;
    int code = use_gpu(0);
    if (count != 2 || code || (code = cuMemAlloc_v2(&kept, 1 << 20))) {
        printf("wrong %d\n", code);
        return 1;
    }
    if (!find_page(WEIR_USAGE_MAGIC, &usage) || !find_page(WEIR_CONTROL_MAGIC, &control)) {
        puts("wrong pages: not found");
        return 1;
    }
    puts(attack(arguments[1], &usage, &control) ? "done" : "held");
    fflush(stdout);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 50) == 0)
        if (!cuMemAlloc_v2(&address, 3 << 20))
            cuMemFree_v2(address);
    return 0;
}
