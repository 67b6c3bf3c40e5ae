// Machines that are divided from the beginning, and while they are up.

package sim

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// divided is a valid file whose card begins with these instances.
func divided(t *testing.T, instances string) string {
	return sample(t) + "\nmig_instances = " + instances + "\n"
}

func TestMachinesBeginDivided(t *testing.T) {
	machine, err := ParseMachine("divided.toml", []byte(divided(t, `["2g.12gb@2", "1g.6gb", "1g.6gb+me"]`)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Up(dir, machine); err != nil {
		t.Fatal(err)
	}
	books, err := Status(dir)
	if err != nil {
		t.Fatal(err)
	}
	mig := books.GPUs[0].MIG
	if mig == nil || !mig.Enabled || !mig.Pending || len(mig.Instances) != 3 {
		t.Fatalf("divided so: %+v", mig)
	}
	uuids := map[string]bool{}
	for i, want := range []MIGInstance{
		{ID: 3, Profile: "1g.6gb", Start: 0, Length: 1},
		{ID: 4, Profile: "1g.6gb+me", Start: 1, Length: 1},
		{ID: 2, Profile: "2g.12gb", Start: 2, Length: 2},
	} {
		got := mig.Instances[i]
		if got.ID != want.ID || got.Profile != want.Profile || got.Start != want.Start ||
			got.Length != want.Length || len(got.Devices) != 1 {
			t.Fatalf("instance %d is %+v, want %+v", i, got, want)
		}
		device := got.Devices[0]
		bytes := int64(5836<<20) / 64 * int64(want.Length)
		if device.Index != i || device.MemoryBytes != bytes || device.UsedBytes != 0 ||
			device.Name != "Simulated A30 24GB MIG "+want.Profile ||
			!strings.HasPrefix(device.UUID, "MIG-") || uuids[device.UUID] {
			t.Errorf("its device is %+v", device)
		}
		uuids[device.UUID] = true
	}
	if len(mig.Devices()) != 3 {
		t.Errorf("%d devices", len(mig.Devices()))
	}
}

func TestBadInstances(t *testing.T) {
	for instances, want := range map[string]string{
		`[]`:                       "is not a list of profiles",
		`"1g.6gb"`:                 "is not a list of profiles",
		`["1g.6gb@9"]`:             "is not a list of profiles",
		`["1g.6gb@"]`:              "is not a list of profiles",
		`["1g.6gb@-1"]`:            "is not a list of profiles",
		`[1]`:                      "is not a list of profiles",
		`["1g.5gb"]`:               `"1g.5gb" is no profile of A30-24GB; it has 1g.6gb, 1g.6gb+me,`,
		`["1g.6gb@4"]`:             "no room for 1g.6gb@4",
		`["2g.12gb@1"]`:            "no room for 2g.12gb@1",
		`["2g.12gb@0", "4g.24gb"]`: "no room for 4g.24gb beside those before it",
		`["1g.6gb@0", "1g.6gb@0"]`: "no room for 1g.6gb@0",
	} {
		_, err := ParseMachine("bad.toml", []byte(divided(t, instances)))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), ": mig_instances: ") {
			t.Errorf("%s: error %v does not say %q", instances, err, want)
		}
	}
	text, _ := spoil(t, divided(t, `["1g.6gb"]`), "mig", "")
	if _, err := ParseMachine("bad.toml", []byte(text)); err == nil ||
		!strings.Contains(err.Error(), "without the key mig") {
		t.Errorf("without a model: %v", err)
	}
}

func TestDivideWhileUp(t *testing.T) {
	machine, err := LoadMachine("a30")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Up(dir, machine); err != nil {
		t.Fatal(err)
	}
	running, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if _, err := running.CreateMIG(0, Instance{"1g.6gb", 0}); !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("an instance of a whole card: %v", err)
	}
	if err := running.SetMIG(0, true); err != nil {
		t.Fatal(err)
	}
	first, err := running.CreateMIG(0, Instance{"1g.6gb", 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := running.CreateMIG(0, Instance{"2g.12gb", 2}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("where another is: %v", err)
	}
	if _, err := running.CreateMIG(0, Instance{"3g.20gb", -1}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("of another card's profile: %v", err)
	}
	if err := running.SetMIG(0, false); !errors.Is(err, ErrMIGInUse) {
		t.Errorf("made whole with an instance: %v", err)
	}
	if err := running.DestroyMIG(0, 6); err != nil {
		t.Error(err)
	}
	if err := running.DestroyMIG(0, 6); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("twice: %v", err)
	}
	again, err := running.CreateMIG(0, Instance{"1g.6gb", 3})
	if err != nil || again != first {
		t.Errorf("the same instance is %s, then %s: %v", first, again, err)
	}
}
