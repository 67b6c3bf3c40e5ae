# The null driver and the benchmark programs, in build/bench/.

BENCH_DIR := tests/bench
BENCH_OUT := $(BUILD)/bench
BENCH_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror
BENCH_OVERHEAD := $(BENCH_DIR)/overhead
BENCH_HEADERS := $(BENCH_OVERHEAD)/driver_calls.h tests/e2e/clients/cuda.h

BENCH_TARGETS += $(addprefix $(BENCH_OUT)/,libcuda.so.1 calls start overhead sim_launch)

unit: $(BENCH_TARGETS)

$(BENCH_OUT):
	mkdir -p $@

$(BENCH_OUT)/libcuda.so.1: $(wildcard $(BENCH_DIR)/null/*) cgo/symbols.def | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 \
	  -Wl,-z,now,-z,defs -o $@ $(wildcard $(BENCH_DIR)/null/*.c)

$(BENCH_OUT)/calls: $(BENCH_OVERHEAD)/calls.c $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN' -lpthread

$(BENCH_OUT)/start: $(BENCH_OVERHEAD)/start.c $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/overhead: $(BENCH_OVERHEAD)/overhead.c $(BENCH_OVERHEAD)/children.c $(BENCH_OVERHEAD)/children.h \
  $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm

$(BENCH_OUT)/sim_launch: $(BENCH_OVERHEAD)/sim_launch.c $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_OUT)/libcuda.so.1
