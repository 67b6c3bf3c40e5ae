// pool.h: the memory pools of this process.
//
// Charged are the pools that the program makes on a device and the devices' default ones. Pools in
// host memory are not, nor are those imported from another process, out of which nothing can be
// allocated.
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include "reserve.h"

// Makes a pool known that was not seen when it was made: a device's default one, or one that is not
// charged. 0; ENOSPC, ENODEV where the device is not known, or EDEADLK.
int weir_pool_know(struct weir_state *state, CUmemoryPool pool);

// The reserve of a pool and the device that it is on, made known if need be; WEIR_NO_RESERVE for
// one that is not charged.
uint32_t weir_pool_find(struct weir_state *state, CUmemoryPool pool, uint32_t *gpu);

#endif
