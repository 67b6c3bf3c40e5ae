package ctrd

// Images, made here: the machine's own shell and what a puppet needs, in one layer of a docker archive.

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/tests/e2e/node"
)

// baseImage is the one that has nothing beyond what all have.
const baseImage = "weir.test/base:1"

// images are those that a daemon has.
type images struct {
	mu    sync.Mutex
	known map[string]bool
}

// programs are the machine's, which all images have.
var programs = []string{"/usr/bin/dash", "/usr/bin/env", "/usr/bin/cat", "/usr/bin/sleep", "/usr/bin/true"}

// links of an image that lead into /usr, as Debian has them.
var links = map[string]string{
	"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/sh": "dash",
}

// load is the name of an image whose programs run as a user, which is there once this returns: take brings it in, from
// a file, if it is not there yet.
func (i *images) load(s *scene, wish node.Image, user int, take func(file, name string)) string {
	s.t.Helper()
	archive, name := s.archive(wish, user)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known[name] {
		return name
	}
	file := filepath.Join(s.Node.Dir, "image.tar")
	if err := os.WriteFile(file, archive, 0o644); err != nil {
		s.t.Fatal(err)
	}
	take(file, name)
	i.known[name] = true
	return name
}

// image is the name of an image that the daemon has in every namespace that tests use once this returns.
func (d *Daemon) image(wish node.Image, user int) string {
	d.t.Helper()
	return d.images.load(&d.scene, wish, user, func(file, name string) {
		for _, namespace := range []string{ctrNamespace, criNamespace} {
			d.MustCtr("--namespace", namespace, "images", "import", file)
		}
		d.Node.Eventually(func() string {
			if out := d.Crictl("inspecti", "-q", name); out.Code != 0 {
				return "the CRI does not see the image: " + out.Stderr
			}
			return ""
		})
	})
}

// archive makes a docker archive and gives it a name by its content.
func (s *scene) archive(wish node.Image, user int) (archive []byte, name string) {
	s.t.Helper()
	layer := s.layer(wish)
	digest := fmt.Sprintf("%x", sha256.Sum256(layer))
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sleep", "infinity"}, "User": strconv.Itoa(user),
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	name = fmt.Sprintf("weir.test/%x:1", sha256.Sum256(config))
	if len(wish.Add) == 0 && len(wish.Without) == 0 && user == 0 {
		name = baseImage
	}
	manifest := encode([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	files := tarball{}
	files.add(tar.Header{Name: "config.json", Mode: 0o644}, config)
	files.add(tar.Header{Name: "layer.tar", Mode: 0o644}, layer)
	files.add(tar.Header{Name: "manifest.json", Mode: 0o644}, manifest)
	return files.done(), name
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of this file's own
	}
	return text
}

// layer has an image's files.
func (s *scene) layer(wish node.Image) []byte {
	s.t.Helper()
	content := map[string]node.Entry{}
	for name, to := range links {
		content[name] = node.Entry{Path: name, Link: to}
	}
	for _, program := range programs {
		for _, file := range append(needs(s.t, program), program) {
			name := strings.TrimPrefix(file, "/")
			content[name] = node.Entry{Path: name, File: file}
		}
	}
	for _, file := range needs(s.t, node.Build(s.t, "sim/libcuda.so.1")) {
		name := strings.TrimPrefix(file, "/")
		content[name] = node.Entry{Path: name, File: file}
	}
	for _, entry := range wish.Add {
		content[entry.Path] = entry
	}
	files := tarball{}
	made := map[string]bool{".": true}
	for _, dir := range []string{"etc", "tmp", "dev", "proc", "sys", "run", "usr/sbin"} {
		if _, other := content[dir]; !other && !within(dir, wish.Without) {
			files.dirs(dir, made)
		}
	}
	names := make([]string, 0, len(content))
	for name := range content {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !within(name, wish.Without) {
			files.dirs(path.Dir(name), made)
			files.entry(s.t, content[name])
		}
	}
	return files.done()
}

// within tells whether a path is one of these, or below one.
func within(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

var ofLdd = regexp.MustCompile(`(/\S+) \(0x`)

// needs are the libraries of a program, and its loader, at the places where they truly lie.
func needs(t interface {
	Helper()
	Fatalf(string, ...any)
}, program string) (files []string) {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	for _, match := range ofLdd.FindAllStringSubmatch(string(out), -1) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(match[1]))
		if err != nil {
			t.Fatalf("%s needs %s: %v", program, match[1], err)
		}
		files = append(files, filepath.Join(dir, filepath.Base(match[1])))
	}
	return files
}

// tarball is an archive in the making. Its writes go to memory, and cannot fail.
type tarball struct {
	text   bytes.Buffer
	writer *tar.Writer
}

func (a *tarball) add(header tar.Header, content []byte) {
	if a.writer == nil {
		a.writer = tar.NewWriter(&a.text)
	}
	header.Size = int64(len(content))
	if err := a.writer.WriteHeader(&header); err != nil {
		panic(err)
	}
	if _, err := a.writer.Write(content); err != nil {
		panic(err)
	}
}

// dirs adds a directory and those above it, each once.
func (a *tarball) dirs(name string, made map[string]bool) {
	if made[name] {
		return
	}
	a.dirs(path.Dir(name), made)
	made[name] = true
	a.add(tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
}

func (a *tarball) entry(t testing.TB, entry node.Entry) {
	t.Helper()
	switch {
	case entry.Link != "":
		a.add(tar.Header{Name: entry.Path, Typeflag: tar.TypeSymlink, Linkname: entry.Link, Mode: 0o777}, nil)
	case entry.File != "":
		text, err := os.ReadFile(entry.File)
		if err != nil {
			t.Fatal(err)
		}
		a.add(tar.Header{Name: entry.Path, Mode: 0o755}, text)
	default:
		a.add(tar.Header{Name: entry.Path, Mode: 0o644}, []byte(entry.Text))
	}
}

func (a *tarball) done() []byte {
	if err := a.writer.Close(); err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(&a.text)
	return text
}
