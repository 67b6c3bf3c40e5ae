// host.c: what the library takes from its host process: functions of the C library and the
// environment. Both are looked up in memory; nothing is imported strongly, so that a process
// without a C library still loads.
#include "hooks.h"
#include "objects.h"
#include "sys.h"

extern char **environ;
#pragma weak environ

struct host_search {
    struct weir_host_name *names;
    size_t count;
    size_t missing;   // of which no definition behind this library has been found
    bool passed_own;  // whether this library has been walked over
};

static int host_visit(const struct weir_object *object, void *context) {
    struct host_search *search = context;
    if (weir_object_holds(object, (uintptr_t)host_visit)) {
        search->passed_own = true;
        return 0;
    }
    for (size_t i = 0; i < search->count; i++) {
        struct weir_host_name *one = &search->names[i];
        void **found = search->passed_own ? &one->after : &one->before;
        if (*found)
            continue;
        *found = weir_object_function(object, one->name);
        search->missing -= *found && search->passed_own;
    }
    return search->missing == 0;
}

static void search_host(struct weir_host_name *names, size_t count) {
    struct host_search search = {.names = names, .count = count, .missing = count};
    weir_objects_each(host_visit, &search);
}

void weir_host_functions(struct weir_host_name *names, size_t count) {
    search_host(names, count);
    for (size_t i = 0; i < count; i++)
        names[i].function = names[i].after ? names[i].after : names[i].before;
}

void *weir_host_function(const char *name) {
    struct weir_host_name one = {.name = name};
    weir_host_functions(&one, 1);
    return one.function;
}

void *weir_next_function(const char *name) {
    struct weir_host_name one = {.name = name};
    search_host(&one, 1);
    return one.after;
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
