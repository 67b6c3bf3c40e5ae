// deepbind.c: binds what was loaded with RTLD_DEEPBIND to this library; see weir_bind_deep.
//
// Such an object looks for names in itself and what it needs before it looks here, so it is bound
// past this library. Another thread may be loading objects of its own meanwhile, half relocated. So
// only objects are touched that came with this load: the one that its handle names and what that
// needs, as far as it is new.
#include "driver.h"
#include "nvml.h"
#include "routes.h"
#include "slots.h"

// Objects that one load may bring in; those beyond stay bound to the driver directly.
enum { NEW_MAX = 256 };

struct load {
    void *handle;
    size_t first;             // objects before this one were there already
    uintptr_t ours[NEW_MAX];  // dynamic sections of the objects that came with this load
    size_t count;
    const char *needed;  // the name whose object is being marked
    bool left_error;     // whether a lookup of ours failed, which the loader remembers
};

static bool same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static const char *base_name(const char *path) {
    const char *base = path;
    for (; *path; path++)
        if (*path == '/')
            base = path + 1;
    return base;
}

static void mark(struct load *load, const struct weir_object *object) {
    for (size_t i = 0; i < load->count; i++)
        if (load->ours[i] == object->dynamic)
            return;
    if (object->index >= load->first && load->count < NEW_MAX)
        load->ours[load->count++] = object->dynamic;
}

static int mark_handle(const struct weir_object *object, void *context) {
    struct load *load = context;
    if (object->dynamic != (uintptr_t)((struct link_map *)load->handle)->l_ld)
        return 0;
    mark(load, object);
    return 1;
}

static int mark_needed(const struct weir_object *object, void *context) {
    struct load *load = context;
    const char *name = object->soname ? object->soname : base_name(object->path);
    if (!same(name, load->needed) && !same(object->path, load->needed))
        return 0;
    mark(load, object);
    return 1;
}

static void mark_all_needed(struct load *load, const struct weir_object *object) {
    for (size_t i = 0; i < object->entries.count && object->entries.at[i].d_tag != DT_NULL; i++) {
        if (object->entries.at[i].d_tag != DT_NEEDED)
            continue;
        load->needed = weir_object_string(object, object->entries.at[i].d_un.d_val);
        if (load->needed)
            weir_objects_each(mark_needed, load);
    }
}

static int copy_visit(const struct weir_object *object, void *context) {
    struct weir_object *copy = context;
    if (object->dynamic != copy->dynamic)
        return 0;
    *copy = *object;
    return 1;
}

struct libc_search {
    const char *name;
    const void *function;
};

static int libc_visit(const struct weir_object *object, void *context) {
    const struct libc_search *search = context;
    return weir_object_holds(object, (uintptr_t)search->function) && object->soname &&
           (same(object->soname, "libc.so.6") || same(object->soname, "libdl.so.2")) &&
           weir_object_function(object, search->name) == search->function;
}

static bool is_libc_function(const void *function, const char *name) {
    struct libc_search search = {name, function};
    return function && weir_objects_each(libc_visit, &search) != 0;
}

// The function that a slot leads to. One that still leads into its own object is to be bound at the
// first call; what it will be bound to is what a lookup in the object's own scope finds.
static void *bound_function(const struct weir_object *object, const struct weir_slot *slot,
                            const char *name, struct load *load) {
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))weir_dl_real(WEIR_DLSYM);
    if (!find || !weir_object_holds(object, (uintptr_t)slot->value))
        return slot->value;
    void *function = find(load->handle, name);
    load->left_error |= function == NULL;
    return function;
}

static void *choose_deep(const struct weir_object *object, const struct weir_slot *slot,
                         void *context) {
    struct load *load = context;
    const char *name = weir_object_string(object, slot->symbol->st_name);
    if (!name || weir_own_code(slot->value))
        return slot->value;
    if (name[0] == 'd' && name[1] == 'l') {
        enum weir_dl which = weir_dl_named(name);
        if (which != WEIR_DL_COUNT &&
            is_libc_function(bound_function(object, slot, name, load), name))
            return weir_dl_entry(which);
    } else {
        void *wrapper = weir_hooked_wrapper(name);
        void *real = wrapper ? weir_hooked_function(name) : NULL;
        if (real && bound_function(object, slot, name, load) == real)
            return wrapper;
    }
    return slot->value;
}

void weir_bind_deep(void *handle, const struct weir_loads *before) {
    struct load load = {.handle = handle, .first = before->present};
    if (weir_loads_now().removed != before->removed)
        load.first = 0;
    weir_driver_refresh();
    weir_nvml_refresh();
    weir_objects_each(mark_handle, &load);
    // The host does not have the handle yet, so the marked objects stay loaded. Lookups in them are
    // made outside the walk: a thread that loads holds the locks of both in the other order.
    for (size_t i = 0; i < load.count; i++) {
        struct weir_object object = {.dynamic = load.ours[i]};
        if (weir_objects_each(copy_visit, &object) == 0)
            continue;
        mark_all_needed(&load, &object);
        if (!weir_driver_is_at(object.low) && !weir_own_code((const void *)object.low))
            weir_slots_choose(&object, choose_deep, &load);
    }
    char *(*forget_error)(void) = (char *(*)(void))weir_host_function("dlerror");
    if (load.left_error && forget_error)
        forget_error();
}
