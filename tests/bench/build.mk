# The null driver and the benchmark programs, in build/bench/.

BENCH_DIR := tests/bench
BENCH_OUT := $(BUILD)/bench
BENCH_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror
BENCH_OVERHEAD := $(BENCH_DIR)/overhead
BENCH_HEADERS := $(BENCH_OVERHEAD)/driver_calls.h tests/e2e/clients/cuda.h

BENCH_TARGETS += $(addprefix $(BENCH_OUT)/,libcuda.so.1 calls start overhead crowd sim_launch managed gate containers)

unit: $(BENCH_TARGETS)

$(BENCH_OUT):
	mkdir -p $@

$(BENCH_OUT)/libcuda.so.1: $(wildcard $(BENCH_DIR)/null/*) cgo/symbols.def | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -shared \
	  -Wl,-soname,libcuda.so.1 -Wl,-z,now,-z,defs -o $@ $(wildcard $(BENCH_DIR)/null/*.c)

$(BENCH_OUT)/calls: $(addprefix $(BENCH_OVERHEAD)/,calls.c variants.c measure.c measure.h) \
  $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN' -lpthread

$(BENCH_OUT)/start: $(BENCH_OVERHEAD)/start.c $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/overhead: $(BENCH_OVERHEAD)/overhead.c $(BENCH_OVERHEAD)/children.c $(BENCH_OVERHEAD)/children.h \
  $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm

$(BENCH_OUT)/crowd: $(BENCH_OVERHEAD)/crowd.c $(BENCH_OVERHEAD)/children.c $(BENCH_OVERHEAD)/children.h \
  $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm

$(BENCH_OUT)/sim_launch: $(BENCH_OVERHEAD)/sim_launch.c $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_OUT)/libcuda.so.1

# On the simulated GPU; the loader finds that by LD_LIBRARY_PATH.
$(BENCH_OUT)/managed: $(wildcard $(BENCH_DIR)/managed/*) $(SIM_MACHINE_OBJECTS_plain) \
  $(BUILD)/sim/libcuda.so.1 | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c %.o,$^) $(BUILD)/sim/libcuda.so.1 -lm

$(BENCH_OUT)/gate: $(wildcard $(BENCH_DIR)/time/*) $(addprefix $(BENCH_OVERHEAD)/,measure.c measure.h) \
  cgo/gate.c cgo/gate.h cgo/sys.h $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/containers: $(wildcard $(BENCH_DIR)/containers/*.go) | $(BENCH_OUT)
	CGO_ENABLED=0 $(GO_BUILD) -o $@ ./$(BENCH_DIR)/containers
