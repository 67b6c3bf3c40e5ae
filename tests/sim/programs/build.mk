# Programs that compute on the (simulated) GPU and check their results: compute, in C through the driver
# API with the committed PTX, and the <<<>>> programs, which clang compiles, through libweircudart.so.

PROGRAMS_DIR := tests/sim/programs
PROGRAMS_OUT := $(BUILD)/sim/programs
PROGRAMS_CUDA := $(if $(PTX_CLANG),$(patsubst $(PROGRAMS_DIR)/%.cu,$(PROGRAMS_OUT)/%,\
  $(wildcard $(PROGRAMS_DIR)/*.cu)))
PROGRAMS_HEADERS := $(wildcard $(PROGRAMS_DIR)/*.h) tests/sim/cudart/weir_cuda.h

TEST_TARGETS += programs-test

$(PROGRAMS_OUT)/compute: $(PROGRAMS_DIR)/compute.c $(PROGRAMS_DIR)/reference.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g -ffp-contract=off -Wall -Wextra -Werror -I. -o $@ $< \
	  -ldl -lm

$(PROGRAMS_OUT)/%.ptx: $(PROGRAMS_DIR)/%.cu $(wildcard tests/sim/kernels/*.cu) $(PROGRAMS_HEADERS)
	@mkdir -p $(@D)
	$(PTX_CLANG) $(PTX_DEVICE_FLAGS) -O2 -o $@ $<

# The PTX itself is what clang embeds: libweircudart.so gives it to the driver as it is.
$(PROGRAMS_OUT)/%.o: $(PROGRAMS_DIR)/%.cu $(PROGRAMS_OUT)/%.ptx
	$(PTX_CLANG) $(PTX_CUDA_FLAGS) -O2 -g -ffp-contract=off -fno-exceptions -fno-rtti \
	  --cuda-host-only -Xclang -fcuda-include-gpubinary -Xclang $(PROGRAMS_OUT)/$*.ptx -c -o $@ $<

$(PROGRAMS_CUDA): $(PROGRAMS_OUT)/%: $(PROGRAMS_OUT)/%.o $(BUILD)/sim/libweircudart.so
	$(CC) -o $@ $< -L$(BUILD)/sim -lweircudart -Wl,-rpath,'$$ORIGIN/..' -pthread -lm

.SECONDARY: $(PROGRAMS_CUDA:%=%.ptx) $(PROGRAMS_CUDA:%=%.o)

# Everything on a simulated machine of its own.
.PHONY: programs-test
programs-test: $(PROGRAMS_OUT)/compute $(PROGRAMS_CUDA) $(BUILD)/weir $(BUILD)/sim/libcuda.so.1
	$(PROGRAMS_DIR)/test.sh $(PROGRAMS_OUT)/compute $(PROGRAMS_CUDA)
ifeq ($(PTX_CLANG),)
	@echo 'skip programs: the <<<>>> programs: clang is not installed'
endif
