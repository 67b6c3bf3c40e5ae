package runtimeconf

// Tests of writing plans and of undoing them, on files of a temporary directory.

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if want := " # ours\n" + strings.TrimPrefix(mainWithRegistry, "# ours\n") + "# mine\n"; !strings.HasSuffix(got["config.toml"], want) ||
		len(got) != 1 {
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

// Of a file that others have changed only weir's import is taken out, and its line if that is weir's.
func TestUndoOfImports(t *testing.T) {
	for name, c := range map[string]struct{ main, before, after, want string }{
		"the line is weir's":     {"version = 2\n", "version = 2", "version = 2 # mine", "version = 2 # mine\n"},
		"there was an empty one": {"version = 2\nimports = []\n", "version = 2", "version = 2 # mine", "version = 2 # mine\nimports = []\n"},
		"one of others": {"imports = ['/x.toml']\nversion = 2\n", "version = 2", "version = 2 # mine",
			"imports = [\"/x.toml\"]\nversion = 2 # mine\n"},
		"others have added":     {"version = 2\n", "imports = [", "imports = [\"/x.toml\", ", "imports = [\"/x.toml\"]\nversion = 2\n"},
		"others have a comment": {"version = 2\n", "\"]\n", "\"] # why\n", "imports = [] # why\nversion = 2\n"},
		"others have taken it":  {"version = 2\n", "imports = [", "imports = [] # [", ""},
		"there was no file":     {"", "version = 2", "version = 2 # mine", "version = 2 # mine\n"},
	} {
		m := newMachine(t)
		if c.main != "" {
			m.write(t, "config.toml", c.main)
		}
		if err := m.records.Apply(m.plan(t, ModeRuntime), ModeRuntime); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(m.file("config.toml"))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), c.before, c.after, 1)
		m.write(t, "config.toml", changed)
		m.undo(t)
		if c.want == "" {
			c.want = changed
		}
		if got, err := os.ReadFile(m.file("config.toml")); string(got) != c.want || err != nil {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
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

// A file that changes when all have been looked at already is left alone, and those before it are put back.
// Here the plan itself changes it, by another name.
func TestApplyLooksAgainAtTheLastMoment(t *testing.T) {
	m := newMachine(t)
	m.write(t, "etc/config.toml", "a\n")
	if err := os.Symlink("etc", m.file("link")); err != nil {
		t.Fatal(err)
	}
	plan := Plan{Runtime: "x"}
	plan.add(File{Path: m.file("new/drop-in.toml")}, []byte("d\n"))
	plan.add(File{m.file("link/config.toml"), []byte("a\n")}, []byte("b\n"))
	plan.add(File{m.file("etc/config.toml"), []byte("a\n")}, []byte("c\n"))
	err := m.records.Apply(plan, ModeRuntime)
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "etc/config.toml") ||
		!strings.HasSuffix(err.Error(), "nothing is changed") {
		t.Errorf("%v", err)
	}
	m.untouched(t, "etc/config.toml", "a\n")
}

// untouched makes sure that an Apply that failed has left one file, as it was, and no record.
func (m machine) untouched(t *testing.T, name, text string) {
	t.Helper()
	if got, err := os.ReadFile(m.file(name)); string(got) != text || err != nil {
		t.Errorf("%s has become %q, %v", name, got, err)
	}
	var found []string
	err := filepath.Walk(m.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && path != m.file(name) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) > 0 {
		t.Errorf("%v; there is also %q", err, found)
	}
	if mode, err := m.records.Configured("x"); mode != "" || err != nil {
		t.Errorf("configured as %q, %v", mode, err)
	}
}

// mount mounts a file system of the kernel's for a test.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("weir-test", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// Where there is no room, or nothing may be written, nothing has changed, and the file is named.
func TestApplyWithoutRoom(t *testing.T) {
	big := []byte(strings.Repeat("x", 60<<10))
	for name, full := range map[string]string{"for the file": "full", "for what is kept": "state"} {
		m := newMachine(t)
		mount(t, m.file(full), 0, "size=64k")
		m.write(t, "etc/config.toml", "a\n")
		plan := Plan{Runtime: "x"}
		plan.add(File{m.file("etc/config.toml"), []byte("a\n")}, []byte("b\n"))
		plan.add(File{Path: m.file("full/conf.d/1.toml")}, big)
		plan.add(File{Path: m.file("full/conf.d/2.toml")}, big)
		want := "writing " + m.file("full/conf.d/2.toml") + ": no space left on device; nothing is changed"
		if full == "state" {
			plan.Edits = plan.Edits[:1]
			m.write(t, "state/ballast", string(big))
			want = "keeping what is there: writing " + m.file("state/rollback/x/")
		}
		err := m.records.Apply(plan, ModeRuntime)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(m.file("state/ballast"))
		m.untouched(t, "etc/config.toml", "a\n")
	}
}

func TestApplyToReadOnly(t *testing.T) {
	m := newMachine(t)
	mount(t, m.file("ro"), syscall.MS_RDONLY, "")
	m.write(t, "etc/config.toml", "a\n")
	for _, name := range []string{"ro/drop-in.toml", "ro/conf.d/drop-in.toml"} {
		plan := Plan{Runtime: "x"}
		plan.add(File{m.file("etc/config.toml"), []byte("a\n")}, []byte("b\n"))
		plan.add(File{Path: m.file(name)}, []byte("d\n"))
		err := m.records.Apply(plan, ModeRuntime)
		if err == nil || !strings.Contains(err.Error(), m.file(name)+": read-only file system; nothing is changed") {
			t.Errorf("%v", err)
		}
		m.untouched(t, "etc/config.toml", "a\n")
	}
	kept := Records(m.file("ro/rollback"))
	plan := Plan{Runtime: "x"}
	plan.add(File{m.file("etc/config.toml"), []byte("a\n")}, []byte("b\n"))
	if err := kept.Apply(plan, ModeRuntime); err == nil ||
		!strings.Contains(err.Error(), string(kept)+": read-only file system; nothing is written") {
		t.Errorf("%v", err)
	}
	m.untouched(t, "etc/config.toml", "a\n")
}

// applyMode makes the test binary apply a plan to the machine in this directory, over and over.
const applyMode = "RUNTIMECONF_TEST_APPLY"

func TestMain(m *testing.M) {
	dir := os.Getenv(applyMode)
	if dir == "" {
		os.Exit(m.Run())
	}
	it := machine{dir, Records(filepath.Join(dir, "state/rollback"))}
	os.Stdout.WriteString("begin\n")
	for {
		plan, err := it.killedPlan()
		if err == nil {
			err = it.records.Apply(plan, ModeRuntime)
		}
		if err == nil {
			plan, err = it.records.Undo("x")
		}
		if err == nil {
			err = it.records.Revert(plan)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func (m machine) killedPlan() (Plan, error) {
	plan := Plan{Runtime: "x"}
	for _, name := range []string{"conf.d/drop-in.toml", "etc/config.toml", "etc/weir/runtime.toml"} {
		file, err := Load(m.file(name))
		if err != nil {
			return plan, err
		}
		plan.add(file, append([]byte("# weir\n"), file.Text...))
	}
	return plan, nil
}

// Killed at any moment, what is undone afterwards is as it was, with nothing beside it.
func TestKilledAtAnyMoment(t *testing.T) {
	m := newMachine(t)
	m.write(t, "etc/config.toml", "# ours\n")
	before := m.files(t)
	seed := time.Now().UnixNano()
	random := rand.New(rand.NewSource(seed))
	for range 40 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), applyMode+"="+m.dir)
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		time.Sleep(time.Duration(random.Intn(20_000)) * time.Microsecond)
		command.Process.Kill()
		command.Wait()
		if line != "begin\n" || err != nil || command.ProcessState.Exited() {
			t.Fatalf("it said %q, %v, and ended by itself", line, err)
		}
		plan, err := m.records.Undo("x")
		if err == nil {
			err = m.records.Revert(plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, m.files(t)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// What was written last is taken back without what was there before it.
func TestTakeBack(t *testing.T) {
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	bare := m.files(t)
	plan := m.plan(t, ModeCDI)
	if err := m.records.Apply(plan, ModeCDI); err != nil {
		t.Fatal(err)
	}
	withCDI := m.files(t)
	again := m.plan(t, ModeRuntime)
	if err := m.records.Apply(again, ModeRuntime); err != nil {
		t.Fatal(err)
	}
	if err := m.records.TakeBack(again, ModeCDI); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withCDI, m.files(t)); diff != "" {
		t.Error(diff)
	}
	if mode, err := m.records.Configured("containerd"); mode != ModeCDI || err != nil {
		t.Errorf("%q, %v", mode, err)
	}
	if drift, err := m.records.Drift("containerd"); len(drift) > 0 || err != nil {
		t.Errorf("%q, %v", drift, err)
	}
	if err := m.records.TakeBack(plan, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bare, m.files(t)); diff != "" {
		t.Error(diff)
	}
	if mode, err := m.records.Configured("containerd"); mode != "" || err != nil {
		t.Errorf("%q, %v", mode, err)
	}
}

func TestDrift(t *testing.T) {
	m := newMachine(t)
	m.write(t, "config.toml", mainWithRegistry)
	if err := m.records.Apply(m.plan(t, ModeRuntime), ModeRuntime); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(m.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	drift := func(want string) {
		t.Helper()
		lines, err := m.records.Drift("containerd")
		if got := strings.ReplaceAll(strings.Join(lines, "|"), m.dir+"/", ""); got != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	drift("")
	m.write(t, "config.toml", string(text)+"# mine\n")
	drift("")
	m.write(t, "config.toml", "version = 2\n")
	drift("config.toml no longer imports conf.d/99-weir.toml")
	m.write(t, "config.toml", "[")
	drift("config.toml cannot be read as TOML")
	m.write(t, "config.toml", mainWithRegistry)
	m.write(t, "runtime.toml", "runtime = \"crun\"\n")
	os.Remove(m.file("conf.d/99-weir.toml"))
	drift("runtime.toml has been changed since|conf.d/99-weir.toml is as it was before weir|config.toml is as it was before weir")
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
