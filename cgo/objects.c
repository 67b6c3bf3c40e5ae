// objects.c: reads loaded objects from memory; see objects.h for what it promises.
#include "objects.h"

#include <errno.h>
#include <string.h>

// In a process without a C library there is none: then no object is ever found.
#pragma weak dl_iterate_phdr

extern const char weir_image_start[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char weir_image_end[] __asm__("_end") __attribute__((visibility("hidden")));

enum { VERSION_HIDDEN = 0x8000 };

bool weir_own_code(const void *address) {
    return (uintptr_t)address - (uintptr_t)weir_image_start <
           (size_t)(weir_image_end - weir_image_start);
}

size_t weir_object_room(const struct weir_object *object, uintptr_t address) {
    for (size_t i = 0; i < object->header_count; i++) {
        const ElfW(Phdr) *header = &object->headers[i];
        uintptr_t start = object->base + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_R) &&
            address - start < header->p_memsz)
            return header->p_memsz - (address - start);
    }
    return 0;
}

const char *weir_object_string(const struct weir_object *object, size_t offset) {
    if (offset >= object->strings.count)
        return NULL;
    const char *string = object->strings.at + offset;
    return memchr(string, 0, object->strings.count - offset) ? string : NULL;
}

// The address that a dynamic entry means. glibc has added the base already, musl and the kernel's
// own object have not.
static uintptr_t table_address(const struct weir_object *object, uintptr_t value) {
    return weir_object_holds(object, value) ? value : object->base + value;
}

// Sets a table: `bytes` of it, or what its segment has where that is less or `bytes` is 0. A table
// that is misaligned or outside all segments becomes empty.
#define SET_TABLE(object, table, value, bytes)                                                     \
    do {                                                                                           \
        uintptr_t set_at = table_address(object, value);                                           \
        size_t set_room = weir_object_room(object, set_at);                                        \
        size_t set_want = (bytes);                                                                 \
        if (set_want && set_want < set_room)                                                       \
            set_room = set_want;                                                                   \
        if (set_at % _Alignof(__typeof__(*(table)->at)) != 0)                                      \
            set_room = 0;                                                                          \
        (table)->at = (const void *)set_at;                                                        \
        (table)->count = set_room / sizeof(*(table)->at);                                          \
    } while (0)

// What the dynamic section says about the sizes of tables, gathered before the tables are set.
struct sizes {
    size_t strings, relocations, relative, plt_relocations, soname;
    bool has_soname;
};

static struct sizes read_sizes(const struct weir_object *object) {
    struct sizes sizes = {0};
    for (size_t i = 0; i < object->entries.count && object->entries.at[i].d_tag != DT_NULL; i++) {
        size_t value = object->entries.at[i].d_un.d_val;
        switch (object->entries.at[i].d_tag) {
        case DT_STRSZ:
            sizes.strings = value;
            break;
        case DT_RELASZ:
            sizes.relocations = value;
            break;
        case DT_RELACOUNT:
            sizes.relative = value;
            break;
        case DT_PLTRELSZ:
            sizes.plt_relocations = value;
            break;
        case DT_SONAME:
            sizes.soname = value;
            sizes.has_soname = true;
            break;
        }
    }
    return sizes;
}

static void read_tables(struct weir_object *object, const struct sizes *sizes) {
    for (size_t i = 0; i < object->entries.count && object->entries.at[i].d_tag != DT_NULL; i++) {
        uintptr_t value = object->entries.at[i].d_un.d_ptr;
        switch (object->entries.at[i].d_tag) {
        case DT_STRTAB:
            SET_TABLE(object, &object->strings, value, sizes->strings);
            break;
        case DT_SYMTAB:
            SET_TABLE(object, &object->symbols, value, 0);
            break;
        case DT_GNU_HASH:
            SET_TABLE(object, &object->gnu_hash, value, 0);
            break;
        case DT_HASH:
            SET_TABLE(object, &object->sysv_hash, value, 0);
            break;
        case DT_VERSYM:
            SET_TABLE(object, &object->versions, value, 0);
            break;
        case DT_RELA:
            if (sizes->relocations)
                SET_TABLE(object, &object->relocations, value, sizes->relocations);
            break;
        case DT_JMPREL:
            if (sizes->plt_relocations)
                SET_TABLE(object, &object->plt_relocations, value, sizes->plt_relocations);
            break;
        }
    }
    size_t relative = sizes->relative;
    if (relative > object->relocations.count)
        relative = 0;
    object->relocations.at += relative;
    object->relocations.count -= relative;
}

int weir_object_read(struct weir_object *object, uintptr_t base, const ElfW(Phdr) * headers,
                     size_t header_count, const char *path) {
    *object = (struct weir_object){.base = base,
                                   .low = UINTPTR_MAX,
                                   .path = path ? path : "",
                                   .headers = headers,
                                   .header_count = header_count};
    size_t dynamic_bytes = 0;
    for (size_t i = 0; i < header_count; i++) {
        uintptr_t start = base + headers[i].p_vaddr;
        if (headers[i].p_type == PT_LOAD && headers[i].p_memsz <= UINTPTR_MAX - start) {
            object->low = start < object->low ? start : object->low;
            uintptr_t end = start + headers[i].p_memsz;
            object->high = end > object->high ? end : object->high;
        } else if (headers[i].p_type == PT_DYNAMIC) {
            object->dynamic = start;
            dynamic_bytes = headers[i].p_memsz;
        }
    }
    if (object->low >= object->high || dynamic_bytes == 0)
        return ENOEXEC;
    SET_TABLE(object, &object->entries, object->dynamic, dynamic_bytes);
    struct sizes sizes = read_sizes(object);
    read_tables(object, &sizes);
    if (object->symbols.count == 0 || object->strings.count == 0)
        return ENOEXEC;
    if (sizes.has_soname)
        object->soname = weir_object_string(object, sizes.soname);
    return 0;
}

// The symbols of the GNU hash table, all definitions, are the last ones. An empty table says that
// it begins at 1, whatever symbols there are.
size_t weir_object_references(const struct weir_object *object) {
    size_t first = object->gnu_hash.count < 2 ? 0 : object->gnu_hash.at[1];
    return first > 1 && first <= object->symbols.count ? first : 0;
}

struct walk {
    weir_object_visit *visit;
    void *context;
    size_t index;
};

static int walk_one(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct walk *walk = context;
    struct weir_object object;
    size_t index = walk->index++;
    if (weir_object_read(&object, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum,
                         info->dlpi_name))
        return 0;
    object.index = index;
    return walk->visit(&object, walk->context);
}

int weir_objects_each(weir_object_visit *visit, void *context) {
    struct walk walk = {.visit = visit, .context = context};
    return dl_iterate_phdr ? dl_iterate_phdr(walk_one, &walk) : 0;
}

static int count_one(struct dl_phdr_info *info, size_t bytes, void *context) {
    struct weir_loads *loads = context;
    if (bytes >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs))
        loads->removed = info->dlpi_subs;
    loads->present++;
    return 0;
}

struct weir_loads weir_loads_now(void) {
    struct weir_loads loads = {0};
    if (dl_iterate_phdr)
        dl_iterate_phdr(count_one, &loads);
    return loads;
}

// A definition that the loader would bind others to. Sets *is_default to whether its version is the
// one that references without a version get.
static bool is_function(const struct weir_object *object, size_t index, bool *is_default) {
    const ElfW(Sym) *symbol = &object->symbols.at[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), binding = ELF64_ST_BIND(symbol->st_info);
    unsigned visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0 ||
        (type != STT_FUNC && type != STT_NOTYPE) ||
        (binding != STB_GLOBAL && binding != STB_WEAK) ||
        (visibility != STV_DEFAULT && visibility != STV_PROTECTED))
        return false;
    uint16_t version = index < object->versions.count ? object->versions.at[index] : 1;
    *is_default = !(version & VERSION_HIDDEN);
    return (version & ~VERSION_HIDDEN) != 0;
}

struct search {
    const struct weir_object *object;
    const char *name;
    size_t name_bytes;   // its zero included
    uintptr_t fallback;  // a definition of a version that is not the default one
};

// Looks at one symbol of a chain. Returns the function's address if the search ends here, else 0.
static uintptr_t consider(struct search *search, size_t index) {
    const struct weir_object *object = search->object;
    bool is_default;
    if (index >= object->symbols.count || !is_function(object, index, &is_default))
        return 0;
    size_t offset = object->symbols.at[index].st_name;
    if (offset >= object->strings.count || object->strings.count - offset < search->name_bytes ||
        memcmp(object->strings.at + offset, search->name, search->name_bytes) != 0)
        return 0;
    uintptr_t address = object->base + object->symbols.at[index].st_value;
    if (is_default)
        return address;
    if (!search->fallback)
        search->fallback = address;
    return 0;
}

// The GNU hash table: four words of header, a Bloom filter of pointer-sized words, buckets, and one
// hash a symbol whose lowest bit ends a chain.
static uintptr_t search_gnu(struct search *search) {
    const uint32_t *words = search->object->gnu_hash.at;
    uint64_t room = search->object->gnu_hash.count;
    if (room < 4)
        return 0;
    uint64_t buckets = words[0], first = words[1], filters = words[2];
    uint32_t shift = words[3];
    const uint64_t per_filter = sizeof(ElfW(Addr)) / sizeof(uint32_t);
    if (buckets == 0 || filters == 0 || shift > 31 || 4 + filters * per_filter + buckets > room)
        return 0;
    uint32_t hash = 5381;
    for (const char *c = search->name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    ElfW(Addr) filter;
    const unsigned bits = 8 * sizeof(filter);
    memcpy(&filter, words + 4 + (hash / bits) % filters * per_filter, sizeof(filter));
    if (!(filter >> hash % bits & filter >> (hash >> shift) % bits & 1))
        return 0;
    uint64_t chains = 4 + filters * per_filter + buckets;
    uint64_t index = words[4 + filters * per_filter + hash % buckets];
    for (; index >= first && chains + (index - first) < room; index++) {
        uint32_t chained = words[chains + (index - first)];
        uintptr_t address = (chained | 1) == (hash | 1) ? consider(search, index) : 0;
        if (address)
            return address;
        if (chained & 1)
            return 0;
    }
    return 0;
}

// The System V hash table: bucket and chain counts, then both tables of symbol numbers.
static uintptr_t search_sysv(struct search *search) {
    const uint32_t *words = search->object->sysv_hash.at;
    uint64_t room = search->object->sysv_hash.count;
    if (room < 2)
        return 0;
    uint64_t buckets = words[0], chains = words[1];
    if (buckets == 0 || 2 + buckets + chains > room)
        return 0;
    uint32_t hash = 0;
    for (const char *c = search->name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    uint32_t index = words[2 + hash % buckets];
    for (uint64_t steps = 0; index != 0 && index < chains && steps < chains; steps++) {
        uintptr_t address = consider(search, index);
        if (address)
            return address;
        index = words[2 + buckets + index];
    }
    return 0;
}

void *weir_object_function(const struct weir_object *object, const char *name) {
    struct search search = {.object = object, .name = name, .name_bytes = strlen(name) + 1};
    uintptr_t address = object->gnu_hash.count ? search_gnu(&search) : search_sysv(&search);
    return (void *)(address ? address : search.fallback);
}
