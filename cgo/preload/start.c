// start.c: what happens when the library is loaded, in every process: next to nothing.
//
// A program may ask `if (cuInit)` of a weak reference to see whether it runs with the driver. The
// loader has bound such a reference to this library; in a process without the driver it must be
// what it would be without this library, mostly NULL. That can only be mended now, before the
// program looks. Costs a few nanoseconds for each reference of an object to others, and no system
// call, unless there is such a one.
#include "driver.h"
#include "nvml.h"
#include "routes.h"
#include "slots.h"

// The name of a weak reference to something that this library exports; NULL for all else.
static const char *weak_name(const struct weir_object *object, const ElfW(Sym) * symbol) {
    if (symbol->st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) != STB_WEAK)
        return NULL;
    const char *name = weir_object_string(object, symbol->st_name);
    if (!name || weir_dl_named(name) != WEIR_DL_COUNT)
        return name;
    return weir_hooked_wrapper(name) ? name : NULL;
}

static bool is_weak(const struct weir_object *object, const ElfW(Sym) * symbol) {
    return weak_name(object, symbol) != NULL;
}

static int find_weak(const struct weir_object *object, void *context) {
    (void)context;
    size_t references = weir_object_references(object);
    if (references == 0)
        return weir_slots_any(object, is_weak);
    size_t i = 1;
    while (i < references && !is_weak(object, &object->symbols.at[i]))
        i++;
    return i < references;
}

// A lookup function that the C library has stays bound to this library, and so does a function of
// the driver, or of NVML, where that is loaded.
static void *choose_other(const struct weir_object *object, const struct weir_slot *slot,
                          void *context) {
    (void)context;
    const char *name = weir_own_code(slot->value) ? weak_name(object, slot->symbol) : NULL;
    if (!name)
        return slot->value;
    void *other = weir_next_function(name);
    bool dl = weir_dl_named(name) != WEIR_DL_COUNT;
    bool stays = dl ? other != NULL : weir_hooked_function(name) != NULL;
    return stays ? slot->value : other;
}

static int mend_weak(const struct weir_object *object, void *context) {
    weir_slots_choose(object, choose_other, context);
    return 0;
}

__attribute__((constructor)) static void start(void) {
    if (!weir_objects_each(find_weak, NULL))
        return;
    weir_objects_each(mend_weak, NULL);
}
