// objects.h: the objects that are loaded into this process, read from memory.
//
// The library imports none of the dl functions (it interposes them, and must load under any libc),
// so it reads the loader's work itself: program headers by dl_iterate_phdr, then the dynamic
// section and the tables that it names. Invariants:
//   - no byte is read that does not lie in a readable PT_LOAD segment of its object: every table is
//     cut at the end of its segment, every string at the end of its table, every chain is bounded;
//   - nothing allocates, locks or keeps state: a struct weir_object is valid while its object is
//   loaded.
#ifndef WEIR_OBJECTS_H
#define WEIR_OBJECTS_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A table in an object's memory: `count` whole entries are readable at `at`.
#define WEIR_TABLE(type)                                                                           \
    struct {                                                                                       \
        const type *at;                                                                            \
        size_t count;                                                                              \
    }

struct weir_object {
    size_t index;         // its place in the loader's list, the program is 0
    uintptr_t base;       // what is added to an address of the file
    uintptr_t low, high;  // all its segments lie in [low, high)
    const char *path;     // as the loader names it, "" for the program itself
    const char *soname;   // DT_SONAME, NULL where it has none
    uintptr_t dynamic;    // address of the dynamic section, 0 where it has none
    const ElfW(Phdr) * headers;
    size_t header_count;
    WEIR_TABLE(ElfW(Dyn)) entries;  // of the dynamic section
    WEIR_TABLE(ElfW(Sym)) symbols;
    WEIR_TABLE(char) strings;
    WEIR_TABLE(uint32_t) gnu_hash;       // count 0 where it has none
    WEIR_TABLE(uint32_t) sysv_hash;      // count 0 where it has none
    WEIR_TABLE(uint16_t) versions;       // by symbol; count 0 where it has none
    WEIR_TABLE(ElfW(Rela)) relocations;  // those that name no symbol and come first are left out
    WEIR_TABLE(ElfW(Rela)) plt_relocations;
};

// Reads an object from its program headers. Returns 0, or ENOEXEC for one that has no segment or
// whose tables lie outside its segments. `path` may be NULL.
int weir_object_read(struct weir_object *object, uintptr_t base, const ElfW(Phdr) * headers,
                     size_t header_count, const char *path);

// Called for each object in the loader's order, the program first. Anything but 0 ends the walk.
typedef int weir_object_visit(const struct weir_object *object, void *context);

// Walks the loaded objects. Returns what `visit` returned last, 0 at the end. Objects that cannot
// be read are passed over. The loader's list is locked meanwhile: `visit` must not load or unload.
int weir_objects_each(weir_object_visit *visit, void *context);

// How often the loader has removed objects, and how many there are. New ones come at the end of its
// list, so where `removed` has not changed, those from `present` on are new.
struct weir_loads {
    unsigned long long removed;
    size_t present;
};
struct weir_loads weir_loads_now(void);

// The address of a function that the object defines and others can see, or NULL. Of several
// versions the default one. Indirect functions are not found.
void *weir_object_function(const struct weir_object *object, const char *name);

// All references to other objects are symbols before this one. 0 where the object does not tell.
size_t weir_object_references(const struct weir_object *object);

// The string at `offset` of the object's string table, or NULL where it does not end in the table.
const char *weir_object_string(const struct weir_object *object, size_t offset);

// How many bytes of one readable segment lie at and after `address`; 0 outside all of them.
size_t weir_object_room(const struct weir_object *object, uintptr_t address);

static inline bool weir_object_holds(const struct weir_object *object, uintptr_t address) {
    return address - object->low < object->high - object->low;
}

// Whether `address` lies in the object that this code is part of.
bool weir_own_code(const void *address);

#endif
