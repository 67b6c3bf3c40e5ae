// log.c: see log.h. A line is made in a buffer of fixed size and written with one system call.
#include "log.h"

#include <string.h>

#define LINE_BYTES_MAX 256u

struct line {
    char text[LINE_BYTES_MAX];
    size_t bytes;
};

static void add_text(struct line *line, const char *text) {
    size_t bytes = strlen(text);
    size_t room = LINE_BYTES_MAX - 1 - line->bytes;  // one is left for the end of the line
    if (bytes > room)
        bytes = room;
    memcpy(line->text + line->bytes, text, bytes);
    line->bytes += bytes;
}

static void add_number(struct line *line, int64_t number) {
    char digits[24];
    size_t at = sizeof(digits) - 1;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0)
        digits[--at] = '-';
    add_text(line, digits + at);
}

void weir_log(const struct weir_state *state, const char *text, int64_t number) {
    if (!state->log_path[0])
        return;
    int fd =
        weir_sys_open(state->log_path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        return;
    struct line line = {.bytes = 0};
    add_text(&line, "weir ");
    add_number(&line, state->pid);
    add_text(&line, ": ");
    add_text(&line, text);
    add_text(&line, ": ");
    add_number(&line, number);
    line.text[line.bytes++] = '\n';
    weir_sys_write(fd, line.text, line.bytes);
    weir_sys_close(fd);
}
