package oci

// Tests of the edit: golden files of what container runtimes write, and properties over made-up
// specifications.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

func grant() Grant {
	return Grant{
		ID: "0123456789ab", SocketDir: "/run/weir/c/0123456789ab", LibraryDir: "/run/weir/lib/89abcdef01234567",
		PreloadFile: "/run/weir/c/0123456789ab/ld.so.preload", Hook: "/usr/lib/weir/weir-hook",
		ControlSocket: "/run/weir/control.sock",
	}
}

func withGPU() Grant {
	g := grant()
	g.Devices = []Device{{"/dev/nvidia1", 195, 1}, {"/dev/nvidiactl", 195, 255}, {"/dev/nvidia-uvm", 511, 0}}
	return g
}

func fixed() Grant {
	g := grant()
	g.FixedImage, g.PreloadFile = true, ""
	return g
}

// A hook that has to read the image begins otherwise, and ends alike.
func TestHooks(t *testing.T) {
	g := grant()
	plain := g.Hooks()
	g.ReadImage = true
	read := g.Hooks()
	if plain[0].Args[1] != "register" || read[0].Args[1] != "merge" || read[1].Args[1] != "release" {
		t.Errorf("%v, %v", plain, read)
	}
}

func TestGolden(t *testing.T) {
	for name, test := range map[string]struct {
		spec  string
		grant Grant
	}{
		"ctr": {"ctr.json", withGPU()}, "cri": {"cri.json", grant()}, "fixed": {"ctr.json", fixed()},
	} {
		spec, err := os.ReadFile(filepath.Join("testdata", test.spec))
		if err != nil {
			t.Fatal(err)
		}
		edited, err := Edit(spec, test.grant)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Indent(&got, edited, "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What is not edited keeps its very bytes: numbers, escapes and blanks within it.
func TestUnknownKeepsItsBytes(t *testing.T) {
	spec, err := os.ReadFile("testdata/cri.json")
	if err != nil {
		t.Fatal(err)
	}
	edited, err := Edit(spec, grant())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"x-unknown":{"a":1.10, "b":"\u003c"}`, `9007199254740993`, `"uidMappings":[{"containerID":0,`,
		`"user":{"uid":1000,"gid":1000,"additionalGids":[1000]}`, `"startContainer":null`,
	} {
		if !bytes.Contains(edited, []byte(want)) {
			t.Errorf("%s is gone", want)
		}
	}
	if bytes.Contains(edited, []byte("/tmp/mine")) || bytes.Contains(edited, []byte("/srv/preload")) {
		t.Error("a mount at a place of ours is still there")
	}
}

func TestEditRefuses(t *testing.T) {
	relative := grant()
	relative.LibraryDir = "lib"
	unclean := grant()
	unclean.SocketDir = "/run/weir/../other"
	for _, test := range []struct {
		spec  string
		grant Grant
		want  string
	}{
		{`{}`, relative, `"lib", which is no absolute path`},
		{`{}`, unclean, `no absolute path`},
		{`{}`, Grant{}, `no absolute path`},
		{``, grant(), `no JSON object`}, {`[]`, grant(), `no JSON object`},
		{`{} {}`, grant(), `text after its end`},
		{`{"mounts":{}}`, grant(), `mounts: it is no JSON list`},
		{`{"mounts":[1]}`, grant(), `mounts: entry 0`},
		{`{"mounts":[],"mounts":[]}`, grant(), `"mounts" is ambiguous`},
		{`{"Mounts":[]}`, grant(), `"mounts" is ambiguous: "Mounts" is there, too`},
		{`{"process":{"env":[7]}}`, grant(), `process: env: entry 0 is no string`},
		{`{"annotations":[]}`, grant(), `annotations: it is no JSON object`},
		{`{"hooks":{"poststop":[{"path":1}]}}`, grant(), `hooks: poststop: entry 0`},
		{`{"linux":{"resources":{"devices":[[]]}}}`, withGPU(), `linux: resources: devices: entry 0`},
	} {
		_, err := Edit([]byte(test.spec), test.grant)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\nwant %q", test.spec, err, test.want)
		}
	}
}

// decoded is what the tests look at of a specification.
type decoded struct {
	Annotations map[string]string
	Process     *struct{ Env []string }
	Mounts      []Mount
	Hooks       map[string][]Hook
	Linux       struct {
		Devices   []struct{ Path string }
		Resources struct{ Devices []json.RawMessage }
	}
}

func decode(t interface{ Fatalf(string, ...any) }, spec []byte) (d decoded) {
	if err := json.Unmarshal(spec, &d); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	return d
}

// Specifications with mounts, hooks, variables and devices at our places and elsewhere.
var specs = rapid.Custom(func(t *rapid.T) []byte {
	some := func(name string, from []string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, 5).Draw(t, name)
	}
	var members []string
	add := func(key, value string) { members = append(members, fmt.Sprintf("%q: %s", key, value)) }
	list := func(values []string) string { return "[ " + strings.Join(values, " , ") + " ]" }
	object := func(form string, names []string) []string {
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = fmt.Sprintf(form, name)
		}
		return values
	}
	if rapid.Bool().Draw(t, "mounts") {
		add("mounts", list(object(`{"destination":%q,"source":"/s","new":1e2}`, some("mounts at", []string{
			"/data", "/run", "/run/weir", "run/weir/", "/run/weir/lib", "/etc/ld.so.preload", "/etc", "/dev/weir"}))))
	}
	if rapid.Bool().Draw(t, "process") {
		add("process", `{"env":`+list(object("%q", some("variables", []string{"A=<&>", "LD_PRELOAD=",
			"LD_PRELOAD=/a.so:/b.so", "LD_PRELOAD=/run/weir/lib/libweir.so", "WEIR_SOCKET=/x", "LD_PRELOADX=1"})))+`,"cwd":"/"}`)
	}
	if rapid.Bool().Draw(t, "hooks") {
		add("hooks", `{"createRuntime":`+list(object(`{"path":%q,"x":0}`, some("hooks", []string{
			"/usr/bin/other", "/usr/lib/weir/weir-hook", "/old/weir-hook"})))+`,"poststart":null}`)
	}
	if rapid.Bool().Draw(t, "linux") {
		add("linux", `{"devices":`+list(object(`{"path":%q,"major":1}`, some("devices", []string{
			"/dev/fuse", "/dev/nvidia1", "/dev/nvidiactl"})))+`, "resources": {"devices":[{"allow":false}],"cpu":{}}}`)
	}
	if rapid.Bool().Draw(t, "annotations") {
		add("annotations", rapid.SampledFrom([]string{`null`, `{}`, `{"weir/injected":"forged","a":"b"}`}).Draw(t, "notes"))
	}
	add("unknown", rapid.SampledFrom([]string{`1.0e+2`, `"\u0041"`, `{ "mounts" : [ ] }`, `null`}).Draw(t, "unknown"))
	return []byte("{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), ", ") + "}")
})

func TestEditTwiceIsEditOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs.Draw(t, "spec")
		g := rapid.SampledFrom([]Grant{grant(), withGPU(), fixed()}).Draw(t, "grant")
		once, err := Edit(spec, g)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Edit(once, g)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%s\n%s", err, once, twice)
		}
		if !json.Valid(once) {
			t.Fatalf("no JSON: %s", once)
		}
	})
}

// After the edit all of ours is there, once and last, and all of others' is there, in its order.
func TestEditPutsIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs.Draw(t, "spec")
		g := rapid.SampledFrom([]Grant{grant(), withGPU(), fixed()}).Draw(t, "grant")
		edited, err := Edit(spec, g)
		if err != nil {
			t.Fatal(err)
		}
		before, after := decode(t, spec), decode(t, edited)
		if after.Annotations[Marker] != g.ID {
			t.Fatalf("marker %q", after.Annotations[Marker])
		}
		ours := g.Mounts()
		theirs := slices.DeleteFunc(before.Mounts, func(m Mount) bool {
			return slices.ContainsFunc(ours, func(o Mount) bool { return o.Destination == clean(m.Destination) })
		})
		if diff := cmp.Diff(append(theirs, ours...), after.Mounts); diff != "" {
			t.Fatal(diff)
		}
		for stage, verb := range map[string]string{"createRuntime": "register", "poststop": "release"} {
			hooks := after.Hooks[stage]
			last := hooks[len(hooks)-1]
			if last.Path != g.Hook || last.Args[1] != verb || len(last.Env) == 0 || last.TimeoutSeconds == 0 {
				t.Fatalf("%s: %+v", stage, last)
			}
			if slices.ContainsFunc(hooks[:len(hooks)-1], func(h Hook) bool { return strings.HasSuffix(h.Path, "weir-hook") }) {
				t.Fatalf("%s: one of ours is left: %+v", stage, hooks)
			}
		}
		if before.Process != nil {
			checkEnvironment(t, g, before.Process.Env, after.Process.Env)
		} else if after.Process != nil {
			t.Fatal("a process came out of nothing")
		}
		for _, device := range g.Devices {
			count := 0
			for _, got := range after.Linux.Devices {
				if got.Path == device.Path {
					count++
				}
			}
			if count != 1 || !bytes.Contains(edited, fmt.Appendf(nil, `"allow":true,"type":"c","major":%d,"minor":%d`,
				device.Major, device.Minor)) {
				t.Fatalf("%s is there %d times", device.Path, count)
			}
		}
		for _, kept := range []string{`"cwd":"/"`, `"poststart":null`, `"cpu":{}`, `"/dev/fuse","major":1`} {
			if bytes.Contains(spec, []byte(kept)) && !bytes.Contains(edited, []byte(kept)) {
				t.Fatalf("%s is gone", kept)
			}
		}
	})
}

func checkEnvironment(t *rapid.T, g Grant, before, after []string) {
	preloads := 0
	for _, variable := range after {
		if value, ok := strings.CutPrefix(variable, preloadVariable); ok {
			preloads++
			if value != g.Library() && !strings.HasPrefix(value, g.Library()+":") {
				t.Fatalf("the library is not first in %q", variable)
			}
		}
	}
	if preloads == 0 {
		t.Fatalf("no LD_PRELOAD in %q", after)
	}
	for _, variable := range before {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "WEIR_SOCKET" && g.FixedImage:
		case name == "LD_PRELOAD" && !slices.ContainsFunc(after, func(v string) bool { return strings.HasSuffix(v, value) }),
			name != "LD_PRELOAD" && !slices.Contains(after, variable):
			t.Fatalf("%q is gone: %q", variable, after)
		}
	}
}

func TestMergePreload(t *testing.T) {
	const library = "/run/weir/lib/libweir.so"
	for image, want := range map[string]string{
		"":                           library + "\n",
		"/usr/lib/mine.so":           library + "\n/usr/lib/mine.so\n",
		"# why\n/a.so /b.so:/c.so\n": library + "\n# why\n/a.so /b.so:/c.so\n",
		library + "\n/a.so\n":        library + "\n/a.so\n",
		"\n\n":                       library + "\n\n\n",
		"/a.so\n " + library + "  ":  library + "\n/a.so\n",
	} {
		got := MergePreload(library, []byte(image))
		if string(got) != want {
			t.Errorf("%q: %q", image, got)
		}
		if again := MergePreload(library, got); !bytes.Equal(got, again) {
			t.Errorf("%q: then %q", image, again)
		}
	}
}

func FuzzEdit(f *testing.F) {
	for _, name := range []string{"testdata/ctr.json", "testdata/cri.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"mounts":null,"hooks":null,"process":null,"linux":null,"annotations":null}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		Look(spec, true)
		once, err := Edit(spec, withGPU())
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("no JSON: %q", once)
		}
		if twice, err := Edit(once, withGPU()); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%q\n%q", err, once, twice)
		}
	})
}
