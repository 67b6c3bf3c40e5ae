// wrappers.c: stands in for the library's wrappers in tests of the routes: each counts its calls
// and calls the driver. All are weak, so that the routes' own (cuGetProcAddress) take their place.
//
// hooks.h is not included: it declares the wrappers with their true types, while these pass six
// registers on whatever the function is.
#include <stddef.h>
#include <stdint.h>

enum fn {
#define HOOK(export, asked, since, streams, class) FN_##export,
#define LATER(export, asked, since, streams, class, waits) FN_##export,
#define PASS(export, asked, since, streams, class) FN_##export,
#include "symbols.def"
    FN_COUNT
};

extern void *weir_real_table[FN_COUNT];
void *weir_real_find(int fn);
int weir_fn_named(const char *name);

// Of preload/, which not all tests link.
void *weir_dl_real(int which) __attribute__((weak));

static unsigned calls[FN_COUNT];

static uintptr_t pass_on(int fn, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e,
                         uintptr_t f) {
    __atomic_fetch_add(&calls[fn], 1, __ATOMIC_RELAXED);
    void *real = __atomic_load_n(&weir_real_table[fn], __ATOMIC_ACQUIRE);
    if (!real)
        real = weir_real_find(fn);
    return ((uintptr_t(*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))real)(
        a, b, c, d, e, f);
}

#define HOOK(export, asked, since, streams, class)                                                 \
    __attribute__((weak)) uintptr_t weir_##export(uintptr_t a, uintptr_t b, uintptr_t c,           \
                                                  uintptr_t d, uintptr_t e, uintptr_t f) {         \
        return pass_on(FN_##export, a, b, c, d, e, f);                                             \
    }
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"

// How often the wrapper of a driver export was called. Exported, for the host programs to ask.
__attribute__((visibility("default"))) unsigned cuTestCalls(const char *export) {
    int fn = weir_fn_named(export);
    return fn < FN_COUNT ? calls[fn] : 0;
}

// The export that a wrapper stands for, or NULL.
__attribute__((visibility("default"))) const char *cuTestExport(const void *wrapper) {
#define HOOK(export, asked, since, streams, class)                                                 \
    if (wrapper == (const void *)weir_##export)                                                    \
        return #export;
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)
#include "symbols.def"
    return NULL;
}

// What stands behind the library's dlsym, and behind a wrapper: for comparing their costs.
__attribute__((visibility("default"))) void *cuTestBehind(const char *name) {
    int fn = weir_fn_named(name);
    return fn < FN_COUNT ? weir_real_find(fn) : weir_dl_real(0);
}

// The same for NVML. nvml.h is not included for the same reason.
enum nvml {
#define NVML_HOOK(name) NVML_##name,
#define NVML_USE(name) NVML_##name,
#include "nvml.def"
    NVML_COUNT
};

void *weir_nvml_real(int fn);
int weir_nvml_named(const char *name);

static unsigned nvml_calls[NVML_COUNT];

static int nvml_pass_on(int fn, uintptr_t a, uintptr_t b, uintptr_t c) {
    __atomic_fetch_add(&nvml_calls[fn], 1, __ATOMIC_RELAXED);
    return ((int (*)(uintptr_t, uintptr_t, uintptr_t))weir_nvml_real(fn))(a, b, c);
}

#define NVML_HOOK(name)                                                                            \
    int weir_##name(uintptr_t a, uintptr_t b, uintptr_t c) {                                       \
        return nvml_pass_on(NVML_##name, a, b, c);                                                 \
    }
#define NVML_USE(name)
#include "nvml.def"

__attribute__((visibility("default"))) unsigned cuTestNvmlCalls(const char *name) {
    int fn = weir_nvml_named(name);
    return fn < NVML_COUNT ? nvml_calls[fn] : 0;
}
