# The PTX interpreter: objects that the simulated driver links ($(SIM_PTX_OBJS), with -lm), its
# tests, their sanitized runs and the fuzz target. Floats must neither be contracted nor evaluated in
# another rounding mode than the instruction's.

SIM_PTX_SOURCES := $(wildcard tests/sim/ptx/*.c)
SIM_PTX_HEADERS := $(wildcard tests/sim/ptx/*.h tests/sim/ptx/*.def)
SIM_PTX_OBJS := $(patsubst tests/sim/ptx/%.c,$(BUILD)/sim/ptx/%.o,$(SIM_PTX_SOURCES))
SIM_PTX_CFLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -g -fPIC -fvisibility=hidden \
	-ffp-contract=off -frounding-math -fno-math-errno

$(SIM_PTX_OBJS): $(BUILD)/sim/ptx/%.o: tests/sim/ptx/%.c $(SIM_PTX_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_PTX_CFLAGS) -c -o $@ $<
