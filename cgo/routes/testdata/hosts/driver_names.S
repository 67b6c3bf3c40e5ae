// driver_names.S: all names of symbols.def as functions that answer 0 whatever they are called with.
// They are weak: driver.c defines some of them anew.

#if defined(__x86_64__)
#define ANSWER xorl %eax, %eax
#else
#define ANSWER mov w0, #0
#endif

#define EMPTY(export)                                                                              \
    .balign 16; .weak export; .type export, %function; export: ANSWER; ret;                        \
    .size export, . - export;
#define HOOK(export, asked, since, streams, class) EMPTY(export)
#define LATER(export, asked, since, streams, class, waits) EMPTY(export)
#define PASS(export, asked, since, streams, class) EMPTY(export)

    .text
#include "symbols.def"

    .section .note.GNU-stack, "", %progbits
