# The library's accounting under both sanitizers and, with its tests of forks, closed descriptors,
# restarts and kills, once more whole under the address sanitizer. (ThreadSanitizer does not support
# threads after a fork.)
.PHONY: hosttest
hosttest:
	WEIR_HOST_BUILD=asan $(GO) test -count=1 ./cgo/hosttest

SANITIZE_TARGETS += hosttest

# What an agent may send, with clang's libFuzzer. What it finds lands in $(BUILD)/fuzz-library.
.PHONY: fuzz-library
fuzz-library:
	@mkdir -p $(BUILD)/fuzz-library/corpus
	clang -std=gnu11 -D_GNU_SOURCE -O1 -g -pthread -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=undefined -o $(BUILD)/fuzz-library/fuzz cgo/hosttest/fuzz/fuzz.c \
	  $(filter-out %/main.c,$(wildcard cgo/hosttest/host/*.c)) $(wildcard cgo/*.c) \
	  $(wildcard cgo/*_amd64.S)
	$(BUILD)/fuzz-library/fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 \
	  -artifact_prefix=$(BUILD)/fuzz-library/ $(BUILD)/fuzz-library/corpus cgo/hosttest/fuzz/corpus

FUZZ_TARGETS += fuzz-library
