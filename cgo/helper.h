// helper.h: the one thread of the library: connects, declares, hands out the agent's answers.
#ifndef WEIR_HELPER_H
#define WEIR_HELPER_H

#include "client.h"

// Starts the helper unless there is one. 0; or ENOTSUP, or what the host's pthread_create said:
// then the agent counts as absent, and whoever waits for it tries again.
int weir_helper_start(struct weir_state *state);

// Hands out what one message says. 0, WEIR_ENDED_BY_AGENT, or -EPROTO for one that is not due.
int weir_helper_dispatch(struct weir_state *state, const struct weir_incoming *incoming);

#endif
