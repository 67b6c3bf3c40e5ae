// puppet.h: what the files of the puppet share.
#ifndef WEIR_E2E_PUPPET_H
#define WEIR_E2E_PUPPET_H

#include <stdint.h>

// A command: its words, the name first, NULL behind the last. It answers with one line.
struct puppet_command {
    const char *name;
    void (*run)(char **words);
};

__attribute__((format(printf, 1, 2))) void puppet_answer(const char *format, ...);
// "ok", or "error CODE".
void puppet_answer_code(int code);
// 0 for a word that is not there.
uint64_t puppet_number(const char *word);

// The address of an allocation, by its slot; 0 for none.
uint64_t puppet_address(const char *slot);

// Commands about created and shared memory, in puppet_share.c.
extern const struct puppet_command puppet_share_commands[];

// Commands about contexts, code and reports, in puppet_context.c; the last has no name.
extern const struct puppet_command puppet_context_commands[];

#endif
