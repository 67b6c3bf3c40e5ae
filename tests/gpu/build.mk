# What `make gpu-check` runs: the check itself, a program that looks for a GPU, one that measures, one that
# works, and clients of the whole-system tests.

GPU_DIR := tests/gpu
GPU_OUT := $(BUILD)/gpu
GPU_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror -I$(E2E_DIR) -Wl,-z,lazy
GPU_PROGRAMS := $(addprefix $(GPU_OUT)/,check cost probe swapper worker)
GPU_TARGETS := $(BUILD)/weir $(GPU_PROGRAMS) $(addprefix $(E2E_OUT)/,puppet troupe acrobat) \
  $(if $(WEIR_GPU_CHECK_SIMULATED),$(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1)

e2e: $(GPU_PROGRAMS)

$(GPU_OUT):
	mkdir -p $@

$(GPU_OUT)/check: $(wildcard $(GPU_DIR)/*.go tests/e2e/node/*.go agent/*/*.go) go.mod go.sum $(BUILD)/libweir.so \
  | $(GPU_OUT)
	$(GO) build -trimpath -buildvcs=false -tags $(GO_TAGS) -ldflags '$(GO_LDFLAGS)' -o $@ ./$(GPU_DIR)

$(addprefix $(GPU_OUT)/,cost swapper worker): $(GPU_OUT)/%: $(GPU_DIR)/programs/%.c $(E2E_HEADERS) $(E2E_DRIVER) | $(GPU_OUT)
	$(CC) $(GPU_CFLAGS) -pthread -o $@ $< $(E2E_DRIVER)

$(GPU_OUT)/probe: $(GPU_DIR)/programs/probe.c | $(GPU_OUT)
	$(CC) $(GPU_CFLAGS) -o $@ $< -ldl
