// limit.c: see limit.h.
//
// Groups are known by a hash of their path in the hierarchy, of which each process keeps those of
// all groups that it is in. A limit's place belongs to who has put its own mark there; it counts
// from the moment when the mark has become the group's hash. Who dies in between costs that place.
#define _GNU_SOURCE
#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CLAIMED UINT64_C(1)
#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)  // FNV-1a, of 64 bits
#define HASH_PRIME UINT64_C(0x100000001b3)

// Hashes of all groups on a path ("/a" and "/a/b" of "/a/b"), into zeros, and how many there are.
// The root has none, and what lies deeper than SIM_GROUP_DEPTH is counted only.
static unsigned hash_groups(const char *path, size_t bytes, uint64_t groups[SIM_GROUP_DEPTH]) {
    uint64_t hash = HASH_BEGIN;
    unsigned count = 0;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (uint8_t)path[i]) * HASH_PRIME;
        if (path[i] == '/' || (i + 1 < bytes && path[i + 1] != '/'))
            continue;
        if (count < SIM_GROUP_DEPTH)
            groups[count] = hash <= CLAIMED ? hash + 2 : hash;
        count++;
    }
    return count;
}

// ---- Where a process is ----

// The calling process's groups, by its own view, into zeros. Without a hierarchy of version 2 there
// are none.
static void own_groups(uint64_t groups[SIM_GROUP_DEPTH]) {
    char text[8192];
    size_t bytes = 0;
    ssize_t more;
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while ((more = read(fd, text + bytes, sizeof text - 1 - bytes)) > 0)
        bytes += (size_t)more;
    close(fd);
    text[bytes] = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, "0::/", 4)) {
            hash_groups(line + 3, strcspn(line + 3, "\n"), groups);
            return;
        }
    }
}

void sim_limit_enter(struct sim_machine *machine) {
    uint64_t groups[SIM_GROUP_DEPTH] = {0};
    uint64_t *mine = machine->file->processes[machine->slot].groups;
    if (machine->file->config.memory_limits)
        own_groups(groups);
    for (unsigned i = 0; i < SIM_GROUP_DEPTH; i++)
        __atomic_store_n(&mine[i], groups[i], __ATOMIC_RELAXED);
}

static bool contains(const uint64_t groups[SIM_GROUP_DEPTH], uint64_t group) {
    for (unsigned i = 0; i < SIM_GROUP_DEPTH; i++) {
        uint64_t one = __atomic_load_n(&groups[i], __ATOMIC_RELAXED);
        if (one == group || !one)
            return one == group;
    }
    return false;
}

bool sim_limit_member(const struct sim_file *file, uint32_t slot, uint64_t group) {
    return !group || contains(file->processes[slot].groups, group);
}

// ---- What limits leave ----

static uint64_t group_at(const struct sim_file *file, unsigned place) {
    uint64_t group = __atomic_load_n(&file->limits[place].group, __ATOMIC_ACQUIRE);
    return group == CLAIMED ? 0 : group;
}

static bool is_of(const struct sim_file *file, unsigned place, unsigned gpu, uint64_t group) {
    return group_at(file, place) == group && file->limits[place].limit.gpu == gpu;
}

// The least that the limits of these groups are on a card, and the least room they leave.
static void least(const struct sim_file *file, const struct sim_ledger *ledger, unsigned gpu,
                  const uint64_t groups[SIM_GROUP_DEPTH], uint64_t *limit, uint64_t *room) {
    for (unsigned place = 0; place < SIM_LIMITS_MAX; place++) {
        uint64_t group = group_at(file, place);
        if (!group || file->limits[place].limit.gpu != gpu || !contains(groups, group))
            continue;
        uint64_t hard = __atomic_load_n(&file->limits[place].limit.hard_bytes, __ATOMIC_RELAXED);
        uint64_t used = sim_memory_sum(file, ledger, gpu, group);
        uint64_t left = used < hard ? hard - used : 0;
        *limit = hard < *limit ? hard : *limit;
        *room = left < *room ? left : *room;
    }
}

uint32_t sim_limit_home(const struct sim_machine *machine, unsigned gpu) {
    const struct sim_file *file = machine->file;
    const uint64_t *groups = file->processes[machine->slot].groups;
    uint64_t home = 0;
    for (unsigned i = 0; file->config.memory_limits && i < SIM_GROUP_DEPTH; i++)
        for (unsigned place = 0; place < SIM_LIMITS_MAX; place++)
            if (groups[i] && is_of(file, place, gpu, groups[i]))
                home = groups[i];
    return (uint32_t)home;
}

bool sim_limit_fits(const struct sim_machine *machine, const struct sim_ledger *ledger,
                    unsigned gpu, uint64_t bytes) {
    const struct sim_file *file = machine->file;
    uint64_t limit = SIM_LIMIT_NONE, room = SIM_LIMIT_NONE;
    if (file->config.memory_limits)
        least(file, ledger, gpu, file->processes[machine->slot].groups, &limit, &room);
    return bytes <= room;
}

void sim_limit_clamp(struct sim_machine *machine, unsigned gpu, uint64_t *free_bytes,
                     uint64_t *total_bytes) {
    uint64_t groups[SIM_GROUP_DEPTH] = {0};
    if (!machine->file->config.memory_limits)
        return;
    own_groups(groups);
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    if (ledger)
        least(machine->file, ledger, gpu, groups, total_bytes, free_bytes);
    sim_ledger_look_end(machine);
}

// ---- Setting ----

// Whether a directory is a control group of version 2.
static bool is_group(const char *directory) {
    struct statfs status;
    return !statfs(directory, &status) && status.f_type == CGROUP2_SUPER_MAGIC;
}

// The group of a directory, by its path below the place where the hierarchy is mounted: the
// shortest beginning that is of its file system. EIO.
static int find_group(const char *directory, char path[PATH_MAX], uint64_t *group) {
    uint64_t groups[SIM_GROUP_DEPTH] = {0};
    if (!directory || !realpath(directory, path) || !is_group(path) ||
        strlen(path) >= SIM_GROUP_DIRECTORY_BYTES)
        return EIO;
    size_t at = 0;
    for (bool found = false; !found;) {
        at += 1 + strcspn(path + at + 1, "/");
        char next = path[at];
        path[at] = 0;
        found = is_group(path);
        path[at] = next;
    }
    unsigned depth = hash_groups(path + at, strlen(path + at), groups);
    if (!depth || depth > SIM_GROUP_DEPTH)
        return EIO;
    *group = groups[depth - 1];
    return 0;
}

// Whether a limit's group was removed, the same path made anew included: the limit went with it.
static bool is_removed(const struct sim_limit_place *at) {
    struct stat status;
    return stat(at->limit.directory, &status) || status.st_ino != at->inode;
}

// Makes room of the limits of groups that were removed.
static void sweep_removed(struct sim_file *file) {
    for (unsigned place = 0; place < SIM_LIMITS_MAX; place++) {
        struct sim_limit_place *at = &file->limits[place];
        uint64_t group = group_at(file, place);
        if (group && is_removed(at))
            __atomic_compare_exchange_n(&at->group, &group, 0, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
    }
}

static int add(struct sim_file *file, const struct sim_limit *limit, uint64_t group,
               uint64_t inode) {
    for (unsigned place = 0; place < SIM_LIMITS_MAX; place++) {
        struct sim_limit_place *at = &file->limits[place];
        uint64_t nobody = 0;
        if (!__atomic_compare_exchange_n(&at->group, &nobody, CLAIMED, false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST))
            continue;
        at->limit = *limit;
        at->inode = inode;
        __atomic_store_n(&at->group, group, __ATOMIC_SEQ_CST);
        return 0;
    }
    return ENOSPC;
}

int sim_limit_set(struct sim_machine *machine, unsigned gpu, const char *directory,
                  uint64_t soft_bytes, uint64_t hard_bytes) {
    struct sim_file *file = machine->file;
    char path[PATH_MAX];
    uint64_t group;
    struct stat status;
    sweep_removed(file);
    if (find_group(directory, path, &group) || stat(path, &status))
        return EIO;
    bool wanted = soft_bytes || hard_bytes != SIM_LIMIT_NONE;
    // Two who set one group's at the same time may have made two: one of them is kept.
    for (unsigned place = 0; place < SIM_LIMITS_MAX; place++) {
        struct sim_limit_place *at = &file->limits[place];
        if (!is_of(file, place, gpu, group))
            continue;
        if (!wanted) {
            __atomic_store_n(&at->group, 0, __ATOMIC_SEQ_CST);
            continue;
        }
        __atomic_store_n(&at->limit.soft_bytes, soft_bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&at->limit.hard_bytes, hard_bytes, __ATOMIC_SEQ_CST);
        wanted = false;
    }
    struct sim_limit limit = {.soft_bytes = soft_bytes, .hard_bytes = hard_bytes, .gpu = gpu};
    strcpy(limit.directory, path);
    return wanted ? add(file, &limit, group, status.st_ino) : 0;
}

// ---- Looking ----

int sim_limit_at(struct sim_machine *machine, unsigned place, struct sim_limit *limit) {
    const struct sim_file *file = machine->file;
    uint64_t group = place < SIM_LIMITS_MAX ? group_at(file, place) : 0;
    if (!group || is_removed(&file->limits[place]))
        return ENOENT;
    *limit = file->limits[place].limit;
    limit->directory[sizeof limit->directory - 1] = 0;
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    limit->used_bytes = ledger ? sim_memory_sum(file, ledger, limit->gpu, group) : 0;
    sim_ledger_look_end(machine);
    return 0;
}

int sim_limit_get(struct sim_machine *machine, unsigned gpu, const char *directory,
                  struct sim_limit *limit) {
    char path[PATH_MAX];
    uint64_t group;
    int rc = find_group(directory, path, &group);
    if (rc)
        return rc;
    for (unsigned place = 0; place < SIM_LIMITS_MAX; place++)
        if (is_of(machine->file, place, gpu, group))
            return sim_limit_at(machine, place, limit);
    return ENOENT;
}
