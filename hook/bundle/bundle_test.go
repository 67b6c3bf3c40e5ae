package bundle

// Tests of what is found in bundles, and of the replacement of specifications.

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/agent/control/ociapi"
)

// make writes a bundle with a specification and a root file system.
func write(t *testing.T, dir, spec string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, "rootfs", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(spec), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestRequest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "io.containerd.runtime.v2.task", "default", "web")
	write(t, dir, `{"root":{"path":"rootfs"},"process":{"args":["serve","-p"]},"annotations":{"weir/memory":"1GiB","weir/injected":"y","a":"b"}}`,
		map[string]string{"etc/ld.so.preload": "/a.so\n"})
	b, err := Open(dir, "", "web", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Request()
	if err != nil {
		t.Fatal(err)
	}
	want := ociapi.Container{ID: "web", Bundle: dir, Name: "web", Namespace: "default", Root: filepath.Join(dir, "rootfs"),
		Command: []string{"serve", "-p"}, Preload: "/a.so\n", Annotations: map[string]string{"weir/memory": "1GiB"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !b.Asks() || !b.Concerns() {
		t.Error("it asks, and weir says it does not")
	}
}

func TestPreload(t *testing.T) {
	base := t.TempDir()
	source := filepath.Join(base, "theirs")
	if err := os.WriteFile(source, []byte("/mounted.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mounts string
		files  map[string]string
		want   string
		fails  bool
	}{
		"none":           {`[]`, nil, "", false},
		"the image's":    {`[]`, map[string]string{"etc/ld.so.preload": "/i.so"}, "/i.so", false},
		"a directory":    {`[]`, map[string]string{"etc/ld.so.preload/x": ""}, "", false},
		"/etc is a file": {`[]`, map[string]string{"etc": ""}, "", false},
		"a mounted one": {`[{"destination":"/etc/ld.so.preload","source":"` + source + `"}]`,
			map[string]string{"etc/ld.so.preload": "/i.so"}, "/mounted.so\n", false},
		"a mounted one that is not there": {`[{"destination":"/etc/ld.so.preload","source":"` + base + `/none"}]`, nil, "", true},
		"a mounted device":                {`[{"destination":"/etc/ld.so.preload","source":"/dev/zero"}]`, nil, "", true},
		"too much": {`[]`, map[string]string{
			"etc/ld.so.preload": string(make([]byte, ociapi.PreloadBytesMax+1))}, "", true},
	} {
		dir := t.TempDir()
		write(t, dir, `{"root":{"path":"rootfs"},"mounts":`+test.mounts+`}`, test.files)
		b, err := Open(dir, "", "web", false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Request()
		if got.Preload != test.want || (err != nil) != test.fails || got.FixedImage {
			t.Errorf("%s: %q, %v", name, got.Preload, err)
		}
	}
}

func TestConcerns(t *testing.T) {
	for spec, want := range map[string]bool{
		`{}`: false,
		`{"annotations":{"weir/memory.other":"1GiB"}}`:                                                                             true, // a mistake
		`{"annotations":{"weir/injected":"x"}}`:                                                                                    false,
		`{"annotations":{"weir/memory.other":"1GiB","io.kubernetes.cri.container-type":"container"}}`:                              false,
		`{"annotations":{"weir/memory.web":"1GiB"}}`:                                                                               true,
		`{"annotations":{"weir/memroy":"1GiB"}}`:                                                                                   true,
		`{"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`:                                                                          true,
		`{"annotations":{"weir/memory":"1GiB","io.kubernetes.cri.container-type":"sandbox"}}`:                                      true,
		`{"annotations":{"weir/memory":"1GiB","io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"web"}}`: false,
		`{"linux":{"resources":{"devices":[{"allow":true,"access":"rwm"}]}}}`:                                                      true,
		`{"annotations":{"weir/memory.web":"1GiB","io.kubernetes.cri.container-name":"db"}}`:                                       false,
		`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]},"annotations":{"x/memory.other":"1GiB","x/y":"1"}}`:                     false,
	} {
		dir := t.TempDir()
		write(t, dir, spec, nil)
		b, err := Open(dir, "", "web", false)
		if err != nil || b.Concerns() != want {
			t.Errorf("%s: %v, %v", spec, !want, err)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, `{}`, nil)
	b, err := Open(dir, "", "web", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write([]byte(`{"new":1}`)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil || string(text) != `{"new":1}` {
		t.Errorf("%s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", path); err != nil {
		t.Fatal(err)
	}
	if err := b.Write([]byte(`{}`)); err == nil {
		t.Error("a link was replaced")
	}
}

// TestSpecElsewhere: a specification beside the bundle is the one that is read and replaced.
func TestSpecElsewhere(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, dir, `{"root":{"path":"rootfs"}}`, nil)
	path := filepath.Join(elsewhere, "spec")
	asking := `{"root":{"path":"rootfs"},"annotations":{"weir/memory":"1GiB"}}`
	if err := os.WriteFile(path, []byte(asking), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(elsewhere)
	for _, config := range []string{path, "spec"} {
		b, err := Open(dir, config, "web", false)
		if err != nil || !b.Asks() {
			t.Fatalf("%s: it asks, and that is not seen: %v", config, err)
		}
		request, err := b.Request()
		if err != nil || request.Bundle != dir || request.Root != filepath.Join(dir, "rootfs") {
			t.Errorf("%+v, %v", request, err)
		}
		if err := b.Write([]byte(asking + "\n")); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != asking+"\n" {
		t.Errorf("it is now %s, %v", text, err)
	}
	if b, err := Open(dir, "config.json", "web", false); err != nil || b.Asks() {
		t.Errorf("config.json is the bundle's: %v", err)
	}
}

// TestReadOnce: what the runtime could not read again is not read.
func TestReadOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, `{}`, nil)
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, pipe, "web", false); !errors.Is(err, ErrOnce) || !strings.Contains(err.Error(), pipe) {
		t.Errorf("%v", err)
	}
	if _, err := Open(dir, dir, "web", false); err == nil || errors.Is(err, ErrOnce) {
		t.Errorf("a directory: %v", err)
	}
}

// TestWholeAtAnyMoment: who reads the specification while it is replaced sees the old or the new one.
func TestWholeAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	texts := []string{strings.Repeat("a", 100<<10), strings.Repeat("b", 50<<10)}
	write(t, dir, texts[0], nil)
	b := &Bundle{path: filepath.Join(dir, specName)}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			text, err := os.ReadFile(b.path)
			if err != nil || !slices.Contains(texts, string(text)) {
				t.Errorf("between two there are %d bytes, %v", len(text), err)
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	for i := range 200 {
		if err := b.Write([]byte(texts[i%2])); err != nil {
			t.Error(err)
		}
	}
	close(over)
	<-done
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestDisputedNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, `{"root":{"path":"."},"annotations":{"weir/memory":"1GiB","io.kubernetes.cri.sandbox-namespace":"vip",`+
		`"io.kubernetes.pod.namespace":"a"}}`, nil)
	b, err := Open(dir, "", "web", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Request(); err == nil || !strings.Contains(err.Error(), `is "vip", and "io.kubernetes.pod.namespace" is "a"`) {
		t.Error(err)
	}
}
