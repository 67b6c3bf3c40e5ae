// drain.h: one look of the helper at a GPU that it attends to (attend.h).
#ifndef WEIR_DRAIN_H
#define WEIR_DRAIN_H

#include "timed.h"

// Looks at a GPU by its number, and says what is to be said. When to look again, by
// weir_busy_clock.
uint64_t weir_drain_step(struct weir_time *time, uint32_t gpu, uint64_t now_ns);

// Whether anything of what was launched there is not known to be done.
int weir_drain_is_outstanding(struct weir_time *time, uint32_t gpu);

// Says something of a GPU to the agent, without waiting. `lease` is the word. 0, or -errno.
int weir_attend_say(struct weir_time *time, enum weir_msg_type type, uint32_t gpu, uint32_t lease,
                    uint32_t waiting);

#endif
