// Text for callers' buffers, without stdio: the library must not touch its host's streams.
#pragma once

#include <stddef.h>
#include <stdint.h>

// A bounded buffer that is always zero-terminated; what does not fit is dropped, and `length` goes
// on counting, so that a caller sees what would have been needed.
struct sim_text {
    char *to;
    size_t room;  // zero byte included
    size_t length;
};

struct sim_text sim_text_begin(char *to, size_t room);
void sim_text_char(struct sim_text *text, char c);
void sim_text_string(struct sim_text *text, const char *from);
void sim_text_decimal(struct sim_text *text, uint64_t value);
// At least `digits` hexadecimal digits, letters as in `alphabet` ("0123456789abcdef").
void sim_text_hex(struct sim_text *text, uint64_t value, unsigned digits, const char *alphabet);

extern const char sim_text_lower[];
extern const char sim_text_upper[];
