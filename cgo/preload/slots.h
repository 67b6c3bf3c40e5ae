// slots.h: the words of an object that the loader has bound to functions.
//
// What was bound past this library, or to it where it should not have been, is mended by writing
// the slot. Invariants: only a word that the object's own relocations name, for a symbol and
// without an addend, is ever written, and only where it changes; pages that the loader made
// read-only are so again afterwards.
#ifndef WEIR_SLOTS_H
#define WEIR_SLOTS_H

#include "objects.h"

struct weir_slot {
    void **at;
    void *value;               // what it holds
    const ElfW(Sym) * symbol;  // what it is for
};

// Whether any slot of the object is for a symbol of which `test` holds. Reads no slot: cheap.
typedef bool weir_symbol_test(const struct weir_object *object, const ElfW(Sym) * symbol);
bool weir_slots_any(const struct weir_object *object, weir_symbol_test *test);

// Gives what a slot should hold; its own value for no change.
typedef void *weir_slot_choice(const struct weir_object *object, const struct weir_slot *slot,
                               void *context);

// Asks for every slot of the object and writes those that should hold something else.
void weir_slots_choose(const struct weir_object *object, weir_slot_choice *choice, void *context);

// Binds what an RTLD_DEEPBIND load has brought in, `handle` and what it needs, to this library.
// `before` is how things stood before the load. In deepbind.c.
void weir_bind_deep(void *handle, const struct weir_loads *before);

#endif
