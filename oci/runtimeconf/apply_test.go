package runtimeconf

// Tests of writing plans and of undoing them, on files of a temporary directory.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// machine is a directory with the files that a plan for containerd writes.
type machine struct {
	dir     string
	records Records
}

func newMachine(t *testing.T) machine {
	dir := t.TempDir()
	return machine{dir, Records(filepath.Join(dir, "state", "rollback"))}
}

func (m machine) file(name string) string { return filepath.Join(m.dir, name) }

func (m machine) write(t interface{ Fatal(...any) }, name, text string) {
	if err := os.MkdirAll(filepath.Dir(m.file(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.file(name), []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

// files are all that the machine has but for the records: text and mode, by name; and directories.
func (m machine) files(t interface{ Fatal(...any) }) map[string]string {
	all := map[string]string{}
	err := filepath.Walk(m.dir, func(path string, info os.FileInfo, err error) error {
		name, _ := filepath.Rel(m.dir, path)
		if err != nil || name == "." || strings.HasPrefix(name, "state") {
			return err
		}
		if info.IsDir() {
			all[name] = info.Mode().String()
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			all[name] = fmt.Sprintf("%v %s", info.Mode(), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (m machine) plan(t *testing.T, mode string) Plan {
	t.Helper()
	var files [3]File
	for i, name := range []string{"config.toml", "conf.d/99-weir.toml", "runtime.toml"} {
		var err error
		if files[i], err = Load(m.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	s := setup(mode)
	s.Wrapper = files[2]
	plan, err := PlanContainerd(Containerd{Version: "1.7.1", Main: files[0], DropIn: files[1],
		Effective: data(t, "dump17.toml")}, s)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func (m machine) undo(t *testing.T) {
	t.Helper()
	plan, err := m.records.Undo("containerd")
	if err == nil {
		err = m.records.Revert(plan)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestApplyAndUndo(t *testing.T) {
	for name, main := range map[string]string{"a file": mainWithRegistry, "none": "", "an empty one": " "} {
		m := newMachine(t)
		if main != "" {
			m.write(t, "config.toml", strings.TrimSpace(main)+strings.Repeat("\n", len(main)/10))
		}
		before := m.files(t)
		for _, mode := range []string{ModeRuntime, ModeCDI, ModeRuntime} {
			if err := m.records.Apply(m.plan(t, mode), mode); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got, err := m.records.Configured("containerd"); got != mode || err != nil {
				t.Errorf("%s: configured as %q, %v", name, got, err)
			}
			if plan := m.plan(t, mode); len(plan.Edits) > 0 {
				t.Errorf("%s: there is more to do:\n%s", name, plan.Diff())
			}
		}
		m.undo(t)
		if diff := cmp.Diff(before, m.files(t)); diff != "" {
			t.Errorf("%s: not as it was: %s", name, diff)
		}
		if got, err := m.records.Configured("containerd"); got != "" || err != nil {
			t.Errorf("%s: still configured as %q, %v", name, got, err)
		}
		m.undo(t) // nothing to do
	}
}

// What somebody has changed since is his: only weir's import is taken out of it.
func TestUndoLeavesOthersChanges(t *testing.T) {
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	if err := m.records.Apply(m.plan(t, ModeRuntime), ModeRuntime); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(m.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "config.toml", string(text)+"# mine\n")
	m.undo(t)
	got := m.files(t)
	if want := "imports = []\n" + mainWithRegistry + "# mine\n"; !strings.HasSuffix(got["config.toml"], want) || len(got) != 1 {
		t.Errorf("%q", got)
	}

	if err := m.records.Apply(m.plan(t, ModeRuntime), ModeRuntime); err != nil {
		t.Fatal(err)
	}
	m.write(t, "conf.d/99-weir.toml", "# mine\n")
	plan, err := m.records.Undo("containerd")
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "99-weir.toml") {
		t.Errorf("%v", err)
	}
	for _, edit := range plan.Edits {
		if strings.HasSuffix(edit.Path, "99-weir.toml") {
			t.Error("somebody's file is to be taken away")
		}
	}
	// With more wrong than that it cannot be forced, or the other file would never be put back.
	copies, err := filepath.Glob(filepath.Join(m.records.dir("containerd"), "config.toml.*"))
	if err != nil || len(copies) != 1 || os.Truncate(copies[0], 0) != nil {
		t.Fatalf("%v, %v", copies, err)
	}
	if _, err := m.records.Undo("containerd"); err == nil || errors.Is(err, ErrChanged) ||
		!strings.Contains(err.Error(), "99-weir.toml") || !strings.Contains(err.Error(), "config.toml: the copy") {
		t.Errorf("%v", err)
	}
}

// weir-runtime's settings stay as long as another container runtime goes through it that found them there.
func TestUndoLeavesWhatAnotherNeeds(t *testing.T) {
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	before := m.files(t)
	if err := m.records.Apply(m.plan(t, ModeRuntime), ModeRuntime); err != nil {
		t.Fatal(err)
	}
	var err error
	s := setup(ModeRuntime)
	if s.Wrapper, err = Load(m.file("runtime.toml")); err != nil || s.Wrapper.Text == nil {
		t.Fatalf("%q, %v", s.Wrapper.Text, err)
	}
	docker, err := PlanDocker(File{m.file("daemon.json"), []byte(
		`{"default-runtime":"nvidia","runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime"}}}`)}, s)
	if err != nil || len(docker.Edits) != 1 {
		t.Fatalf("%s, %v", docker.Diff(), err)
	}
	m.write(t, "daemon.json", string(docker.Edits[0].Before))
	if err := m.records.Apply(docker, ModeRuntime); err != nil {
		t.Fatal(err)
	}
	if _, err := m.records.Undo("containerd"); err == nil || errors.Is(err, ErrChanged) ||
		!strings.Contains(err.Error(), "runtime.toml: docker needs it as it is, too; unconfigure that first") {
		t.Errorf("%v", err)
	}
	plan, err := m.records.Undo("docker")
	if err == nil {
		err = m.records.Revert(plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.undo(t)
	after := m.files(t)
	delete(after, "daemon.json")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestApplyLooksAgain(t *testing.T) {
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	plan := m.plan(t, ModeRuntime)
	m.write(t, "config.toml", mainWithRegistry+"# meanwhile\n")
	before := m.files(t)
	if err := m.records.Apply(plan, ModeRuntime); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(before, m.files(t)); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefusesLinks(t *testing.T) {
	m := newMachine(t)
	m.write(t, "real.toml", "")
	if err := os.Symlink("real.toml", m.file("config.toml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(m.file("config.toml")); err == nil || !strings.Contains(err.Error(), "symbolic link to real.toml") {
		t.Errorf("%v", err)
	}
	if _, err := Load(m.dir); err == nil {
		t.Error("a directory was read")
	}
	if file, err := Load(m.file("real.toml")); err != nil || file.Text == nil {
		t.Errorf("an empty file is there: %v, %v", file, err)
	}
}

// memory is a directory without a disk behind it, if there is one: each file written is brought to it.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// Whatever is written in whatever order, and wherever Apply is cut short: what is undone is as it was.
func TestUndoIsExact(t *testing.T) {
	base, err := os.MkdirTemp(memory(), "runtimeconf-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	count := 0
	rapid.Check(t, func(t *rapid.T) {
		count++
		m := machine{filepath.Join(base, fmt.Sprint(count)), ""}
		m.records = Records(m.file("state/rollback"))
		names := []string{"a", "b/c", "b/d"}
		text := rapid.StringMatching(`[a-z]{0,3}`)
		for _, name := range names {
			if rapid.Bool().Draw(t, "there") {
				m.write(t, name, text.Draw(t, "text"))
			}
		}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		before := m.files(t)
		for range rapid.IntRange(1, 4).Draw(t, "plans") {
			plan := Plan{Runtime: "x"}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "files") {
				file, err := Load(m.file(name))
				if err != nil {
					t.Fatal(err)
				}
				plan.add(file, []byte(text.Draw(t, "new")))
			}
			if err := m.records.Apply(plan, "runtime"); err != nil {
				t.Fatal(err)
			}
		}
		if cut := rapid.SampledFrom(append(names, "")).Draw(t, "not written"); cut != "" && len(before) == 0 {
			os.Remove(m.file(cut)) // as if Apply had been killed before it
		}
		plan, err := m.records.Undo("x")
		if err == nil {
			err = m.records.Revert(plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, m.files(t)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A containerd of the machine, if there is one, takes what is written for what is meant.
func TestContainerdItself(t *testing.T) {
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip("no containerd in PATH")
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Skipf("containerd --version: %v", err)
	}
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	dump := func() []byte {
		text, err := exec.Command(program, "--config", m.file("config.toml"), "config", "dump").Output()
		if err != nil {
			t.Fatalf("containerd config dump: %v", err)
		}
		return text
	}
	before := dump()
	main, err := Load(m.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	s := setup(ModeRuntime)
	s.Wrapper.Path = m.file("runtime.toml")
	plan, err := PlanContainerd(Containerd{Version: strings.Fields(string(version))[2], Main: main,
		DropIn: File{Path: m.file("conf.d/99-weir.toml")}, Effective: before}, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.records.Apply(plan, ModeRuntime); err != nil {
		t.Fatal(err)
	}
	criOf := func(text []byte) table {
		tree, err := parse(File{"dump", text})
		if err != nil {
			t.Fatal(err)
		}
		if cri := sub(tree, "plugins", criV3); cri != nil {
			return cri
		}
		return sub(tree, "plugins", criV2)
	}
	was, is := criOf(before), criOf(dump())
	runtimes := sub(is, "containerd", "runtimes")
	if program := sub(runtimes, "weir", "options")["BinaryName"]; program != "/usr/bin/weir-runtime" {
		t.Errorf("its runtimes are %v", runtimes)
	}
	delete(runtimes, "weir")
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the rest of the section has changed: %s", diff)
	}
}
