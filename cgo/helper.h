// helper.h: the one thread of the library: connects, declares, hands out the agent's answers.
#ifndef WEIR_HELPER_H
#define WEIR_HELPER_H

#include "state.h"

// Starts the helper unless there is one. 0; or ENOTSUP, or what the host's pthread_create said:
// then the agent counts as absent, and whoever waits for it tries again.
int weir_helper_start(struct weir_state *state);

#endif
