// exports.S: the driver's names that the library exports, one for each HOOK row of symbols.def, each
// a jump to its wrapper. A program that is linked with the driver is bound to them.

#if defined(__x86_64__)
#define JUMP jmp
#else
#define JUMP b
#endif

#define HOOK(export, asked, since, streams, class)                                                 \
    .globl export; .type export, %function; export: JUMP weir_##export; .size export, . - export;
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)

    .text
#include "symbols.def"

    .section .note.GNU-stack, "", %progbits
