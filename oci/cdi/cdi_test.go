package cdi

// Tests of the specifications that are made and read.

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"weir/oci"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	control  = []oci.Device{{Path: "/dev/nvidiactl", Major: 195, Minor: 255}, {Path: "/dev/nvidia-uvm", Major: 511}}
	programs = Programs{Hook: "/usr/lib/weir/weir-hook", ControlSocket: "/run/weir/control.sock"}
	gpus     = []GPU{
		{"0", "GPU-5a3c", append([]oci.Device{{Path: "/dev/nvidia0", Major: 195}}, control...)},
		{"1:0", "MIG-7f21", append([]oci.Device{{Path: "/dev/nvidia1", Major: 195, Minor: 1}}, control...)},
	}
	grant = oci.Grant{
		ID: "0123456789ab", SocketDir: "/run/weir/c/0123456789ab", LibraryDir: "/run/weir/lib/89ab",
		PreloadFile: "/run/weir/c/0123456789ab/ld.so.preload", Hook: programs.Hook,
		ControlSocket: programs.ControlSocket, Devices: gpus[0].Devices,
	}
)

func TestGolden(t *testing.T) {
	node, err := Generate(gpus, programs)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := Lease(grant)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []*specs.Spec{node, lease} {
		got, err := Encode(spec)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", FileName(spec))
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: %s", golden, diff)
		}
		again, err := Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(spec, again); diff != "" {
			t.Errorf("%s read again: %s", golden, diff)
		}
	}
}

// A lease puts the same mounts and hooks into a container as the edit of its specification does.
func TestLeaseIsTheEdit(t *testing.T) {
	spec, err := Lease(grant)
	if err != nil {
		t.Fatal(err)
	}
	edits := spec.Devices[0].ContainerEdits
	mounts := grant.Mounts()
	if len(edits.Mounts) != len(mounts) || len(edits.Hooks) != len(grant.Hooks()) {
		t.Fatalf("%+v", edits)
	}
	for i, m := range edits.Mounts {
		if m.ContainerPath != mounts[i].Destination || m.HostPath != mounts[i].Source ||
			!slices.Equal(m.Options, mounts[i].Options) {
			t.Errorf("%+v, not %+v", m, mounts[i])
		}
	}
}

// A simulated GPU has no device nodes, and is a device all the same.
func TestGenerateSimulated(t *testing.T) {
	if _, err := Generate([]GPU{{"0", "GPU-1", nil}}, programs); err != nil {
		t.Error(err)
	}
}

func TestGenerateRefuses(t *testing.T) {
	for want, gpus := range map[string][]GPU{
		`device "1/0"`:                {{"1/0", "GPU-1", control}},
		`device "0" is there twice`:   {{"0", "GPU-1", control}, {"0", "GPU-2", control}},
		`node without an absolute pa`: {{"0", "GPU-1", []oci.Device{{Path: "nvidia0"}}}},
	} {
		if _, err := Generate(gpus, programs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Generate(gpus, Programs{}); err == nil {
		t.Error("a hook without a path was made")
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	const edits = `"containerEdits":{"env":["A=1"]}`
	for text, want := range map[string]string{
		`{"cdiVersion":"9.9","kind":"weir/gpu"}`:                                                                    `cdiVersion: `,
		`{"cdiVersion":"0.5.0","kind":"gpu"}`:                                                                       `kind "gpu": want VENDOR/CLASS`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","devices":[{"name":"-",` + edits + `}]}`:                           `device "-"`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","devices":[{"name":"a","containerEdits":{}}]}`:                     `no containerEdits`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","containerEdits":{"env":["A"]}}`:                                   `env "A": want NAME=VALUE`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","containerEdits":{"mounts":[null]}}`:                               `a mount without`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","containerEdits":{"hooks":[{"hookName":"x","path":"/h"}]}}`:        `hook "x": want one of prestart`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","containerEdits":{"hooks":[{"hookName":"poststop","path":"/h"}]}}`: `no env of its own`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","containerEdits":{"hooks":[{"hookName":"poststop"}]}}`:             `without an absolute path`,
		`{"cdiVersion":"0.5.0","kind":"weir/gpu","nonsense":1}`:                                                     `nonsense`,
		`{`:  `yaml`,
		`[]`: `json: cannot unmarshal array into specs.Spec`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant one line with %q", text, err, want)
		}
	}
}

func TestList(t *testing.T) {
	file := func(devices ...string) *fstest.MapFile {
		text := "cdiVersion: 0.5.0\nkind: weir/gpu\ndevices:\n"
		for _, device := range devices {
			text += "- name: \"" + device + "\"\n  containerEdits:\n    env: [\"A=1\"]\n"
		}
		return &fstest.MapFile{Data: []byte(text)}
	}
	etc := fstest.MapFS{
		"weir-gpu.yaml": file("0", "1"), "nvidia.yaml": file("2"), "weir-notes.txt": file("3"),
		"weir-bad.json": &fstest.MapFile{Data: []byte("{")},
	}
	run := fstest.MapFS{"weir-a.json": file("1", "5"), "weir-b.json": file("5")}
	etc["weir-vendor.json"] = &fstest.MapFile{Data: []byte(strings.Replace(string(file("0").Data), "weir/gpu", "vendor/gpu", 1))}
	etc["weir-pipe.json"] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
	got, err := List(Dir{"/etc/cdi", etc}, Dir{"/run/cdi", run}, Dir{"none", os.DirFS(filepath.Join(t.TempDir(), "none"))})
	want := []Listed{
		{"weir/gpu=0", "weir-gpu.yaml", ""}, {"weir/gpu=1", "weir-gpu.yaml", "a later directory has it, too"},
		{"weir/gpu=1", "weir-a.json", ""}, {"weir/gpu=5", "weir-a.json", "also in weir-b.json"},
		{"weir/gpu=5", "weir-b.json", "also in weir-a.json"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{
		"/etc/cdi/weir-bad.json: yaml: line 1", "/etc/cdi/weir-pipe.json: it is no regular file",
		`/etc/cdi/weir-vendor.json: it is of kind "vendor/gpu", which is not weir's`,
	} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+line) {
			t.Errorf("%v\nwant a line %s", err, line)
		}
	}
	if _, err := List(Dir{"/x", os.DirFS(os.Args[0])}); err == nil || err.Error() != "/x: not a directory" {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, gpus := range [][]GPU{gpus, nil} {
		spec, err := Generate(gpus, programs)
		if err != nil {
			f.Fatal(err)
		}
		text, err := Encode(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if spec, err := Parse(text); err == nil {
			if again, err := Encode(spec); err != nil {
				t.Fatal(err)
			} else if _, err := Parse(again); err != nil {
				t.Fatalf("%v\n%s", err, again)
			}
		}
	})
}
