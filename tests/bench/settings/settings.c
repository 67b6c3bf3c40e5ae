// settings.c: see settings.h.
#define _GNU_SOURCE
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_one(const char *name, char *value, const struct setting *settings, size_t all) {
    if (!strcmp(name, "name")) {
        program_invocation_short_name = value;
        return 1;
    }
    size_t s = 0;
    while (s < all && strcmp(name, settings[s].name))
        s++;
    if (s < all && settings[s].text)
        *settings[s].text = value;
    else if (s < all)
        *settings[s].number = strtoull(value, NULL, 10);
    return s < all;
}

const char *settings_read(int count, char **arguments, const struct setting *settings, size_t all) {
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value)
            return arguments[i];
        *value++ = 0;
        if (!read_one(arguments[i], value, settings, all))
            return arguments[i];
    }
    return NULL;
}
