// string.c: the memory functions that the compiler may call, so that none is imported.
//
// Built with -fno-builtin and without loop idioms (see link), lest one become a call of itself.
// Short inputs only: names, headers and small structures.
#include <stddef.h>
#include <stdint.h>

#define OPAQUE() __asm__ volatile("")

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    for (; bytes; bytes--) {
        *t++ = *f++;
        OPAQUE();
    }
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= bytes)
        return memcpy(to, from, bytes);
    while (bytes--) {
        t[bytes] = f[bytes];
        OPAQUE();
    }
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    unsigned char *t = to;
    for (; bytes; bytes--) {
        *t++ = (unsigned char)value;
        OPAQUE();
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes) {
    const unsigned char *x = a, *y = b;
    for (; bytes; bytes--, x++, y++) {
        if (*x != *y)
            return *x - *y;
        OPAQUE();
    }
    return 0;
}

void *memchr(const void *from, int value, size_t bytes) {
    const unsigned char *f = from;
    for (; bytes; bytes--, f++) {
        if (*f == (unsigned char)value)
            return (void *)f;
        OPAQUE();
    }
    return NULL;
}

size_t strlen(const char *string) {
    size_t length = 0;
    for (; string[length]; length++)
        OPAQUE();
    return length;
}
