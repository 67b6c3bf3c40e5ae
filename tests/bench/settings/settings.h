// settings.h: what the programs of benchmarks are told on their command lines, KEY=VALUE each.
#ifndef WEIR_BENCH_SETTINGS_H
#define WEIR_BENCH_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

struct setting {
    const char *name;
    uint64_t *number;  // either is set
    const char **text;
};

// Reads settings; "name" is the program's in the machine's books. NULL, or the argument that is
// none of `all` of them. Arguments are changed.
const char *settings_read(int count, char **arguments, const struct setting *settings, size_t all);

#endif
