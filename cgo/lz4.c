// lz4.c: LZ4's block format: literals, then a copy of what was written before, again and again.
#include <string.h>

#include "image.h"

#define COPY_LEAST 4u   // a copy is never shorter
#define LONG_LENGTH 15  // then more bytes follow, each added, until one that is not 255

struct reader {
    const uint8_t *at, *end;
};

// Completes a length whose first part is in a token. False where the input ends in it.
static bool read_length(struct reader *in, size_t *length) {
    uint8_t more = 255;
    if (*length < LONG_LENGTH)
        return true;
    while (more == 255) {
        if (in->at == in->end)
            return false;
        more = *in->at++;
        *length += more;
    }
    return true;
}

int64_t weir_lz4_undo(const uint8_t *from, size_t bytes, uint8_t *to, size_t room) {
    struct reader in = {from, from + bytes};
    size_t done = 0;
    while (in.at < in.end) {
        uint8_t token = *in.at++;
        size_t literals = token >> 4, copy = token & 15;
        if (!read_length(&in, &literals) || literals > (size_t)(in.end - in.at) ||
            literals > room - done)
            return -1;
        memcpy(to + done, in.at, literals);
        in.at += literals;
        done += literals;
        if (in.at == in.end)
            break;  // the last sequence has literals only
        if (in.end - in.at < 2)
            return -1;
        size_t back = in.at[0] | (size_t)in.at[1] << 8;
        in.at += 2;
        if (!read_length(&in, &copy))
            return -1;
        copy += COPY_LEAST;
        if (!back || back > done || copy > room - done)
            return -1;
        for (; copy; copy--, done++)  // byte by byte: the two may overlap
            to[done] = to[done - back];
    }
    return (int64_t)done;
}
