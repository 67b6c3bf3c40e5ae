package store

// Tests of the file of holds.

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testHold(i int) Hold {
	return Hold{
		Key: [32]byte{1: byte(i), 2: byte(i >> 8)}, Home: "0123456789ab", UUID: [16]byte{15: byte(i)},
		Bytes: uint64(i) << 20, Exported: i%2 == 0, Container: "ba9876543210", PID: 1 + i,
		Start: uint64(i) * 7, Exporter: i%3 == 0,
	}
}

func mustOpenShares(t interface {
	Helper()
	Fatal(...any)
}, path, boot string) (*Shares, map[int]Hold) {
	t.Helper()
	s, holds, damaged, err := OpenShares(path, boot)
	if err != nil || len(damaged) > 0 {
		t.Fatal(err, damaged)
	}
	return s, holds
}

// TestSharesModel compares the file, opened again now and then, with a map.
func TestSharesModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shares")
	rapid.Check(t, func(t *rapid.T) {
		os.Remove(path)
		s, _ := mustOpenShares(t, path, "boot")
		model := map[int]Hold{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				h := testHold(rapid.IntRange(0, 1000).Draw(t, "hold"))
				place, err := s.Add(h)
				if _, taken := model[place]; err != nil || taken {
					t.Fatalf("place %d, taken %v: %v", place, taken, err)
				}
				model[place] = h
			},
			"set": func(t *rapid.T) {
				for place := range model {
					h := testHold(rapid.IntRange(0, 1000).Draw(t, "hold"))
					if err := s.Set(place, h); err != nil {
						t.Fatal(err)
					}
					model[place] = h
					break
				}
			},
			"remove": func(t *rapid.T) {
				for place := range model {
					if err := s.Remove(place); err != nil {
						t.Fatal(err)
					}
					delete(model, place)
					break
				}
			},
			"open again": func(t *rapid.T) {
				s.Close() // or not: a killed agent does not either
				var holds map[int]Hold
				s, holds = mustOpenShares(t, path, "boot")
				if diff := cmp.Diff(model, holds); diff != "" {
					t.Fatal(diff)
				}
			},
		})
		s.Close()
	})
}

func TestSharesOfEarlierBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shares")
	s, _ := mustOpenShares(t, path, "one")
	if _, err := s.Add(testHold(1)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s, holds := mustOpenShares(t, path, "two")
	defer s.Close()
	if len(holds) > 0 {
		t.Errorf("holds of an earlier boot: %v", holds)
	}
}

func TestSharesDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shares")
	s, _ := mustOpenShares(t, path, "boot")
	for i := range 3 {
		if _, err := s.Add(testHold(i)); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"a byte":  func(b []byte) []byte { b[slotsHeadBytes+128+20] ^= 1; return b },
		"the end": func(b []byte) []byte { return b[:len(b)-9] },
		"all":     func(b []byte) []byte { return b[:10] },
	} {
		if err := os.WriteFile(path, spoil(append([]byte(nil), content...)), 0o600); err != nil {
			t.Fatal(err)
		}
		s, holds, damaged, err := OpenShares(path, "boot")
		if err != nil {
			t.Fatal(err)
		}
		if len(damaged) != 1 || len(holds) > 2 {
			t.Errorf("%s spoilt: holds %v, damaged %v", name, holds, damaged)
		}
		s.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Fatal(err)
	}
	s, _, damaged, err := OpenShares(path, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || len(damaged) != 1 {
		t.Errorf("a link was followed: %v, %v, damaged %v", info.Mode(), err, damaged)
	}
}

func TestSharesFull(t *testing.T) {
	s, _ := mustOpenShares(t, filepath.Join(t.TempDir(), "shares"), "boot")
	defer s.Close()
	s.slots.used = SharesMax - 1
	if place, err := s.Add(testHold(1)); place != SharesMax-1 || err != nil {
		t.Errorf("the last place: %d, %v", place, err)
	}
	if _, err := s.Add(testHold(2)); !errors.Is(err, errFull) {
		t.Errorf("one more: %v", err)
	}
	if err := s.Remove(SharesMax - 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(testHold(3)); err != nil {
		t.Errorf("in a freed place: %v", err)
	}
}
