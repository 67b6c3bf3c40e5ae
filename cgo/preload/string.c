// string.c: the memory functions that the compiler may call, so that none is imported.
//
// Byte by byte: inputs are names, headers and small structures.
#include <stddef.h>
#include <stdint.h>

// In each loop, lest the compiler see what it is and make of it a call of the function itself.
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

// What some compilers make of a memcmp that is only compared with 0.
int bcmp(const void *a, const void *b, size_t bytes) {
    return memcmp(a, b, bytes);
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

int strcmp(const char *a, const char *b) {
    for (; *a && *a == *b; a++, b++)
        OPAQUE();
    return (unsigned char)*a - (unsigned char)*b;
}
