package runtimeconf

// Tests of plans: golden files of what is written for configurations as runtimes have them.

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func setup(mode string) Setup {
	return Setup{
		Mode: mode, Runtime: "/usr/bin/weir-runtime", Hook: "/usr/bin/weir-hook",
		ControlSocket: "/run/weir/control.sock", Wrapper: File{Path: "/etc/weir/runtime.toml"},
	}
}

func data(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const configFile, dropInFile = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-weir.toml"

func containerdOf(t *testing.T, version, dump, main string) Containerd {
	node := Containerd{Version: version, Main: File{Path: configFile}, DropIn: File{Path: dropInFile},
		Effective: data(t, dump)}
	if main != "" {
		node.Main.Text = []byte(main)
	}
	return node
}

const mainWithRegistry = `# ours
version = 2
oom_score = -999 # keep

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
`

// plans are what is planned in all tests, by name.
func plans(t *testing.T) map[string]func() (Plan, error) {
	podman := Podman{DropIn: File{Path: "/etc/containers/containers.conf.d/99-weir.conf"}, Base: "/usr/bin/crun",
		DefaultName: "crun", HooksDir: "/etc/containers/oci/hooks.d"}
	crio := CRIO{DropIn: File{Path: "/etc/crio/crio.conf.d/99-weir.conf"}, Effective: data(t, "crio.toml"),
		HooksDir: "/usr/share/containers/oci/hooks.d"}
	asDefault := setup(ModeRuntime)
	asDefault.SetAsDefault = true
	elsewhere := setup(ModeRuntime)
	elsewhere.ControlSocket = "/srv/weir/control.sock"
	daemon := File{"/etc/docker/daemon.json", []byte("{\n  \"log-level\": \"warn\",\n  \"x\": 1e3,\n" +
		"  \"default-runtime\": \"nvidia\",\n  \"runtimes\": {\n    \"nvidia\": {\"path\": \"nvidia-container-runtime\"}\n  }\n}\n")}
	return map[string]func() (Plan, error){
		"containerd17": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "1.7.35", "dump17.toml", mainWithRegistry), setup(ModeRuntime))
		},
		"containerd17-bare": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "1.7.35", "dump17.toml", ""), asDefault)
		},
		"containerd17-cdi": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "1.7.35", "dump17.toml", mainWithRegistry), setup(ModeCDI))
		},
		"containerd17-nri": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "1.7.35", "dump17.toml", mainWithRegistry), setup(ModeNRI))
		},
		"containerd24": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "2.4.2", "dump24.toml", ""), asDefault)
		},
		"containerd24-v2": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "v2.4.2-rc.1", "dump24.toml", mainWithRegistry), setup(ModeRuntime))
		},
		"containerd24-run-dir": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "2.4.2", "dump24.toml", ""), elsewhere)
		},
		"containerd24-cdi": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "2.4.2", "dump24.toml", ""), setup(ModeCDI))
		},
		"containerd24-nri": func() (Plan, error) {
			return PlanContainerd(containerdOf(t, "2.4.2", "dump24.toml", "version = 4\n"), setup(ModeNRI))
		},
		"docker":       func() (Plan, error) { return PlanDocker(daemon, asDefault) },
		"docker-bare":  func() (Plan, error) { return PlanDocker(File{Path: daemon.Path}, setup(ModeRuntime)) },
		"docker-cdi":   func() (Plan, error) { return PlanDocker(daemon, setup(ModeCDI)) },
		"crio":         func() (Plan, error) { return PlanCRIO(crio, setup(ModeRuntime)) },
		"crio-hooks":   func() (Plan, error) { return PlanCRIO(crio, setup(ModeHooks)) },
		"crio-nri":     func() (Plan, error) { return PlanCRIO(crio, setup(ModeNRI)) },
		"podman":       func() (Plan, error) { return PlanPodman(podman, setup(ModeRuntime)) },
		"podman-hooks": func() (Plan, error) { return PlanPodman(podman, setup(ModeHooks)) },
	}
}

func TestGolden(t *testing.T) {
	for name, make := range plans(t) {
		plan, err := make()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := plan.Diff()
		for _, note := range plan.Notes {
			got += "note: " + note + "\n"
		}
		got += "restart: " + plan.Restart + "\n"
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(data(t, name+".golden")), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What is written is read again as what was there, and weir's part.
func TestNothingIsLost(t *testing.T) {
	plan, err := plans(t)["containerd17"]()
	if err != nil {
		t.Fatal(err)
	}
	dump, err := parse(File{"dump", data(t, "dump17.toml")})
	if err != nil {
		t.Fatal(err)
	}
	written, err := parse(File{"written", edited(t, plan, dropInFile)})
	if err != nil {
		t.Fatal(err)
	}
	ours := sub(written, "plugins", criV2, "containerd", "runtimes", "weir")
	if program := sub(ours, "options")["BinaryName"]; program != "/usr/bin/weir-runtime" ||
		sub(ours, "options")["SystemdCgroup"] != true {
		t.Errorf("%+v", ours)
	}
	delete(sub(written, "plugins", criV2, "containerd", "runtimes"), "weir")
	if diff := cmp.Diff(sub(dump, "plugins", criV2), sub(written, "plugins", criV2)); diff != "" {
		t.Errorf("the section that the drop-in stands for has lost something: %s", diff)
	}
	main := string(edited(t, plan, configFile))
	if want := `imports = ["` + dropInFile + "\"]\n" + mainWithRegistry; main != want {
		t.Errorf("%s", main)
	}
}

func edited(t *testing.T, plan Plan, path string) []byte {
	t.Helper()
	for _, edit := range plan.Edits {
		if edit.Path == path {
			return edit.After
		}
	}
	t.Fatalf("%s is not written", path)
	return nil
}

// Where a runtime gives GPUs by the environment and weir is not put before it, that is said.
func TestNVIDIAPassedOver(t *testing.T) {
	const want = "weir stands before runc, the default, and not before the runtime nvidia: "
	node := containerdOf(t, "2.4.2", "dump24.toml", "")
	node.Effective = append(node.Effective, `
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
options = {BinaryName = '/usr/bin/nvidia-container-runtime'}
`...)
	contained, err := PlanContainerd(node, setup(ModeRuntime))
	if err != nil {
		t.Fatal(err)
	}
	docker, err := PlanDocker(File{"/d.json", []byte(`{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`)}, setup(ModeRuntime))
	if err != nil {
		t.Fatal(err)
	}
	crio, err := PlanCRIO(CRIO{DropIn: File{Path: "/x"}, Effective: []byte("[crio.runtime]\ndefault_runtime = 'runc'\n" +
		"[crio.runtime.runtimes.runc]\n[crio.runtime.runtimes.nvidia]\nruntime_path = '/usr/bin/nvidia-container-runtime'\n")},
		setup(ModeRuntime))
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range []Plan{contained, docker, crio} {
		if !slices.ContainsFunc(plan.Notes, func(note string) bool { return strings.HasPrefix(note, want) }) {
			t.Errorf("%s: %q", plan.Runtime, plan.Notes)
		}
	}
	_, err = PlanContainerd(Containerd{Place: made["k3s-v3"].place, Main: File{k3sConfig, []byte(rancherV3 +
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\nBinaryName = 'nvidia-container-runtime'\n")}},
		setup(ModeRuntime))
	if err == nil || !strings.Contains(err.Error(), "\nnote: "+want) {
		t.Errorf("%v", err)
	}
}

// With all of a plan in its place there is nothing more to do.
func TestPlansAreIdempotent(t *testing.T) {
	node := containerdOf(t, "1.7.35", "dump17.toml", mainWithRegistry)
	s := setup(ModeRuntime)
	s.SetAsDefault = true
	plan, err := PlanContainerd(node, s)
	if err != nil {
		t.Fatal(err)
	}
	node.Main.Text, node.DropIn.Text = edited(t, plan, configFile), edited(t, plan, dropInFile)
	s.Wrapper.Text = edited(t, plan, s.Wrapper.Path)
	for name, effective := range map[string][]byte{"as before": node.Effective, "with ours": node.DropIn.Text} {
		node.Effective = effective
		again, err := PlanContainerd(node, s)
		if err != nil || len(again.Edits) > 0 || again.Restart != "" {
			t.Errorf("%s: %v\n%s", name, err, again.Diff())
		}
	}
	docker := File{"/etc/docker/daemon.json", nil}
	plan, err = PlanDocker(docker, setup(ModeRuntime))
	if err != nil {
		t.Fatal(err)
	}
	docker.Text = edited(t, plan, docker.Path)
	if again, err := PlanDocker(docker, setup(ModeRuntime)); err != nil || len(again.Edits) > 0 {
		t.Errorf("%v\n%s", err, again.Diff())
	}
}

func TestRefusals(t *testing.T) {
	old := containerdOf(t, "1.5.9", "dump17.toml", "")
	kata := containerdOf(t, "1.7.35", "dump17.toml", "")
	kata.Effective = []byte(strings.Replace(string(kata.Effective), `"io.containerd.runc.v2"`, `"io.containerd.kata.v2"`, 1))
	gone := containerdOf(t, "1.7.35", "dump17.toml", "")
	gone.Effective = []byte("version = 2\n")
	taken := setup(ModeRuntime)
	taken.Wrapper.Text = []byte("runtime = \"crun\"\n")
	asked := setup(ModeRuntime)
	asked.ControlSocket, asked.Wrapper.Text = "/srv/control.sock", []byte("control_socket = \"/other.sock\"\n")
	elsewhere := setup(ModeRuntime)
	elsewhere.Wrapper.Text = []byte("control_socket = \"/other.sock\"\n")
	number := setup(ModeRuntime)
	number.Wrapper.Text = []byte("runtime = 5\n")
	pattern := containerdOf(t, "1.7.35", "dump17.toml", "")
	pattern.DropIn.Path = "/etc/containerd/[a]/99-weir.toml"
	self := containerdOf(t, "1.7.35", "dump17.toml", "")
	self.Effective = []byte(strings.Replace(string(self.Effective), "/usr/bin/nvidia-container-runtime", "/usr/bin/weir-runtime", 1))
	contained := func(node Containerd, s Setup) func() (Plan, error) {
		return func() (Plan, error) { return PlanContainerd(node, s) }
	}
	main := func(text string) func() (Plan, error) {
		return contained(containerdOf(t, "1.7.35", "dump17.toml", text), setup(ModeRuntime))
	}
	for want, make := range map[string]func() (Plan, error){
		configFile + ":2: ": main("version = 2\n[plugins\n"),
		"is of version 1":   main("root = \"/x\"\n"),
		"cannot change its imports; nothing is written: make them": main("version = 2\n\"imports\" = [\n\"/x/*.toml\"]\n"),
		"too old":                             contained(old, setup(ModeRuntime)),
		"is of type":                          contained(kata, setup(ModeRuntime)),
		"has no runtime":                      contained(gone, setup(ModeRuntime)),
		"passes containers on to":             contained(containerdOf(t, "1.7.35", "dump17.toml", ""), taken),
		"asks the agent at":                   contained(containerdOf(t, "1.7.35", "dump17.toml", ""), asked),
		`have to be "/run/weir/control.sock"`: contained(containerdOf(t, "1.7.35", "dump17.toml", ""), elsewhere),
		"on to itself":                        contained(self, setup(ModeRuntime)),
		`no mode "hooks"`:                     contained(containerdOf(t, "2.4.2", "dump24.toml", ""), setup(ModeHooks)),
		`1.6.20~ds1 has no mode "cdi"`:        contained(containerdOf(t, "1.6.20~ds1", "dump17.toml", ""), setup(ModeCDI)),
		`1.6.20 has no mode "nri"`:            contained(containerdOf(t, "1.6.20", "dump17.toml", ""), setup(ModeNRI)),
		"want runtime, cdi, nri":              contained(containerdOf(t, "2.4.2", "dump24.toml", ""), setup("magic")),
		"no version of containerd":            contained(containerdOf(t, "newest", "dump24.toml", ""), setup(ModeRuntime)),
		"daemon.json:2: invalid": func() (Plan, error) {
			return PlanDocker(File{"/etc/docker/daemon.json", []byte("{\n,}")}, setup(ModeRuntime))
		},
		"daemon.json:1: it is of type array, want object; nothing is written: correct it": func() (Plan, error) {
			return PlanDocker(File{"/etc/docker/daemon.json", []byte("[]")}, setup(ModeRuntime))
		},
		"daemon.json:3: runtimes is of type array, want object; nothing": func() (Plan, error) {
			return PlanDocker(File{"/etc/docker/daemon.json", []byte("{\n\"runtimes\":\n[]}")}, setup(ModeRuntime))
		},
		"daemon.json:1: default-runtime is of type number, want string; nothing": func() (Plan, error) {
			return PlanDocker(File{"/etc/docker/daemon.json", []byte("{\"default-runtime\":5}")}, setup(ModeRuntime))
		},
		`the default runtime "gone" is not among its runtimes`: func() (Plan, error) {
			return PlanDocker(File{"/etc/docker/daemon.json", []byte("{\"default-runtime\":\"gone\"}")}, setup(ModeRuntime))
		},
		"for a pattern where it is imported": contained(pattern, setup(ModeRuntime)),
		"runtime has to be a string":         contained(containerdOf(t, "1.7.35", "dump17.toml", ""), number),
		`of type "io.containerd.kata.v2"`: func() (Plan, error) {
			return PlanDocker(File{"/d.json", []byte(`{"default-runtime":"k","runtimes":{"k":{"runtimeType":"io.containerd.kata.v2"}}}`)},
				setup(ModeRuntime))
		},
		`docker has no mode "nri"`:             func() (Plan, error) { return PlanDocker(File{Path: "/d.json"}, setup(ModeNRI)) },
		`CRI-O's configuration has no runtime`: func() (Plan, error) { return PlanCRIO(CRIO{}, setup(ModeRuntime)) },
		`podman has no mode "nri"`:             func() (Plan, error) { return PlanPodman(Podman{}, setup(ModeNRI)) },
		`which OCI runtime Podman uses`:        func() (Plan, error) { return PlanPodman(Podman{}, setup(ModeRuntime)) },
		"z.conf sets hooks_dir": func() (Plan, error) {
			return PlanPodman(podmanWith("/etc/c.d/z.conf", `engine.hooks_dir = ["/a"]`), setup(ModeHooks))
		},
		"a.conf:1": func() (Plan, error) { return PlanPodman(podmanWith("/etc/c.d/a.conf", `engine =`), setup(ModeHooks)) },
	} {
		plan, err := make()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
		if len(plan.Edits) > 0 {
			t.Errorf("%s: something is to be written: %s", want, plan.Diff())
		}
	}
}

func podmanWith(config, text string) Podman {
	return Podman{DropIn: File{Path: "/etc/c.d/w.conf", Text: []byte("# ours")}, HooksDir: "/etc/hooks.d",
		Config: []File{{Path: config, Text: []byte(text)}, {Path: "/etc/c.d/w.conf", Text: []byte("x = ")}}}
}

// Podman looks for hooks where it did before, and in weir's directory, too.
func TestPodmanReadsHooks(t *testing.T) {
	const none = "# ours"
	for text, want := range map[string]string{
		"":                                     `hooks_dir = ['/usr/share/containers/oci/hooks.d', '/etc/hooks.d']`,
		`[engine]` + "\n" + `runtime = "runc"`: `hooks_dir = ['/usr/share/containers/oci/hooks.d', '/etc/hooks.d']`,
		`engine.hooks_dir = ["/a", "/b"]`:      `hooks_dir = ['/a', '/b', '/etc/hooks.d']`,
		`engine.hooks_dir = ["/a", {append=true}]`: `hooks_dir = ['/usr/share/containers/oci/hooks.d', '/a', ` +
			`'/etc/hooks.d']`,
		`engine.hooks_dir = ["/etc/hooks.d", "/a"]`: none,
	} {
		plan, err := PlanPodman(podmanWith("/etc/c.d/a.conf", text), setup(ModeHooks))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := none
		for _, edit := range plan.Edits {
			if edit.Path == "/etc/c.d/w.conf" {
				got = string(edit.After)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: it becomes\n%s", text, got)
		}
	}
}

func TestImports(t *testing.T) {
	for before, after := range map[string]string{
		"version = 2\n": "imports = [\"/w.toml\"]\nversion = 2\n",
		"version = 2\nimports = ['/a/*.toml'] # mine\n":   "version = 2\nimports = [\"/a/*.toml\", \"/w.toml\"] # mine\n",
		"version = 2\nimports = [\n '/a.toml',\n]\n[a]\n": "version = 2\nimports = [\"/a.toml\", \"/w.toml\"]\n[a]\n",
		"": "imports = [\"/w.toml\"]\n",
	} {
		got, err := withImport(File{"/m.toml", []byte(before)}, "/w.toml")
		if err != nil || string(got) != after {
			t.Errorf("%q: %q, %v", before, got, err)
			continue
		}
		back, err := WithoutImport(File{"/m.toml", got}, "/w.toml")
		if err != nil {
			t.Errorf("%q: %v", before, err)
			continue
		}
		was, _ := parse(File{"", []byte(before)})
		is, err := parse(File{"", back})
		if err != nil || !reflect.DeepEqual(imports(was), imports(is)) {
			t.Errorf("%q: then %q", before, back)
		}
	}
	// A list of imports of something else is not taken for the file's.
	if got, err := withImport(File{"/m.toml", []byte("version = 2\n[a]\nimports = []\n")}, "/w.toml"); err == nil {
		t.Errorf("%s", got)
	}
}

func FuzzContainerd(f *testing.F) {
	for _, name := range []string{"dump17.toml", "dump24.toml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(mainWithRegistry), text)
	}
	f.Fuzz(func(t *testing.T, main, effective []byte) {
		plan, err := PlanContainerd(Containerd{Version: "1.7.0", Main: File{configFile, main}, DropIn: File{Path: dropInFile},
			Effective: effective}, setup(ModeRuntime))
		if err != nil {
			return
		}
		for _, edit := range plan.Edits {
			if _, err := parse(File{edit.Path, edit.After}); err != nil {
				t.Fatalf("%v\n%s", err, edit.After)
			}
		}
	})
}

func FuzzDocker(f *testing.F) {
	f.Add([]byte(`{"runtimes":{"nvidia":{"path":"x"}},"default-runtime":"nvidia"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		plan, err := PlanDocker(File{"/d.json", text}, setup(ModeRuntime))
		if err != nil {
			return
		}
		for _, edit := range plan.Edits {
			if edit.Path == "/d.json" && !json.Valid(edit.After) {
				t.Fatalf("%s", edit.After)
			}
		}
	})
}
