// log.h: lines for a person who looks for a fault; silent unless WEIR_LOG names a file.
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "state.h"

// Appends "weir PID: text: number". Opens and closes the file each time: no descriptor is kept in
// the host, and one that is in nobody's way is not there to be closed by it.
void weir_log(const struct weir_state *state, const char *text, int64_t number);

#endif
