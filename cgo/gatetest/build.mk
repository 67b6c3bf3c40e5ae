# The gate's tests, with more torture than in the unit tests.
.PHONY: gate-torture
gate-torture:
	$(GO) test -count=1 -run 'Torture|Barrier' ./cgo/gatetest -torment 2s

SANITIZE_TARGETS += gate-torture
