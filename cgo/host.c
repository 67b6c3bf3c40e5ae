// host.c: what the library takes from its host process: functions of the C library and the
// environment. Both are looked up in memory; nothing is imported strongly, so that a process
// without a C library still loads.
#include "hooks.h"
#include "objects.h"
#include "sys.h"

extern char **environ;
#pragma weak environ

struct host_search {
    const char *name;
    bool passed_own;  // whether this library has been walked over
    void *before;     // definition in an object ahead of this library
    void *after;      // definition in an object behind it
};

static int host_visit(const struct weir_object *object, void *context) {
    struct host_search *search = context;
    if (weir_object_holds(object, (uintptr_t)host_visit)) {
        search->passed_own = true;
        return 0;
    }
    if (search->passed_own) {
        search->after = weir_object_function(object, search->name);
        return search->after != NULL;
    }
    if (!search->before)
        search->before = weir_object_function(object, search->name);
    return 0;
}

void *weir_host_function(const char *name) {
    struct host_search search = {.name = name};
    weir_objects_each(host_visit, &search);
    return search.after ? search.after : search.before;
}

void *weir_next_function(const char *name) {
    struct host_search search = {.name = name};
    weir_objects_each(host_visit, &search);
    return search.after;
}

const char *weir_env(const char *name) {
    char **entries = &environ ? environ : NULL;
    for (; entries && *entries; entries++) {
        const char *entry = *entries, *wanted = name;
        while (*wanted && *entry == *wanted)
            entry++, wanted++;
        if (!*wanted && *entry == '=')
            return entry + 1;
    }
    return NULL;
}

// How far a name has been found in what was read so far.
struct env_match {
    const char *name;
    size_t at;       // bytes of the name that match, its "=" included
    bool elsewhere;  // in an entry of another name
    bool in_value;
};

// Takes one byte of an environment. Whether it is one of the value, its end included.
static bool env_step(struct env_match *match, char byte) {
    if (match->in_value)
        return true;
    char wanted = match->name[match->at] ? match->name[match->at] : '=';
    if (byte == 0) {
        match->at = 0;
        match->elsewhere = false;
    } else if (match->elsewhere || byte != wanted) {
        match->elsewhere = true;
    } else if (match->name[match->at++] == 0) {
        match->in_value = true;
    }
    return false;
}

bool weir_env_at_start(const char *name, char *to, size_t room) {
    char part[512];
    struct env_match match = {.name = name};
    size_t length = 0;
    int64_t at = 0;
    bool ended = false;
    int fd = weir_sys_open("/proc/self/environ", O_RDONLY, 0);
    if (fd < 0)
        return false;
    for (long got = 1; got > 0 && !ended && length < room; at += got) {
        got = weir_sys_pread(fd, part, sizeof(part), at);
        for (long i = 0; i < got && !ended && length < room; i++)
            if (env_step(&match, part[i])) {
                to[length++] = part[i];
                ended = part[i] == 0;
            }
    }
    weir_sys_close(fd);
    return ended && length > 1;
}
