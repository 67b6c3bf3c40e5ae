// Text for callers' buffers: see text.h.
#include "text.h"

const char sim_text_lower[] = "0123456789abcdef";
const char sim_text_upper[] = "0123456789ABCDEF";

struct sim_text sim_text_begin(char *to, size_t room) {
    if (room > 0) {
        to[0] = '\0';
    }
    return (struct sim_text){.to = to, .room = room};
}

void sim_text_char(struct sim_text *text, char c) {
    if (text->length + 1 < text->room) {
        text->to[text->length] = c;
        text->to[text->length + 1] = '\0';
    }
    text->length++;
}

void sim_text_string(struct sim_text *text, const char *from) {
    while (*from != '\0') {
        sim_text_char(text, *from++);
    }
}

void sim_text_decimal(struct sim_text *text, uint64_t value) {
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        sim_text_char(text, digits[--count]);
    }
}

void sim_text_hex(struct sim_text *text, uint64_t value, unsigned digits, const char *alphabet) {
    while (digits < 16 && value >> (4 * digits) != 0) {
        digits++;
    }
    while (digits > 0) {
        digits--;
        sim_text_char(text, alphabet[(value >> (4 * digits)) & 15]);
    }
}
