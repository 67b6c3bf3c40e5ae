// sharekey.c: see sharekey.h.
#include "sharekey.h"

#include <string.h>

#include "slab.h"

enum { WORDS = sizeof(struct weir_share_key) / sizeof(uint64_t) };

static void write_key(const uint64_t words[WORDS], enum weir_share_key_tag tag,
                      struct weir_share_key *key) {
    memcpy(key->bytes, words, sizeof(key->bytes));
    key->bytes[0] = (uint8_t)tag;
}

// Only a file of memory is one allocation's: device nodes and the kernel's anonymous inodes are
// shared by many.
int weir_share_key_of_file(int fd, struct weir_share_key *key) {
    struct stat status;
    if (weir_sys_fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        weir_sys_fcntl(fd, WEIR_F_GET_SEALS, 0) < 0)
        return EBADF;
    uint64_t words[WORDS] = {0, (uint64_t)status.st_dev, (uint64_t)status.st_ino};
    write_key(words, WEIR_SHARE_KEY_FILE, key);
    return 0;
}

// Nobody gains by two handles with one key, which would be charged too much: the digest need only
// keep apart what differs by chance.
void weir_share_key_of_bytes(enum weir_share_key_tag tag, const void *handle, size_t bytes,
                             struct weir_share_key *key) {
    uint64_t words[WORDS];
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = weir_slab_hash(i * 0x100 + tag);
        for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
            uint64_t word = 0;
            size_t left = bytes - at;
            memcpy(&word, (const char *)handle + at, left < sizeof(word) ? left : sizeof(word));
            words[i] = weir_slab_hash(words[i] + word * (2 * i + 3));
        }
    }
    write_key(words, tag, key);
}
