// state.c: makes the process's state, finds out whether it is a new process, and what it is to
// weir.
#include "state.h"

#include <string.h>

#include "attend.h"
#include "hooks.h"
#include "log.h"

#define DEFAULT_SOCKET "/run/weir/agent.sock"
// The auxiliary vector's word that says "do not trust the environment".
#define AT_SECURE_KEY 23ul

struct weir_state *weir_state_page;

// What a forked child finds of its parent. Not atomic as a whole: a child that sees half of a
// change finds a descriptor that does not match and leaves it alone.
static struct {
    uint32_t started;  // 1 once a process has started: who finds it on starting is a child of that
    int socket;
    int usage;
    uint64_t cookie;
    uint64_t inode;
} inherited;

// 1 where the kernel does not wipe on fork (before 4.14): then the pid tells a child from its
// parent.
static uint32_t unwiped;

void weir_remember_socket(int fd, uint64_t cookie) {
    __atomic_store_n(&inherited.cookie, cookie, __ATOMIC_RELAXED);
    __atomic_store_n(&inherited.socket, fd, __ATOMIC_RELAXED);
}

void weir_remember_usage(int fd, uint64_t inode) {
    __atomic_store_n(&inherited.inode, inode, __ATOMIC_RELAXED);
    __atomic_store_n(&inherited.usage, fd, __ATOMIC_RELAXED);
}

void weir_close_socket(int fd, uint64_t cookie) {
    if (fd >= 0 && cookie && weir_sys_socket_cookie(fd) == cookie)
        weir_sys_close(fd);
}

void weir_close_usage(int fd, uint64_t inode) {
    struct stat status;
    // Only memory files have seals, so the inode's number means one of theirs.
    int seals = fd >= 0 && inode ? weir_sys_fcntl(fd, WEIR_F_GET_SEALS, 0) : -1;
    if (seals > 0 && (seals & WEIR_F_SEAL_SHRINK) && weir_sys_fstat(fd, &status) == 0 &&
        status.st_ino == inode)
        weir_sys_close(fd);
}

// The state, made at the first call. Two threads may make one each: the first stays.
static struct weir_state *find_state(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    if (state)
        return state;
    struct weir_state *mine = weir_sys_map(sizeof(*mine));
    if (!mine)
        return NULL;
    if (weir_sys_madvise(mine, sizeof(*mine), WEIR_MADV_WIPEONFORK) != 0)
        __atomic_store_n(&unwiped, 1, __ATOMIC_RELEASE);
    // What is first read and then written costs two faults.
    __atomic_store_n(&mine->mode, WEIR_MODE_NEW, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(&weir_state_page, &state, mine, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return mine;
    weir_sys_unmap(mine, sizeof(*mine));
    return state;
}

// Whether the environment belongs to someone with fewer rights than the process. The kernel says
// how that was at the exec; what the process has made of its own rights since (seteuid) changes
// nothing.
static int environment_is_foreign(void) {
    unsigned long (*getauxval)(unsigned long) =
        (unsigned long (*)(unsigned long))weir_host_function("getauxval");
    return getauxval ? getauxval(AT_SECURE_KEY) != 0 : weir_sys_changed_identity();
}

static const char *setting(const char *name) {
    const char *value = weir_env(name);
    return value && *value && !environment_is_foreign() ? value : NULL;
}

// Copies a path that fits; one that does not leaves `to` empty.
static void copy_path(char *to, size_t room, const char *from) {
    size_t bytes = strlen(from);
    if (bytes < room)
        memcpy(to, from, bytes + 1);
}

static void close_inherited(struct weir_state *state) {
    if (inherited.started) {
        weir_close_socket(inherited.socket, inherited.cookie);
        weir_close_usage(inherited.usage, inherited.inode);
        state->note_forked = 1;
    }
    inherited.started = 1;
    weir_remember_socket(-1, 0);
    weir_remember_usage(-1, 0);
}

// Decides what this process is to weir. One thread does; the others go on meanwhile and wait where
// they need the agent.
static enum weir_mode begin(struct weir_state *state) {
    uint32_t mode = WEIR_MODE_NEW;
    char at_start[WEIR_SOCKET_PATH_MAX];
    const char *socket = setting("WEIR_SOCKET");
    // A program may have cleared its environment, as daemons do; that does not free it of its cap.
    if (!socket && !environment_is_foreign() &&
        weir_env_at_start("WEIR_SOCKET", at_start, sizeof(at_start)))
        socket = at_start;
    int rc = socket ? 0 : weir_sys_exists(DEFAULT_SOCKET);
    uint32_t next = rc == -ENOENT || rc == -ENOTDIR ? WEIR_MODE_PASS : WEIR_MODE_STARTING;
    if (!__atomic_compare_exchange_n(&state->mode, &mode, next, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return mode;
    if (next == WEIR_MODE_PASS)
        return next;
    state->pid = weir_sys_getpid();
    __atomic_store_n(&state->started_ms, weir_sys_now_ms(), __ATOMIC_RELAXED);
    copy_path(state->socket_path, sizeof(state->socket_path), socket ? socket : DEFAULT_SOCKET);
    const char *log_path = setting("WEIR_LOG");
    if (log_path)
        copy_path(state->log_path, sizeof(state->log_path), log_path);
    if (!state->socket_path[0])
        weir_log(state, "WEIR_SOCKET is too long; allocations will be refused; bytes",
                 strlen(socket));
    close_inherited(state);
    WEIR_REAL(cuDriverGetVersion)(&state->driver_version);
    next = __atomic_load_n(&unwiped, __ATOMIC_ACQUIRE) ? WEIR_MODE_CHECKED : WEIR_MODE_ENFORCED;
    __atomic_store_n(&state->mode, next, __ATOMIC_RELEASE);
    return WEIR_MODE_ENFORCED;
}

enum weir_mode weir_enter_slow(struct weir_state **out) {
    struct weir_state *state = *out = find_state();
    if (!state)
        return WEIR_MODE_NEW;
    uint32_t mode = __atomic_load_n(&state->mode, __ATOMIC_ACQUIRE);
    if (mode == WEIR_MODE_CHECKED && state->pid != weir_sys_getpid()) {
        struct weir_time *time = state->time;
        memset(state, 0, sizeof(*state));
        if (time)
            weir_time_wipe(time);
        mode = WEIR_MODE_NEW;
    }
    if (mode == WEIR_MODE_NEW)
        mode = begin(state);
    return mode == WEIR_MODE_PASS ? WEIR_MODE_PASS : WEIR_MODE_ENFORCED;
}
