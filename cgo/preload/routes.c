// routes.c: decides for each lookup whether the loader's answer, or a wrapper, is given; see
// routes.h.
#include "routes.h"

#include <dlfcn.h>

#include "callas.h"
#include "driver.h"
#include "nvml.h"
#include "objects.h"
#include "slots.h"

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 8  // of glibc; musl ignores it
#endif

// Exports that are never hooked, and hence not exported from here: whoever finds one sees the
// driver, or NVML, itself.
#define DRIVER_WITNESS WEIR_FN_cuDriverGetVersion
#define DRIVER_WITNESS_NAME "cuDriverGetVersion"
#define NVML_WITNESS WEIR_NVML_nvmlShutdown
#define NVML_WITNESS_NAME "nvmlShutdown"

static const char dl_names[WEIR_DL_COUNT][8] = {"dlsym", "dlvsym", "dlopen"};
static void *dl_real[WEIR_DL_COUNT];

// In entry_<machine>.S.
extern const char weir_entry_dlsym[], weir_entry_dlvsym[], weir_entry_dlopen[];

static bool same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

enum weir_dl weir_dl_named(const char *name) {
    enum weir_dl which = WEIR_DLSYM;
    while (which < WEIR_DL_COUNT && !same(name, dl_names[which]))
        which++;
    return which;
}

void *weir_dl_entry(enum weir_dl which) {
    switch (which) {
    case WEIR_DLSYM:
        return (void *)weir_entry_dlsym;
    case WEIR_DLVSYM:
        return (void *)weir_entry_dlvsym;
    default:
        return (void *)weir_entry_dlopen;
    }
}

void *weir_dl_real(enum weir_dl which) {
    void *real = __atomic_load_n(&dl_real[which], __ATOMIC_ACQUIRE);
    if (real)
        return real;
    struct weir_host_name names[WEIR_DL_COUNT] = {{.name = NULL}};
    for (enum weir_dl dl = 0; dl < WEIR_DL_COUNT; dl++)
        names[dl].name = dl_names[dl];
    weir_host_functions(names, WEIR_DL_COUNT);
    for (enum weir_dl dl = 0; dl < WEIR_DL_COUNT; dl++)
        __atomic_store_n(&dl_real[dl], names[dl].function, __ATOMIC_RELEASE);
    return names[which].function;
}

// One lookup of the host: the function that answers it, its arguments, and where it came from.
struct lookup {
    void *real;
    void *handle;
    const char *name;
    const char *version;  // NULL for dlsym
    const void *caller;
};

static bool is_relative(const void *handle) {
    return handle == RTLD_DEFAULT || handle == RTLD_NEXT;
}

// Asks the loader, as the host's own call would, but for `name`.
static void *ask(const struct lookup *lookup, const char *name) {
    if (is_relative(lookup->handle))
        return weir_call_as(lookup->caller, lookup->real, lookup->handle, name, lookup->version);
    return ((void *(*)(void *, const char *, const char *))lookup->real)(lookup->handle, name,
                                                                         lookup->version);
}

// A hooked function, of the driver or of NVML.
struct hooked {
    void *wrapper;
    bool of_nvml;
    unsigned fn;  // enum weir_nvml or enum weir_fn
};

// What a name means to this library. False where that is nothing.
static bool is_hooked(const char *name, struct hooked *hooked) {
    if (name[0] == 'c' && name[1] == 'u') {
        enum weir_fn fn = weir_fn_named(name);
        *hooked = (struct hooked){fn == WEIR_FN_NONE ? NULL : weir_wrapper(fn), false, fn};
    } else if (name[0] == 'n' && name[1] == 'v') {
        enum weir_nvml fn = weir_nvml_named(name);
        *hooked = (struct hooked){weir_nvml_wrapper(fn), true, fn};
    } else {
        return false;
    }
    return hooked->wrapper != NULL;
}

void *weir_hooked_wrapper(const char *name) {
    struct hooked hooked;
    return is_hooked(name, &hooked) ? hooked.wrapper : NULL;
}

static void *real_function(bool of_nvml, unsigned fn) {
    return of_nvml ? weir_nvml_function(fn) : weir_driver_function(fn);
}

void *weir_hooked_function(const char *name) {
    struct hooked hooked;
    return is_hooked(name, &hooked) ? real_function(hooked.of_nvml, hooked.fn) : NULL;
}

static bool is_real(const void *found, bool of_nvml, unsigned fn) {
    if (found && found == real_function(of_nvml, fn))
        return true;
    bool there = found && (of_nvml ? weir_nvml_refresh() : weir_driver_refresh());
    return there && found == real_function(of_nvml, fn);
}

// What the search would have gone on to, had it not found this library, which comes early in it.
static void *after_own(const struct lookup *lookup) {
    return ((void *(*)(void *, const char *, const char *))lookup->real)(RTLD_NEXT, lookup->name,
                                                                         lookup->version);
}

// A name that was found in this library is given where the driver, or NVML, can itself be seen in
// that search; else what comes after this library is, mostly nothing.
static void *find_hooked(const struct lookup *lookup, const struct hooked *hooked) {
    bool of_nvml = hooked->of_nvml;
    void *found = ask(lookup, lookup->name);
    if (!found)
        return NULL;
    if (!weir_own_code(found))
        return is_real(found, of_nvml, hooked->fn) ? hooked->wrapper : found;
    void *witness = ask(lookup, of_nvml ? NVML_WITNESS_NAME : DRIVER_WITNESS_NAME);
    if (is_real(witness, of_nvml, of_nvml ? (unsigned)NVML_WITNESS : DRIVER_WITNESS) &&
        real_function(of_nvml, hooked->fn))
        return hooked->wrapper;
    return after_own(lookup);
}

// A program that takes dlsym from the C library by hand gets the entry instead, if the C library
// has one. RTLD_NEXT is left to the loader: another interposer looks for what comes after itself.
static void *find_dl(const struct lookup *lookup, enum weir_dl which) {
    void *found = ask(lookup, lookup->name), *real = weir_dl_real(which);
    if (found && found == real)
        return weir_dl_entry(which);
    return weir_own_code(found) && !real ? after_own(lookup) : found;
}

static void *route(const struct lookup *lookup, void **result) {
    const char *name = lookup->name;
    if (!lookup->real || !name)
        return lookup->real;
    struct hooked hooked;
    if (is_hooked(name, &hooked)) {
        *result = find_hooked(lookup, &hooked);
        return NULL;
    }
    if (name[0] == 'd' && name[1] == 'l' && lookup->handle != RTLD_NEXT) {
        enum weir_dl which = weir_dl_named(name);
        if (which == WEIR_DL_COUNT)
            return lookup->real;
        *result = find_dl(lookup, which);
        return NULL;
    }
    return lookup->real;
}

void *weir_route_dlsym(void *handle, const char *name, const char *unused, const void *caller,
                       void **result) {
    (void)unused;
    struct lookup lookup = {weir_dl_real(WEIR_DLSYM), handle, name, NULL, caller};
    return route(&lookup, result);
}

void *weir_route_dlvsym(void *handle, const char *name, const char *version, const void *caller,
                        void **result) {
    struct lookup lookup = {weir_dl_real(WEIR_DLVSYM), handle, name, version, caller};
    return route(&lookup, result);
}

// An object loaded with RTLD_DEEPBIND looks in its own dependencies first and so misses the
// exported names: its slots are patched once it is loaded. (Its constructors have run by then.)
void *weir_route_dlopen(const char *path, size_t flags, const void *unused, const void *caller,
                        void **result) {
    (void)unused;
    void *real = weir_dl_real(WEIR_DLOPEN);
    if (!real || !(flags & RTLD_DEEPBIND))
        return real;
    struct weir_loads before = weir_loads_now();
    *result = weir_call_as(caller, real, path, (const void *)flags, NULL);
    if (*result)
        weir_bind_deep(*result, &before);
    return NULL;
}
