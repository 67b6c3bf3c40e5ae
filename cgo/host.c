// host.c: what the library takes from its host process: functions of the C library and the
// environment. Both are looked up in memory; nothing is imported strongly, so that a process
// without a C library still loads.
#include "hooks.h"
#include "objects.h"

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
