// Tests of what tables say.

package main

import (
	"testing"

	"weir/agent/control"
)

func TestEnforced(t *testing.T) {
	for want, container := range map[string]control.Container{
		"yes":           {Enforced: true},
		"yes (library)": {Enforced: true, EnforcedBy: ptr(control.ByLibrary)},
		"yes (driver)":  {Enforced: true, EnforcedBy: ptr(control.ByDriver)},
		"yes (driver): only the driver holds process 7 (still)": {Enforced: true, EnforcedBy: ptr(control.ByDriver),
			Reason: "only the driver holds process 7 (still)"},
		"no":             {},
		"no: it is late": {Reason: "it is late"},
	} {
		if got := enforced(container); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
