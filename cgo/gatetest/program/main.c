// main.c: the gate's test program. `torture …` has threads launch against a revoker, any other word
// is the name of a case.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

struct weir_gate *gate;

// The library's own number for a futex that others share.
#define FUTEX_WAKE_SHARED 1

static int memory_file(void) {
    int fd = weir_sys_memfd("page", 1 /* close on exec */);
    if (fd < 0 || weir_syscall(SYS_ftruncate, fd, WEIR_PAGE_BYTES, 0, 0, 0, 0) != 0) {
        printf("no memory file\n");
        exit(1);
    }
    return fd;
}

static void page_map(struct page *page, int fd) {
    page->written = weir_sys_map_shared(NULL, WEIR_PAGE_BYTES, PROT_READ | PROT_WRITE, fd);
    page->seen = weir_sys_map_shared((void *)(uintptr_t)page->seen, WEIR_PAGE_BYTES, PROT_READ, fd);
    weir_sys_close(fd);
    if (!page->written || !page->seen) {
        printf("no page\n");
        exit(1);
    }
}

struct page page_new(void) {
    struct page page = {NULL, NULL};
    page_map(&page, memory_file());
    return page;
}

void page_replace(struct page *page, uint32_t lease) {
    uint32_t *old = page->written;
    int fd = memory_file();
    if (weir_syscall(SYS_pwrite64, fd, (long)&lease, sizeof(lease), 0, 0, 0) != sizeof(lease))
        exit(1);
    page_map(page, fd);
    weir_sys_unmap(old, WEIR_PAGE_BYTES);
}

void page_write(struct page *page, uint32_t lease) {
    __atomic_store_n(page->written, lease, __ATOMIC_SEQ_CST);
    weir_syscall(SYS_futex, (long)page->written, FUTEX_WAKE_SHARED, INT32_MAX, 0, 0, 0);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
    gate = weir_sys_map(sizeof(*gate));
    if (!gate || weir_sys_madvise(gate, sizeof(*gate), WEIR_MADV_WIPEONFORK) != 0) {
        printf("no memory that a fork wipes\n");
        return 1;
    }
    if (argc < 2)
        return 2;
    return strcmp(argv[1], "torture") ? run_case(argv[1]) : torture(argc - 2, argv + 2);
}
