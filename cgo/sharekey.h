// sharekey.h: by what exporter and importers of a piece of memory name it to the agent: something
// that both find in the handle, without a word between them.
//
// A handle that is a string of bytes (IPC, fabric) is passed on as it is, so a digest of it does. A
// handle that is a file descriptor has another number in each process; what stays is the file
// behind it, if it is one of its own. A descriptor of a device node, as some drivers give, is not:
// there is no key, hence such an export cannot be told of.
#ifndef WEIR_SHAREKEY_H
#define WEIR_SHAREKEY_H

#include <stddef.h>

#include "abi/weir_abi.h"

// What a key was made of, so that two kinds of handle never have the same.
enum weir_share_key_tag {
    WEIR_SHARE_KEY_FILE = 1,
    WEIR_SHARE_KEY_IPC = 2,
    WEIR_SHARE_KEY_FABRIC = 3,
    WEIR_SHARE_KEY_POOLED = 4,  // a pointer out of a pool
};

// Makes the key of a descriptor. 0, or EBADF where it has none.
int weir_share_key_of_file(int fd, struct weir_share_key *key);

// Makes the key of a handle's bytes.
void weir_share_key_of_bytes(enum weir_share_key_tag tag, const void *handle, size_t bytes,
                             struct weir_share_key *key);

#endif
