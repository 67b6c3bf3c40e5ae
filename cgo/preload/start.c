// start.c: what happens when the library is loaded, in every process: next to nothing.
//
// A program may ask `if (cuInit)` of a weak reference to see whether it runs with the driver. In a
// process without one the loader has bound such a reference to this library, and it must be NULL.
// That can only be mended now, before the program looks. Costs one pass over the relocations that
// name symbols, and no system call, unless there is such a reference.
#include "driver.h"
#include "slots.h"

// A weak reference that was bound to one of this library's names.
static void *choose_weak(const struct weir_object *object, const struct weir_slot *slot,
                         void *context) {
    (void)context;
    if (!weir_own_code(slot->value) || slot->symbol->st_shndx != SHN_UNDEF ||
        ELF64_ST_BIND(slot->symbol->st_info) != STB_WEAK)
        return slot->value;
    const char *name = weir_object_string(object, slot->symbol->st_name);
    return name && weir_fn_named(name) != WEIR_FN_NONE ? NULL : slot->value;
}

static int weak_visit(const struct weir_object *object, void *context) {
    if (!weir_object_holds(object, (uintptr_t)weak_visit))
        weir_slots_choose(object, choose_weak, context);
    return 0;
}

__attribute__((constructor)) static void start(void) {
    if (!weir_driver_refresh())
        weir_objects_each(weak_visit, NULL);
}
