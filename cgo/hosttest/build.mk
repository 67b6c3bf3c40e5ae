# The library's accounting, its test program compiled plain and under the sanitizers.
.PHONY: hosttest
hosttest:
	$(GO) test ./cgo/hosttest

SANITIZE_TARGETS += hosttest
