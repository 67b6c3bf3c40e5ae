# The library's accounting under both sanitizers and, with its tests of forks, closed descriptors,
# restarts and kills, once more whole under the address sanitizer. (ThreadSanitizer does not support
# threads after a fork.)
.PHONY: hosttest
hosttest:
	WEIR_HOST_BUILD=asan $(GO) test -count=1 ./cgo/hosttest

SANITIZE_TARGETS += hosttest
