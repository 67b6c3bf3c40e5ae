// callas.c: finds the return instruction that callas.h speaks of.
#include "callas.h"

#include <string.h>

#include "objects.h"

// In callas_<machine>.S: calls function(a, b, c) with `site`, a return instruction of the kind that
// site_in finds, as its return address.
void *weir_call_through(const void *site, void *function, const void *a, const void *b,
                        const void *c);

#if defined(__x86_64__)
// A plain near return.
static const void *site_in(const uint8_t *code, size_t bytes) {
    return memchr(code, 0xc3, bytes);
}
#elif defined(__aarch64__)
// ldp x29, x30, [sp], #16 and ret: the usual end of a function with the smallest frame.
static const void *site_in(const uint8_t *code, size_t bytes) {
    const uint32_t *words = (const void *)(((uintptr_t)code + 3) & ~(uintptr_t)3);
    size_t skipped = (size_t)((const uint8_t *)words - code);
    for (size_t i = 0; i + 1 < (bytes - skipped) / sizeof(*words); i++)
        if (words[i] == 0xa8c17bfd && words[i + 1] == 0xd65f03c0)
            return &words[i];
    return NULL;
}
#endif

struct site_search {
    uintptr_t caller;
    const void *site;
};

// Looks in the executable segment that the caller lies in, from the caller on, then before it.
static int site_visit(const struct weir_object *object, void *context) {
    struct site_search *search = context;
    if (!weir_object_holds(object, search->caller))
        return 0;
    for (size_t i = 0; i < object->header_count; i++) {
        const ElfW(Phdr) *header = &object->headers[i];
        uintptr_t start = object->base + header->p_vaddr;
        const unsigned flags = PF_R | PF_X;
        if (header->p_type != PT_LOAD || (header->p_flags & flags) != flags ||
            search->caller - start >= header->p_filesz)
            continue;
        size_t ahead = search->caller - start;
        search->site = site_in((const uint8_t *)search->caller, header->p_filesz - ahead);
        if (!search->site)
            search->site = site_in((const uint8_t *)start, ahead);
    }
    return 1;
}

void *weir_call_as(const void *caller, void *function, const void *a, const void *b,
                   const void *c) {
    struct site_search search = {.caller = (uintptr_t)caller};
    weir_objects_each(site_visit, &search);
    if (search.site)
        return weir_call_through(search.site, function, a, b, c);
    return ((void *(*)(const void *, const void *, const void *))function)(a, b, c);
}
