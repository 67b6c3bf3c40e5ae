// test_share.h: what tests of memory that processes share have in common: descriptors sent to each
// other, a context to start with, memory of device 0 that can be exported, and words in it. Calls
// must succeed.
#ifndef SIM_TEST_SHARE_H
#define SIM_TEST_SHARE_H

#include "../cuda_abi.h"

// Through a pair of sockets.
void send_fd(int socket, int fd);
int receive_fd(int socket);
// Such a pair, in numbers that spawn() leaves open.
void open_sockets(int sockets[2]);

CUmemAllocationProp shareable(int device);
CUmemGenericAllocationHandle create_on(int device, size_t bytes);
// Reserves, maps, and lets the device read and write.
CUdeviceptr map_all(CUmemGenericAllocationHandle handle, size_t bytes);

// cuInit, and device 0's primary context made current.
CUcontext start_context(void);

uint32_t word_at(CUdeviceptr at);
void put_word(CUdeviceptr at, uint32_t word);

#endif
