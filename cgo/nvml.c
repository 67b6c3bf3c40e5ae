// nvml.c: finds NVML among the loaded objects; see nvml.h.
#include "nvml.h"

#include <string.h>

#include "hooks.h"
#include "objects.h"

#define NVML_SONAME "libnvidia-ml.so.1"

void *weir_nvml_table[WEIR_NVML_COUNT];

// Where NVML lies whose functions the table holds; 0 before there is one.
static uintptr_t bound_at;

static const char names[WEIR_NVML_COUNT][48] = {
#define NVML_HOOK(name) #name,
#define NVML_USE(name) #name,
#include "nvml.def"
};

enum weir_nvml weir_nvml_named(const char *name) {
    for (unsigned fn = 0; fn < WEIR_NVML_COUNT; fn++) {
        const char *a = names[fn], *b = name;
        while (*a && *a == *b)
            a++, b++;
        if (*a == *b)
            return fn;
    }
    return WEIR_NVML_COUNT;
}

void *weir_nvml_wrapper(enum weir_nvml fn) {
    switch (fn) {
#define NVML_HOOK(name)                                                                            \
    case WEIR_NVML_##name:                                                                         \
        return (void *)weir_##name;
#define NVML_USE(name)
#include "nvml.def"
    default:
        return NULL;
    }
}

static int bind_visit(const struct weir_object *object, void *context) {
    (void)context;
    if (!object->soname || strcmp(object->soname, NVML_SONAME) != 0)
        return 0;
    if (__atomic_load_n(&bound_at, __ATOMIC_ACQUIRE) == object->low)
        return 1;
    for (unsigned fn = 0; fn < WEIR_NVML_COUNT; fn++)
        __atomic_store_n(&weir_nvml_table[fn], weir_object_function(object, names[fn]),
                         __ATOMIC_RELEASE);
    __atomic_store_n(&bound_at, object->low, __ATOMIC_RELEASE);
    return 1;
}

bool weir_nvml_refresh(void) {
    if (weir_objects_each(bind_visit, NULL))
        return true;
    if (__atomic_load_n(&bound_at, __ATOMIC_ACQUIRE)) {  // unloaded: its addresses are nobody's
        for (unsigned fn = 0; fn < WEIR_NVML_COUNT; fn++)
            __atomic_store_n(&weir_nvml_table[fn], NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&bound_at, 0, __ATOMIC_RELEASE);
    }
    return false;
}

void *weir_nvml_function(enum weir_nvml fn) {
    void *function = __atomic_load_n(&weir_nvml_table[fn], __ATOMIC_ACQUIRE);
    if (!function && weir_nvml_refresh())
        function = __atomic_load_n(&weir_nvml_table[fn], __ATOMIC_ACQUIRE);
    return function;
}

static nvmlReturn_t absent(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

void *weir_nvml_real(enum weir_nvml fn) {
    void *function = weir_nvml_function(fn);
    if (!function)
        function = weir_next_function(names[fn]);
    return function ? function : (void *)absent;
}
