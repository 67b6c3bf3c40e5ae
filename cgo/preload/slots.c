// slots.c: reads and writes slots; see slots.h.
#include "slots.h"

#include "sys.h"

#if defined(__x86_64__)
enum { SLOT_CALL = R_X86_64_JUMP_SLOT, SLOT_DATA = R_X86_64_GLOB_DAT, SLOT_WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum {
    SLOT_CALL = R_AARCH64_JUMP_SLOT,
    SLOT_DATA = R_AARCH64_GLOB_DAT,
    SLOT_WORD = R_AARCH64_ABS64,
};
#endif

static size_t relocation_count(const struct weir_object *object) {
    return object->relocations.count + object->plt_relocations.count;
}

static const ElfW(Rela) * relocation_at(const struct weir_object *object, size_t index) {
    size_t first = object->relocations.count;
    return index < first ? &object->relocations.at[index]
                         : &object->plt_relocations.at[index - first];
}

// The symbol that a relocation puts into a slot, NULL where it does something else.
static const ElfW(Sym) *
    slot_symbol(const struct weir_object *object, const ElfW(Rela) * relocation) {
    unsigned type = ELF64_R_TYPE(relocation->r_info);
    size_t symbol = ELF64_R_SYM(relocation->r_info);
    if ((type != SLOT_CALL && type != SLOT_DATA && type != SLOT_WORD) || symbol == 0 ||
        symbol >= object->symbols.count || (type == SLOT_WORD && relocation->r_addend != 0))
        return NULL;
    return &object->symbols.at[symbol];
}

bool weir_slots_any(const struct weir_object *object, weir_symbol_test *test) {
    for (size_t i = 0; i < relocation_count(object); i++) {
        const ElfW(Sym) *symbol = slot_symbol(object, relocation_at(object, i));
        if (symbol && test(object, symbol))
            return true;
    }
    return false;
}

static bool read_slot(const struct weir_object *object, const ElfW(Rela) * relocation,
                      struct weir_slot *slot) {
    slot->symbol = slot_symbol(object, relocation);
    uintptr_t address = object->base + relocation->r_offset;
    if (!slot->symbol || address % sizeof(void *) != 0 ||
        weir_object_room(object, address) < sizeof(void *))
        return false;
    slot->at = (void **)address;
    slot->value = __atomic_load_n(slot->at, __ATOMIC_RELAXED);
    return true;
}

// Where the pages that the loader made read-only after relocation end, if `address` lies in them;
// else 0.
static uintptr_t read_only_end(const struct weir_object *object, uintptr_t address) {
    for (size_t i = 0; i < object->header_count; i++) {
        const ElfW(Phdr) *header = &object->headers[i];
        uintptr_t start = object->base + header->p_vaddr;
        if (header->p_type == PT_GNU_RELRO && address - start < header->p_memsz)
            return start + header->p_memsz;
    }
    return 0;
}

static void write_slot(const struct weir_object *object, void **at, void *value) {
    uintptr_t end = read_only_end(object, (uintptr_t)at);
    // The kernel refuses what is not a multiple of its page size, so the right one is found by
    // trying.
    for (uintptr_t page = 4096; page <= 65536; page *= 4) {
        void *from = (void *)((uintptr_t)at & ~(page - 1));
        if ((uintptr_t)from + page > end)
            break;  // the last, partial page stays writable
        if (weir_sys_mprotect(from, page, PROT_READ | PROT_WRITE) == 0) {
            __atomic_store_n(at, value, __ATOMIC_RELEASE);
            weir_sys_mprotect(from, page, PROT_READ);
            return;
        }
    }
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static bool is_writable(const struct weir_object *object, uintptr_t address) {
    for (size_t i = 0; i < object->header_count; i++) {
        const ElfW(Phdr) *header = &object->headers[i];
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W) &&
            address - (object->base + header->p_vaddr) < header->p_memsz)
            return true;
    }
    return false;
}

void weir_slots_choose(const struct weir_object *object, weir_slot_choice *choice, void *context) {
    for (size_t i = 0; i < relocation_count(object); i++) {
        struct weir_slot slot;
        if (!read_slot(object, relocation_at(object, i), &slot))
            continue;
        void *value = choice(object, &slot, context);
        if (value != slot.value && is_writable(object, (uintptr_t)slot.at))
            write_slot(object, slot.at, value);
    }
}
