// driver.c: finds the loaded driver and knows its hooked functions by address; see driver.h.
#include "driver.h"

#include <string.h>

#include "objects.h"
#include "sys.h"

#define DRIVER_SONAME "libcuda.so.1"

void *weir_real_table[WEIR_FN_COUNT];

// The names of all exports in one block, each at the offset that name_at gives: strings behind
// pointers would be relocated in every process, used or not.
static const struct names {
#define HOOK(export, asked, since, streams, class) char export[sizeof(#export)];
#define LATER(export, asked, since, streams, class, waits) char export[sizeof(#export)];
#define PASS(export, asked, since, streams, class) char export[sizeof(#export)];
#include "symbols.def"
} names = {
#define HOOK(export, asked, since, streams, class) .export = #export,
#define LATER(export, asked, since, streams, class, waits) .export = #export,
#define PASS(export, asked, since, streams, class) .export = #export,
#include "symbols.def"
};

static const uint16_t name_at[WEIR_FN_COUNT] = {
#define HOOK(export, asked, since, streams, class) offsetof(struct names, export),
#define LATER(export, asked, since, streams, class, waits) offsetof(struct names, export),
#define PASS(export, asked, since, streams, class) offsetof(struct names, export),
#include "symbols.def"
};
_Static_assert(sizeof(struct names) <= UINT16_MAX, "offsets of names need more than 16 bits");

// The hooked exports, in the order of enum weir_fn: what they are, by which name they are asked
// for, and their wrappers.
static const uint16_t hooked[] = {
#define HOOK(export, asked, since, streams, class) WEIR_FN_##export,
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"
};
static const struct {
    char name[40];
} hooked_as[] = {
#define HOOK(export, asked, since, streams, class) {#asked},
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"
};
static void *const wrappers[] = {
#define HOOK(export, asked, since, streams, class) (void *)weir_##export,
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"
};

enum { HOOKS = sizeof(hooked) / sizeof(hooked[0]), SLOTS = 512 };
_Static_assert(HOOKS * 2 <= SLOTS && (SLOTS & (SLOTS - 1)) == 0, "SLOTS is too small");

// Hash table from a driver function's address to its place in `hooked`, plus 1; 0 ends a search.
static uint16_t slots[SLOTS];
// Where the driver lies whose functions the tables hold; 0 before there is one.
static uintptr_t bound_at;

static const char *fn_name(enum weir_fn fn) {
    return (const char *)&names + name_at[fn];
}

static bool same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

enum weir_fn weir_fn_named(const char *name) {
    unsigned low = 0, high = WEIR_FN_COUNT;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        const char *a = fn_name(middle), *b = name;
        while (*a && *a == *b)
            a++, b++;
        if (*a == *b)
            return middle;
        if ((unsigned char)*a < (unsigned char)*b)
            low = middle + 1;
        else
            high = middle;
    }
    return WEIR_FN_NONE;
}

void *weir_wrapper(enum weir_fn fn) {
    for (unsigned low = 0, high = HOOKS; low < high;) {
        unsigned middle = (low + high) / 2;
        if (hooked[middle] == fn)
            return wrappers[middle];
        if (hooked[middle] < fn)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static unsigned home_slot(const void *function) {
    uint32_t hash = (uint32_t)((uintptr_t)function >> 4) * 2654435769u;
    return (uint64_t)hash * SLOTS >> 32;
}

// Enters a hooked function under its address. Threads that bind the same driver enter the same
// pairs.
static void enter(unsigned hook, void *function) {
    __atomic_store_n(&weir_real_table[hooked[hook]], function, __ATOMIC_RELEASE);
    for (unsigned i = home_slot(function);; i = (i + 1) & (SLOTS - 1)) {
        uint16_t seen = 0;
        if (__atomic_compare_exchange_n(&slots[i], &seen, (uint16_t)(hook + 1), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            seen == hook + 1)
            return;
    }
}

// Forgets a driver that was unloaded, lest its addresses be called.
static void forget(void) {
    for (unsigned i = 0; i < SLOTS; i++)
        __atomic_store_n(&slots[i], 0, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WEIR_FN_COUNT; i++)
        __atomic_store_n(&weir_real_table[i], NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&bound_at, 0, __ATOMIC_RELEASE);
}

static void bind_driver(const struct weir_object *driver) {
    uintptr_t was_at = __atomic_load_n(&bound_at, __ATOMIC_ACQUIRE);
    if (was_at == driver->low)
        return;
    if (was_at)
        forget();
    for (unsigned i = 0; i < HOOKS; i++) {
        void *function = weir_object_function(driver, fn_name(hooked[i]));
        if (function)
            enter(i, function);
    }
    // Every process needs these, and to look for each by itself takes as long as some of the above.
    static const uint16_t first[] = {WEIR_FN_cuDriverGetVersion, WEIR_FN_cuDeviceGetUuid_v2,
                                     WEIR_FN_cuDevicePrimaryCtxGetState};
    for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        __atomic_store_n(&weir_real_table[first[i]],
                         weir_object_function(driver, fn_name(first[i])), __ATOMIC_RELEASE);
    __atomic_store_n(&bound_at, driver->low, __ATOMIC_RELEASE);
}

// What to look for in the loaded objects, and what to do with the driver once it is found.
struct hunt {
    const char *override;  // value of WEIR_DRIVER, NULL where the SONAME decides
    enum weir_fn fn;       // function to look up, or WEIR_FN_NONE
    void *function;        // what was found
};

static bool same_file(const char *a, const char *b) {
    struct stat first, second;
    return weir_syscall(SYS_newfstatat, AT_FDCWD, (long)a, (long)&first, 0, 0, 0) == 0 &&
           weir_syscall(SYS_newfstatat, AT_FDCWD, (long)b, (long)&second, 0, 0, 0) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static bool is_driver(const struct weir_object *object, const char *override) {
    if (!override)
        return object->soname && same(object->soname, DRIVER_SONAME);
    if (!(object->soname && same(object->soname, override)) && !same(object->path, override) &&
        !(object->path[0] && same_file(object->path, override)))
        return false;
    return weir_object_function(object, fn_name(WEIR_FN_cuDriverGetVersion)) != NULL;
}

static int hunt_visit(const struct weir_object *object, void *context) {
    struct hunt *hunt = context;
    if (!is_driver(object, hunt->override))
        return 0;
    bind_driver(object);
    if (hunt->fn != WEIR_FN_NONE) {
        hunt->function = weir_object_function(object, fn_name(hunt->fn));
        if (hunt->function)
            __atomic_store_n(&weir_real_table[hunt->fn], hunt->function, __ATOMIC_RELEASE);
    }
    return 1;
}

// Finds the driver and binds it. Returns whether there is one; *function is fn's address in it.
static bool hunt_driver(enum weir_fn fn, void **function) {
    const char *override = weir_env("WEIR_DRIVER");
    struct hunt hunt = {.override = override && *override ? override : NULL, .fn = fn};
    bool found = weir_objects_each(hunt_visit, &hunt) != 0;
    if (!found && hunt.override) {
        hunt.override = NULL;
        found = weir_objects_each(hunt_visit, &hunt) != 0;
    }
    if (!found && __atomic_load_n(&bound_at, __ATOMIC_ACQUIRE))
        forget();
    *function = hunt.function;
    return found;
}

bool weir_driver_refresh(void) {
    void *none;
    return hunt_driver(WEIR_FN_NONE, &none);
}

void *weir_driver_function(enum weir_fn fn) {
    void *function = __atomic_load_n(&weir_real_table[fn], __ATOMIC_ACQUIRE);
    if (!function)
        hunt_driver(fn, &function);
    return function;
}

bool weir_driver_is_at(uintptr_t low) {
    return low && low == __atomic_load_n(&bound_at, __ATOMIC_ACQUIRE);
}

static CUresult absent(void) {
    return CUDA_ERROR_NOT_FOUND;
}

void *weir_real_find(enum weir_fn fn) {
    void *function = weir_driver_function(fn);
    if (!function)
        function = weir_next_function(fn_name(fn));
    return function ? function : (void *)absent;
}

void *weir_driver_swap(void *function, const char *asked) {
    void *wrapper = NULL;
    if (!function)
        return NULL;
    for (unsigned i = home_slot(function);; i = (i + 1) & (SLOTS - 1)) {
        uint16_t slot = __atomic_load_n(&slots[i], __ATOMIC_ACQUIRE);
        if (slot == 0)
            return wrapper ? wrapper : function;
        unsigned hook = slot - 1u;
        if (__atomic_load_n(&weir_real_table[hooked[hook]], __ATOMIC_ACQUIRE) != function)
            continue;
        if (!asked || same(asked, hooked_as[hook].name))
            return wrappers[hook];
        if (!wrapper)
            wrapper = wrappers[hook];
    }
}
