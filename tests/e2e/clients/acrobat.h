// acrobat.h: what the files of the acrobat share.
#ifndef WEIR_E2E_ACROBAT_H
#define WEIR_E2E_ACROBAT_H

#include <stddef.h>
#include <stdint.h>

enum { GPUS_MAX = 2 };

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
// "ok" and the bytes in hexadecimal digits, or "error CODE"; and such bytes read again.
void answer_bytes(int code, const void *from, size_t bytes);
void bytes_of(void *to, size_t bytes, const char *text);

// The device that acts are for, below GPUS_MAX. Another one's context becomes current if it has
// one.
extern int gpu_now;
void use_device(int gpu);

// Everything that takes device memory; the last has no name.
extern const struct act memory_acts[];
// Memory in stream order, and its pools; the last has no name.
extern const struct act pool_acts[];
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
// Forgets everything of the device without giving it back, and its stream: their context has ended.
void forget_all(void);
void forget_stream(void);
// Of a word "0" the default stream, else one of the device's own, made at the first use.
void *stream_of(const char *word);

#endif
