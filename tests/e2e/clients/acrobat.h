// acrobat.h: what the files of the acrobat share.
#ifndef WEIR_E2E_ACROBAT_H
#define WEIR_E2E_ACROBAT_H

#include <stdint.h>

// An act: its words, the name first, NULL behind the last. It answers with one line.
struct act {
    const char *name;
    void (*run)(char **words);
};

__attribute__((format(printf, 1, 2))) void answer(const char *format, ...);
// "ok", or "error CODE".
void answer_code(int code);
// 0 for a word that is not there.
uint64_t number_of(const char *word);

// Everything that takes device memory; the last has no name.
extern const struct act memory_acts[];
// Contexts, code and limits; the last has no name.
extern const struct act context_acts[];
// One export of the driver each; the last has no name.
extern const struct act export_acts[];

// What a process has, by slot, and how it is given back: the driver's code.
typedef int give_back_fn(uint64_t handle, uint64_t bytes);
// Answers "ok SLOT", or the code where that is not 0.
void answer_slot(int code, give_back_fn *give_back, uint64_t handle, uint64_t bytes);
uint64_t handle_in(const char *slot);
uint64_t bytes_in(const char *slot);
// Forgets everything without giving it back, and the stream: their context has ended.
void forget_all(void);
void forget_stream(void);

#endif
