// host.h: what the host programs of the tests share. They print one `name value` a line.
#ifndef HOST_H
#define HOST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// musl has neither: it loads as without the flag, and knows no versions.
#ifndef __GLIBC__
#define RTLD_DEEPBIND 8
#define dlvsym(handle, name, version) dlsym(handle, name)
#endif

typedef int init_fn(unsigned flags);

// The base name of the object that an address lies in, "null" or "?".
static inline const char *owner(const void *address) {
    Dl_info info;
    if (!address)
        return "null";
    if (!dladdr(address, &info) || !info.dli_fname)
        return "?";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

// How often the test library's wrapper of that export was called; -1 without the library.
static inline int calls(const char *export) {
    unsigned (*ask)(const char *) = (unsigned (*)(const char *))dlsym(RTLD_DEFAULT, "cuTestCalls");
    return ask ? (int)ask(export) : -1;
}

// The same of NVML's functions.
static inline int nvml_calls(const char *name) {
    unsigned (*ask)(const char *) =
        (unsigned (*)(const char *))dlsym(RTLD_DEFAULT, "cuTestNvmlCalls");
    return ask ? (int)ask(name) : -1;
}

static inline void show(const char *name, const void *address) {
    printf("%s %s\n", name, owner(address));
}

#endif
