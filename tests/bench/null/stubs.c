// stubs.c: every export of the driver as a function that returns success, its own address each.
//
// They are weak: driver.c and procaddress.c define those that must give something back.
#include "null.h"

#define EXPORT(export, asked, since, streams)                                                      \
    NULL_API __attribute__((weak)) int export(void) {                                              \
        NULL_COUNT(export);                                                                        \
        return CU_OK;                                                                              \
    }
#include "exports.h"
