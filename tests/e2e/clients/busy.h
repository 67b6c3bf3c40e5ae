// busy.h: what the files of the program `busy` share: a program that measures its own busy GPU time
// as the library is meant to, calling cgo/busy.h around each launch.
#ifndef WEIR_E2E_BUSY_H
#define WEIR_E2E_BUSY_H

#include <stdint.h>
#include <time.h>

#include "../../../cgo/busy.h"

// The driver's functions, declared in their own types.
extern cuInit_fn cuInit;
extern cuDevicePrimaryCtxRetain_fn cuDevicePrimaryCtxRetain;
extern cuDevicePrimaryCtxReset_v2_fn cuDevicePrimaryCtxReset_v2;
extern cuCtxSynchronize_fn cuCtxSynchronize;
extern cuStreamSynchronize_fn cuStreamSynchronize;
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(void **function, CUmodule module, const char *name);
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                        void **extra);

enum { STREAMS_MAX = 16, THREADS_MAX = 8, NON_BLOCKING = 1 };

// The program's settings, KEY=VALUE; see busy.c.
struct mix {
    uint64_t cost_ns, gap_us, ms;
    uint64_t streams, threads, burst, sync, graph, keys, vary, trouble, grids, block_ns;
};

extern struct weir_busy *busy;
extern CUcontext context;
extern void *spin;

// Ends the program unless the code is 0.
void need(CUresult code, const char *what);

uint64_t now_ns(void);

// Loads the kernel into the current context.
void *load_spin(void);

// Starts the thread that stands for the library's helper.
void start_helper(void);

// A kernel of so long, whose key is `key`; a graph.
CUresult launch(CUstream stream, uint64_t cost_ns, struct weir_busy_kind kind);
void launch_graph(CUstream stream, CUgraphExec exec);
void sync_stream(CUstream stream);

// busy_trouble.c: captures, streams that come and go, and resets of the context, until told to
// stop.
void make_trouble(const struct mix *mix, uint64_t until_ns);

// busy_null.c: what a launch costs over the null driver, and how many calls are made.
int measure_cost(unsigned threads);

#endif
