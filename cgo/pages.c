// pages.c: see pages.h. A page that cannot change its size can be read without fear of SIGBUS,
// hence the seals are checked before a page is mapped. It is mapped over the last one in one step,
// so a thread that reads a cap meets the old page or the new one.
#include "pages.h"

#define USAGE_SEALS (WEIR_F_SEAL_SEAL | WEIR_F_SEAL_SHRINK | WEIR_F_SEAL_GROW)
#define CONTROL_SEALS (USAGE_SEALS | WEIR_F_SEAL_FUTURE_WRITE)

// What both pages begin with.
struct page_head {
    uint32_t magic;
    uint32_t abi;
    union {
        uint64_t session;    // usage page
        uint32_t gpu_count;  // control page
    };
};

static int bad(struct weir_state *state, enum weir_bad_page why, uint32_t abi) {
    state->bad_page = why;
    state->bad_page_abi = abi;
    return WEIR_BAD_PAGES;
}

static int check_page(struct weir_state *state, int fd, int seals, uint32_t magic,
                      struct page_head *head, uint64_t *inode) {
    struct stat status;
    int rc = weir_sys_fstat(fd, &status);
    if (rc < 0)
        return rc;
    if (!S_ISREG(status.st_mode) || status.st_size != WEIR_PAGE_BYTES)
        return bad(state, WEIR_BAD_PAGE_FILE, 0);
    rc = weir_sys_fcntl(fd, WEIR_F_GET_SEALS, 0);
    if (rc < 0 || (rc & seals) != seals)
        return bad(state, WEIR_BAD_PAGE_SEALS, 0);
    long got = weir_sys_pread(fd, head, sizeof(*head), 0);
    if (got != (long)sizeof(*head))
        return got < 0 ? (int)got : bad(state, WEIR_BAD_PAGE_FILE, 0);
    if (head->magic != magic)
        return bad(state, WEIR_BAD_PAGE_CONTENTS, 0);
    if (head->abi < WEIR_ABI_OLDEST || head->abi > WEIR_ABI_VERSION)
        return bad(state, WEIR_BAD_PAGE_CONTENTS, head->abi);
    *inode = status.st_ino;
    return 0;
}

// Maps `fd` over *at, or anywhere the first time. Children do not inherit it.
static int map_page(int fd, int protection, void **at) {
    void *page = weir_sys_map_shared(*at, WEIR_PAGE_BYTES, protection, fd);
    if (!page)
        return -ENOMEM;
    int rc = weir_sys_madvise(page, WEIR_PAGE_BYTES, MADV_DONTFORK);
    if (!*at)
        __atomic_store_n(at, page, __ATOMIC_RELEASE);
    return rc;
}

static int map_both(struct weir_state *state, const int fds[2], const struct weir_welcome *welcome,
                    uint64_t *inode) {
    struct page_head control_head, usage_head;
    uint64_t control_inode = 0;
    int rc =
        check_page(state, fds[0], CONTROL_SEALS, WEIR_CONTROL_MAGIC, &control_head, &control_inode);
    if (rc == 0)
        rc = check_page(state, fds[1], USAGE_SEALS, WEIR_USAGE_MAGIC, &usage_head, inode);
    if (rc < 0)
        return rc;
    if (welcome->page_bytes != WEIR_PAGE_BYTES || welcome->gpu_count > WEIR_GPUS_MAX ||
        control_head.gpu_count != welcome->gpu_count || usage_head.session != welcome->session)
        return bad(state, WEIR_BAD_PAGE_CONTENTS, control_head.abi);
    rc = map_page(fds[1], PROT_READ | PROT_WRITE, (void **)&state->usage);
    if (rc == 0)
        rc = map_page(fds[0], PROT_READ, (void **)&state->control);
    if (rc == 0)
        __atomic_store_n(&state->control_inode, control_inode, __ATOMIC_RELAXED);
    return rc;
}

int weir_pages_map(struct weir_state *state, struct weir_incoming *incoming) {
    uint64_t inode = 0;
    int rc = map_both(state, incoming->fds, &incoming->welcome, &inode);
    weir_sys_close(incoming->fds[0]);
    incoming->fd_count = 0;
    if (rc < 0) {
        weir_sys_close(incoming->fds[1]);
        return rc;
    }
    weir_close_usage(state->usage_fd, state->usage_inode);
    state->usage_fd = weir_client_lift(incoming->fds[1]);
    state->usage_inode = inode;
    weir_remember_usage(state->usage_fd, inode);
    return 0;
}
