// members.c: see members.h. The page is a memory file, whose inode number names it on this machine
// (with its name, since other kinds of files have numbers of their own).
#include "members.h"

#include <stdbool.h>
#include <string.h>

#include "pages.h"
#include "state.h"

#define MAPS_BYTES_MAX (16u << 20)
#define PART_BYTES 4096u
// Longer lines are cut; what is looked for comes before.
#define LINE_BYTES 256u

static size_t put_number(char *to, uint64_t number) {
    char digits[24];
    size_t length = 0;
    do
        digits[length++] = (char)('0' + number % 10);
    while (number /= 10);
    for (size_t i = 0; i < length; i++)
        to[i] = digits[length - 1 - i];
    return length;
}

// Where a text is in a line, or NULL.
static const char *find(const char *line, size_t length, const char *text, size_t bytes) {
    for (size_t i = 0; i + bytes <= length; i++)
        if (memcmp(line + i, text, bytes) == 0)
            return line + i;
    return NULL;
}

// Whether a line of a process's map is of the file with this number: " NUMBER " and, after it, the
// name.
static bool is_control(const char *line, size_t length, const char *number, size_t number_bytes) {
    const char *at = find(line, length, number, number_bytes);
    if (!at)
        return false;
    size_t rest = length - (size_t)(at - line);
    return find(at, rest, "/memfd:" WEIR_CONTROL_NAME, sizeof("/memfd:" WEIR_CONTROL_NAME) - 1) !=
           NULL;
}

static bool has_control(int fd, uint64_t inode) {
    char part[PART_BYTES], line[LINE_BYTES], number[24];
    size_t number_bytes = 0, length = 0;
    number[number_bytes++] = ' ';
    number_bytes += put_number(number + number_bytes, inode);
    number[number_bytes++] = ' ';
    for (int64_t at = 0; at < MAPS_BYTES_MAX;) {
        long got = weir_sys_pread(fd, part, sizeof(part), at);
        if (got <= 0)
            return false;
        for (long i = 0; i < got; i++) {
            if (part[i] != '\n') {
                if (length < sizeof(line))
                    line[length++] = part[i];
                continue;
            }
            if (is_control(line, length, number, number_bytes))
                return true;
            length = 0;
        }
        at += got;
    }
    return false;
}

int weir_is_member(unsigned pid) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    uint64_t inode = state ? __atomic_load_n(&state->control_inode, __ATOMIC_RELAXED) : 0;
    if (pid == (unsigned)weir_sys_getpid())
        return 1;
    if (!inode || !pid)
        return 0;
    char path[64] = "/proc/";
    size_t length = strlen(path);
    length += put_number(path + length, pid);
    memcpy(path + length, "/maps", sizeof("/maps"));
    int fd = weir_sys_open(path, O_RDONLY, 0);
    if (fd < 0)
        return 0;
    bool has = has_control(fd, inode);
    weir_sys_close(fd);
    return has;
}
