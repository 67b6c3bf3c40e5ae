// How busy simulated GPUs are, as the simulated NVML tells it.

package device

import (
	"errors"
	"strings"
	"testing"
)

func TestUtilisation(t *testing.T) {
	simulate(t, "a100x4")
	devices := openSimulated(t)
	_, kill := startProgram(t, clientProgram, 1, 0, "3600000000000")
	gpus := devices.GPUs()
	for busy := 0.0; busy < 50; { // NVML's figure is of a second, most of which may have been before
		var err error
		if busy, err = devices.Utilisation(gpus[1].UUID); err != nil || busy < 0 || busy > 100 {
			t.Fatalf("a GPU at work: %g %% (%v)", busy, err)
		}
	}
	if busy, err := devices.Utilisation(gpus[0].UUID); err != nil || busy != 0 {
		t.Errorf("an idle GPU: %g %% (%v)", busy, err)
	}
	if err := devices.CheckUtilisation(gpus[0].UUID, 2, 80); err != nil {
		t.Errorf("slots by utilisation are refused: %v", err)
	}
	kill()
	if _, err := devices.Utilisation("GPU-0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no GPU: %v", err)
	}
	if err := devices.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := devices.Utilisation(gpus[0].UUID); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// MIG devices have none, so their slots cannot follow it.
func TestUtilisationOfMIGDevices(t *testing.T) {
	simulateChanged(t, map[string]string{"count": "count = 1", "numa_node": "numa_node = 0", "pcie_path": "", "links": "", "gpus": "", "[[nvlink]]": "",
		"mig": "mig = \"A100-40GB\"\nmig_instances = [\"3g.20gb\", \"1g.5gb@1\"]\n"})
	devices := openSimulated(t)
	uuid := devices.GPUs()[0].UUID
	if busy, err := devices.Utilisation(uuid); err == nil {
		t.Errorf("%g %%", busy)
	}
	err := devices.CheckUtilisation(uuid, 2, 80)
	if err == nil || !strings.HasPrefix(err.Error(), "utilisation_max = 80: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("slots by utilisation: %v", err)
	}
	for _, one := range []struct {
		slots int
		most  float64
	}{{1, 80}, {2, 0}} {
		if err := devices.CheckUtilisation(uuid, one.slots, one.most); err != nil {
			t.Errorf("%+v: %v", one, err)
		}
	}
}
