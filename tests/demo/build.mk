# The programs of `make demo`, in build/demo/. They find the driver at run time and carry their
# kernels as PTX.

DEMO_DIR := tests/demo
DEMO_OUT := $(BUILD)/demo
DEMO_KERNELS := tests/sim/kernels
DEMO_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror -I$(DEMO_DIR) \
  -DDEMO_PTX_VECTOR_ADD='"$(DEMO_KERNELS)/vector_add.ptx"' \
  -DDEMO_PTX_MATRIX_PRODUCT='"$(DEMO_KERNELS)/matrix_product.ptx"' \
  -DDEMO_PTX_SPIN='"$(DEMO_KERNELS)/spin.ptx"'

DEMO_PROGRAMS := $(addprefix $(DEMO_OUT)/,trainer inference hog)
# All that the demo uses beside the binary: less than `make build` makes.
DEMO_TARGETS := $(DEMO_PROGRAMS) $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1

BUILD_TARGETS += $(DEMO_PROGRAMS)

$(DEMO_OUT):
	mkdir -p $@

$(DEMO_PROGRAMS): $(DEMO_OUT)/%: $(DEMO_DIR)/%.c $(DEMO_DIR)/gpu.c \
  $(DEMO_DIR)/gpu.h $(addprefix $(DEMO_KERNELS)/,vector_add.ptx matrix_product.ptx spin.ptx) | $(DEMO_OUT)
	$(CC) $(DEMO_CFLAGS) -o $@ $< $(DEMO_DIR)/gpu.c -ldl
