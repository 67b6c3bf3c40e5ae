# The null driver and the benchmark programs, in build/bench/.

BENCH_DIR := tests/bench
BENCH_OUT := $(BUILD)/bench
BENCH_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror -I$(BENCH_DIR)

BENCH_TARGETS += $(BENCH_OUT)/libcuda.so.1 $(BENCH_OUT)/calls $(BENCH_OUT)/start $(BENCH_OUT)/overhead
BUILD_TARGETS += $(BENCH_OUT)/libcuda.so.1

$(BENCH_OUT):
	mkdir -p $@

$(BENCH_OUT)/libcuda.so.1: $(wildcard $(BENCH_DIR)/null/*) cgo/symbols.def | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 \
	  -Wl,-z,now,-z,defs -o $@ $(wildcard $(BENCH_DIR)/null/*.c)

$(BENCH_OUT)/calls: $(BENCH_DIR)/calls.c $(BENCH_DIR)/driver_calls.h $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN' -lpthread

$(BENCH_OUT)/start: $(BENCH_DIR)/start.c $(BENCH_DIR)/driver_calls.h | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/overhead: $(BENCH_DIR)/overhead.c $(BENCH_DIR)/children.c $(BENCH_DIR)/children.h \
  $(BENCH_DIR)/driver_calls.h | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm
