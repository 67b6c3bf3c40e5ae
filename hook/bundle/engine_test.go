package bundle

// Tests of what is read of Docker's and Podman's own files.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNamesOfEngines(t *testing.T) {
	const id = "7791950f40175030"
	docker := `{"ID":"@","Name":"/web","Config":{"Image":"registry/train:2","Env":["A=b"]}}`
	podman := `[{"id":"other","names":["else"]},{"id":"@","names":["web"],"metadata":"{\"image-name\":\"registry/train:2\"}"}]`
	for name, test := range map[string]struct {
		bundle, source  string // below the test's folder
		files           map[string]string
		wantName, image string
	}{
		"docker": {"task/moby/@", "root/containers/@/hostname",
			map[string]string{"root/containers/@/config.v2.json": docker}, "web", "registry/train:2"},
		"docker, of another": {"task/moby/@", "root/containers/@/hostname",
			map[string]string{"root/containers/@/config.v2.json": strings.ReplaceAll(docker, `"@"`, `"x"`)}, id, ""},
		"docker, broken": {"task/moby/@", "root/containers/@/hostname",
			map[string]string{"root/containers/@/config.v2.json": docker[1:]}, id, ""},
		"a directory of another": {"task/moby/@", "root/containers/x/hostname",
			map[string]string{"root/containers/x/config.v2.json": docker}, id, ""},
		"podman": {"root/overlay-containers/@/userdata", "run/overlay-containers/@/userdata/hostname",
			map[string]string{"root/overlay-containers/containers.json": podman}, "web", "registry/train:2"},
		"podman, of a container that goes with the machine": {"root/vfs-containers/@/userdata",
			"run/vfs-containers/@/userdata/hostname", map[string]string{"root/vfs-containers/containers.json": "[]",
				"run/vfs-containers/volatile-containers.json": podman}, "web", "registry/train:2"},
		"podman, not listed": {"root/overlay-containers/@/userdata", "etc/hostname",
			map[string]string{"root/overlay-containers/containers.json": `[{"id":"other","names":["else"]}]`}, id, ""},
		"neither": {"task/default/@", "etc/hostname", nil, id, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			place := func(path string) string { return filepath.Join(dir, strings.ReplaceAll(path, "@", id)) }
			for path, text := range test.files {
				if err := os.MkdirAll(filepath.Dir(place(path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(place(path), []byte(strings.ReplaceAll(text, "@", id)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// An annotation that names another than the container is a mistake, which the agent tells.
			write(t, place(test.bundle), `{"root":{"path":"rootfs"},"annotations":{"weir/memory.web":"1GiB"},"mounts":[`+
				`{"destination":"/etc/hostname","source":"`+place(test.source)+`"}]}`, nil)
			b, err := Open(place(test.bundle), "", id, false)
			if err != nil {
				t.Fatal(err)
			}
			if b.Facts.Name != test.wantName || b.Facts.Image != test.image || !b.Asks() {
				t.Errorf("name %q, image %q, asks: %t", b.Facts.Name, b.Facts.Image, b.Asks())
			}
		})
	}
}

// What the specification says of itself is not looked for anywhere else.
func TestSpecificationNamesFirst(t *testing.T) {
	const id = "7791950f40175030"
	dir := t.TempDir()
	bundle := filepath.Join(dir, "overlay-containers", id, "userdata")
	write(t, bundle, `{"root":{"path":"rootfs"},"annotations":{"weir/memory":"1GiB",`+
		`"io.kubernetes.cri.container-name":"main","io.kubernetes.cri.image-name":"a"}}`, nil)
	list := `[{"id":"` + id + `","names":["web"],"metadata":"{\"image-name\":\"b\"}"}]`
	if err := os.WriteFile(filepath.Join(dir, "overlay-containers/containers.json"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(bundle, "", id, false); err != nil || b.Facts.Name != "main" || b.Facts.Image != "a" {
		t.Errorf("%v, %+v", err, b)
	}
}

// Podman gives a container its image's annotations. They name nothing, hide nothing, and ask for nothing.
func TestAnnotationsOfImages(t *testing.T) {
	const id, image = "7791950f40175030", "0a1b"
	const gpu = `"linux":{"devices":[{"path":"/dev/nvidia0","type":"c","major":195,"minor":0}]}`
	says := func(annotations string) string { return `{"schemaVersion":2,"annotations":{` + annotations + `}}` }
	for name, test := range map[string]struct {
		annotations, manifest, more string
		want                        string // of the obstacle; empty: none
	}{
		"a cap of the image's": {`"weir/memory":"80GiB"`, says(`"weir/memory":"80GiB"`), gpu,
			`annotation "weir/memory": "80GiB" is what its image says`},
		"the user's own": {`"weir/memory":"4GiB"`, says(`"weir/memory":"80GiB"`), gpu, ""},
		"one of each": {`"weir/memory":"4GiB","weir/weight":"9"`, says(`"weir/memory":"80GiB","weir/weight":"9"`), gpu,
			`annotation "weir/weight"`},
		"names": {`"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-namespace":"vip",` +
			`"org.opencontainers.image.ref.name":"vip/a","io.kubernetes.cri.container-name":"vip","weir/memory":"4GiB"`,
			says(`"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-namespace":"vip",` +
				`"org.opencontainers.image.ref.name":"vip/a","io.kubernetes.cri.container-name":"vip"`), gpu, ""},
		"a manifest that cannot be read": {`"weir/memory":"4GiB","io.kubernetes.cri.sandbox-namespace":"vip"`, "", gpu,
			"0a1b/manifest"},
		"without a request": {`"io.kubernetes.cri.sandbox-namespace":"vip"`, "", gpu, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bundle := filepath.Join(dir, "overlay-containers", id, "userdata")
			write(t, bundle, `{"root":{"path":"rootfs"},"annotations":{`+test.annotations+`},`+test.more+`}`, nil)
			if err := os.MkdirAll(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"overlay-containers/containers.json": `[{"id":"` + id + `","names":["web"],"image":"` +
				image + `","metadata":"{\"image-name\":\"b\"}"}]`}
			if test.manifest != "" {
				files["overlay-images/"+image+"/manifest"] = test.manifest
			}
			for path, text := range files {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b, err := Open(bundle, "", id, false)
			if err != nil {
				t.Fatal(err)
			}
			if b.Facts.Name != "web" || b.Facts.Image != "b" || b.Facts.Namespace != "" || b.Facts.Sandbox || !b.Concerns() {
				t.Errorf("%+v", b.Facts)
			}
			_, err = b.Request()
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
