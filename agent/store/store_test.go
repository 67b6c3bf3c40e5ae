package store

// Tests of what is kept: it comes back whole, or is reported as damaged.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const boot = "01234567-89ab-cdef-0123-456789abcdef"

func pointer[T any](v T) *T { return &v }

func sampleContainers() []Container {
	return []Container{
		{
			ID: "0123456789ab", Name: "trainer", Identity: "path", PID: 42, Start: 4711, UID: 1000,
			Command: []string{"python", "train.py"}, Started: time.Unix(1_800_000_000, 5).UTC(),
			Caps: Caps{MemoryBytes: pointer(int64(8 << 30)), Weight: pointer(2.0)},
		},
		{ID: "0123456789ac", Name: "free", Identity: "path", PID: 43, Started: time.Unix(1, 0).UTC()},
	}
}

func TestContainersSurvive(t *testing.T) {
	dir := t.TempDir()
	want := sampleContainers()
	if err := NewContainers(dir, boot).Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := NewContainers(dir, boot).Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers differ (-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

// TestPathsSurvive: whatever their bytes are.
func TestPathsSurvive(t *testing.T) {
	const odd = "/b/\xff\xfe"
	want := []Container{{ID: "0123456789ab", Name: "web", Command: []string{}, OCI: &OCI{ID: "web", Bundle: odd, Root: odd,
		Image: "i:1", Cgroup: &Cgroup{"devices", odd}}}}
	dir := t.TempDir()
	if err := NewContainers(dir, boot).Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := NewContainers(dir, boot).Load()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestContainersOfAnEarlierBoot: a crash of the machine may have left any part of the file.
func TestContainersOfAnEarlierBoot(t *testing.T) {
	dir := t.TempDir()
	earlier := NewContainers(dir, boot)
	if err := earlier.Save(sampleContainers()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(earlier.path, 100); err != nil {
		t.Fatal(err)
	}
	if got, err := NewContainers(dir, "another boot").Load(); len(got) != 0 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestNoContainersYet(t *testing.T) {
	got, err := NewContainers(t.TempDir(), boot).Load()
	if len(got) != 0 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDamagedContainersAreRefused(t *testing.T) {
	c := NewContainers(t.TempDir(), boot)
	if err := c.Save(sampleContainers()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) string { return strings.Replace(string(whole), from, to, 1) }
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             string(whole[:len(whole)/2]),
		"garbage":         "\x00\x01\x02",
		"appended":        string(whole) + "x",
		"of another kind": `{"schema": 1, "containers": 7}`,
		"newer schema":    change(`"schema":1`, `"schema":2`),
		"bad id":          change("0123456789ab", "../../../etc"),
		"no name":         change(`"trainer"`, `""`),
		"bad pid":         change(`"pid":42`, `"pid":0`),
		"negative cap":    change("8589934592", "-1"),
		"same id twice":   change("0123456789ac", "0123456789ab"),
		"same name twice": change(`"free"`, `"trainer"`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := c.Load()
			if err == nil {
				t.Fatalf("accepted as %v", got)
			}
			if !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("the error names neither the file nor the way out: %v", err)
			}
		})
	}
}

func sampleRecord() Record {
	return Record{
		Container: "0123456789ab", PID: 42, Start: 4711, UID: 1000, Image: 99, Session: 7, Inode: 12,
		Since: time.Unix(1_800_000_000, 5), ABI: 1, Program: "python3", Library: "1.0",
		GPUs: []Grant{
			{UUID: [16]byte{1}, Row: Row{Bytes: 5, Moves: 1 << 40, Move: -3}, Movable: 6 << 20}, {UUID: [16]byte{2}},
		},
	}
}

// newCredits makes a file of records for the GPUs of sampleRecord.
func newCredits(t testing.TB, path string) *Credits {
	t.Helper()
	credits, err := NewCredits(path, boot, [][16]byte{{1}, {2}})
	if err == nil {
		err = credits.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { credits.Close() })
	return credits
}

func TestRecordsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credits")
	credits := newCredits(t, path)
	check := func(what string, want ...Record) {
		t.Helper()
		got, damaged := LoadCredits(path, boot)
		if diff := cmp.Diff(want, got); diff != "" || damaged != nil {
			t.Errorf("%s: %v; records differ (-want +got):\n%s", what, damaged, diff)
		}
	}
	check("in the beginning")
	want := sampleRecord()
	record, err := credits.Create(want)
	if err != nil {
		t.Fatal(err)
	}
	want.GPUs[1].Row, want.GPUs[1].Movable = Row{Bytes: 1 << 50, Moves: 7, Move: 512}, 1<<50
	if err := record.Set(1, want.GPUs[1].Row); err != nil {
		t.Fatal(err)
	}
	if err := record.SetMovable(1, want.GPUs[1].Movable); err != nil {
		t.Fatal(err)
	}
	check("after a change", want)

	next := sampleRecord()
	next.Session = 8
	replaced, err := credits.Create(next)
	if err != nil {
		t.Fatal(err)
	}
	if record.Set(0, Row{Bytes: 77}) == nil || record.SetMovable(0, 77) == nil || record.Remove() == nil {
		t.Error("a former record reaches the new one")
	}
	check("after a replacement", next)
	if err := replaced.Remove(); err != nil {
		t.Fatal(err)
	}
	check("after the removal")
	if _, err := credits.Create(want); err != nil {
		t.Fatal(err)
	}
	if size := fileSize(t, path); size > slotsHeadBytes+256 {
		t.Errorf("a place is not used again: %d bytes", size)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestNewCreditsReplaceOlderOnes in one step, with another list of GPUs.
func TestNewCreditsReplaceOlderOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credits")
	if _, err := newCredits(t, path).Create(sampleRecord()); err != nil {
		t.Fatal(err)
	}
	fresh, err := NewCredits(path, boot, [][16]byte{{2}, {3}, {1}})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	moved := sampleRecord()
	moved.GPUs = []Grant{{UUID: [16]byte{2}}, {UUID: [16]byte{3}}, moved.GPUs[0]}
	if _, err := fresh.Create(moved); err != nil {
		t.Fatal(err)
	}
	if got, _ := LoadCredits(path, boot); len(got) != 1 || len(got[0].GPUs) != 2 {
		t.Errorf("before the commit: %+v", got)
	}
	if err := fresh.Commit(); err != nil {
		t.Fatal(err)
	}
	got, damaged := LoadCredits(path, boot)
	if diff := cmp.Diff([]Record{moved}, got); diff != "" || damaged != nil {
		t.Errorf("%v; records differ (-want +got):\n%s", damaged, diff)
	}
}

func TestRecordBounds(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewCredits(filepath.Join(dir, "a"), boot, make([][16]byte, RecordGPUs+1)); err == nil {
		t.Error("records of too many GPUs were made")
	}
	most, err := NewCredits(filepath.Join(dir, "b"), boot, make([][16]byte, RecordGPUs))
	if err != nil {
		t.Fatal(err)
	}
	defer most.Close()
	if most.slots.size > 4096 || 4096%most.slots.size != 0 {
		t.Errorf("places of %d bytes lie across pages", most.slots.size)
	}
	if _, err := most.Create(sampleRecord()); err == nil {
		t.Error("a record of other GPUs was written")
	}
	credits := newCredits(t, filepath.Join(dir, "c"))
	credits.slots.used = CreditsMax
	if _, err := credits.Create(sampleRecord()); !errors.Is(err, errFull) {
		t.Errorf("one record too many: %v", err)
	}
}

func TestRow(t *testing.T) {
	for _, c := range []struct {
		row   Row
		moves uint64
		want  uint64
		known bool
	}{
		{Row{Bytes: 100, Moves: 4}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 5, 70, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 5, 130, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 6, 130, false},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 3, 100, false},
	} {
		if got, known := c.row.After(c.moves); got != c.want || known != c.known {
			t.Errorf("%+v at %d: %d, %v", c.row, c.moves, got, known)
		}
	}
}

func TestDamagedRecordsAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credits")
	credits := newCredits(t, path)
	other := sampleRecord()
	other.PID++
	for _, r := range []Record{sampleRecord(), other} {
		if _, err := credits.Create(r); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range creditHeadBytes {
		changed := append([]byte(nil), whole...)
		changed[slotsHeadBytes+at] ^= 0x10
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged := LoadCredits(path, boot)
		if len(got) != 1 || got[0].PID != other.PID || len(damaged) != 1 {
			t.Fatalf("byte %d changed: %d records, damaged: %v", at, len(got), damaged)
		}
	}
	for name, content := range map[string][]byte{"empty": {}, "cut": whole[:100]} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged := LoadCredits(path, boot)
		if len(got) != 0 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), path) {
			t.Errorf("%s: %d records; the error does not name the file: %v", name, len(got), damaged)
		}
	}
	if got, _ := LoadCredits(filepath.Join(t.TempDir(), "none"), boot); len(got) != 0 {
		t.Errorf("records without a file: %v", got)
	}
}

// TestRecordsOfAnotherVersion: they are not read, which is said where there are any.
func TestRecordsOfAnotherVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credits")
	credits := newCredits(t, path)
	older := func() []error {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[7] = '2'
		if err := os.WriteFile(path+".older", whole, 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged := LoadCredits(path+".older", boot)
		if len(got) > 0 {
			t.Errorf("%d records", len(got))
		}
		return damaged
	}
	if damaged := older(); damaged != nil {
		t.Errorf("without records: %v", damaged)
	}
	if _, err := credits.Create(sampleRecord()); err != nil {
		t.Fatal(err)
	}
	if damaged := older(); len(damaged) != 1 || !strings.Contains(damaged[0].Error(), "start the programs again") {
		t.Errorf("with a record: %v", damaged)
	}
}

func TestRecordsOfEarlierBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credits")
	if _, err := newCredits(t, path).Create(sampleRecord()); err != nil {
		t.Fatal(err)
	}
	if got, damaged := LoadCredits(path, "another boot"); len(got) != 0 || damaged != nil {
		t.Errorf("got %v, %v", got, damaged)
	}
}

func BenchmarkCreateAndRemove(b *testing.B) {
	credits := newCredits(b, filepath.Join(b.TempDir(), "credits"))
	for b.Loop() {
		record, err := credits.Create(sampleRecord())
		if err == nil {
			err = record.Remove()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	record, err := newCredits(b, filepath.Join(b.TempDir(), "credits")).Create(sampleRecord())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := record.Set(1, Row{Bytes: 4096}); err != nil {
			b.Fatal(err)
		}
	}
}
