// start.c: what happens when the library is loaded, in every process: next to nothing.
//
// A program may ask `if (cuInit)` of a weak reference to see whether it runs with the driver. In a
// process without one the loader has bound such a reference to this library, and it must be NULL.
// That can only be mended now, before the program looks. Costs a few nanoseconds for each
// relocation that names a symbol, and no system call, unless there is such a reference.
#include "driver.h"
#include "routes.h"
#include "slots.h"

// Which of the exported names nobody else in this process defines.
struct missing {
    bool driver;
    bool dl[WEIR_DL_COUNT];
};

// Whether a symbol is a weak reference to an exported name; with `missing`, to one that is missing.
static bool is_weak(const struct weir_object *object, const ElfW(Sym) * symbol,
                    const struct missing *missing) {
    if (symbol->st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) != STB_WEAK)
        return false;
    const char *name = weir_object_string(object, symbol->st_name);
    if (!name)
        return false;
    enum weir_dl which = weir_dl_named(name);
    if (which != WEIR_DL_COUNT)
        return !missing || missing->dl[which];
    enum weir_fn fn = weir_fn_named(name);
    return fn != WEIR_FN_NONE && weir_wrapper(fn) && (!missing || missing->driver);
}

static bool names_weak(const struct weir_object *object, const ElfW(Sym) * symbol) {
    return is_weak(object, symbol, NULL);
}

static int find_weak(const struct weir_object *object, void *context) {
    (void)context;
    return weir_slots_any(object, names_weak);
}

static void *choose_null(const struct weir_object *object, const struct weir_slot *slot,
                         void *context) {
    return weir_own_code(slot->value) && is_weak(object, slot->symbol, context) ? NULL
                                                                                : slot->value;
}

static int clear_weak(const struct weir_object *object, void *context) {
    weir_slots_choose(object, choose_null, context);
    return 0;
}

__attribute__((constructor)) static void start(void) {
    if (!weir_objects_each(find_weak, NULL))
        return;
    struct missing missing = {.driver = !weir_driver_refresh()};
    for (unsigned which = 0; which < WEIR_DL_COUNT; which++)
        missing.dl[which] = !weir_dl_real(which);
    weir_objects_each(clear_weak, &missing);
}
