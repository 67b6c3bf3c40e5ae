// Package bundle reads the bundle of a container that is about to start, and replaces its specification
// in one step. What it finds is what the agent is asked with.
package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/agent/control/ociapi"
	"weir/hook/rootfs"
	"weir/oci"
	"weir/oci/engine"
)

// specBytesMax is more than any specification has.
const specBytesMax = 64 << 20

// specName is the specification's file in a bundle.
const specName = "config.json"

// ErrOnce says that a specification is no file that can be read twice: by weir, and then by the runtime below.
var ErrOnce = errors.New("it is no regular file, which weir has to read before the runtime does; write the " +
	"specification into one")

// Bundle is a container's bundle.
type Bundle struct {
	Dir   string // an absolute path
	Spec  []byte
	Facts oci.Facts
	id    string
	path  string // of the specification
	// notTheirs says why weir's annotations are no request of the container's maker; nil: they are.
	notTheirs error
}

// Open reads the bundle in a directory, of the container with this id. Its specification is in the file config;
// empty, or as runtimes call it by themselves: in the bundle. With nvidia, the runtime below gives GPUs by the
// environment.
func Open(dir, config, id string, nvidia bool) (*Bundle, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, specName)
	if config != "" && config != specName {
		if path, err = filepath.Abs(config); err != nil {
			return nil, err
		}
	}
	spec, err := readSpec(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	facts, err := oci.Look(spec, nvidia)
	if err != nil {
		return nil, err
	}
	var notTheirs error
	if facts.HasGPU || facts.AllDevices || oci.Mentions(facts.Annotations) {
		told := engine.Look(dir, id, spec)
		var ofImage map[string]string
		if ofImage, notTheirs = annotationsOfImage(told, facts.Annotations); len(ofImage) > 0 {
			if facts, err = oci.LookBeyond(spec, nvidia, ofImage); err != nil {
				return nil, err
			}
		}
		if facts.Name == "" {
			facts.Name, facts.Image = told.Name, cmp.Or(facts.Image, told.Image)
		}
	}
	facts.Name = cmp.Or(facts.Name, id)
	if facts.Namespace == "" {
		// It is in the path of containerd's bundles and nowhere else.
		key, _ := ociapi.KeyOf(dir)
		facts.Namespace = key.Namespace
	}
	return &Bundle{dir, spec, facts, id, path, notTheirs}, nil
}

// annotationsOfImage are those of a container's annotations that its image has brought, which decide nothing; where that
// cannot be known: all. The error says why those of weir's among them are no request.
func annotationsOfImage(told engine.Told, all map[string]string) (ofImage map[string]string, err error) {
	ofImage, err = told.OfImage()
	if err != nil {
		return all, fmt.Errorf("which of weir's annotations are its image's cannot be known: %w; limits are never taken from "+
			"an image, and Podman gives a container the image's annotations; use an image that lies in Podman's own storage, "+
			"or a container without weir's annotations", err)
	}
	for _, annotation := range slices.Sorted(maps.Keys(ofImage)) {
		value, there := all[annotation]
		if there && value == ofImage[annotation] && oci.IsRequest(annotation) {
			return ofImage, fmt.Errorf("annotation %.100q: %.70q is what its image says, and limits are never taken from an image; "+
				"ask for what the container is to have with --annotation, in other words than the image's, or make the image "+
				"without it", annotation, value)
		}
	}
	return ofImage, nil
}

func readSpec(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, ErrOnce
	}
	spec, err := io.ReadAll(io.LimitReader(f, specBytesMax+1))
	if err == nil && len(spec) > specBytesMax {
		err = errors.New("it is too large")
	}
	return spec, err
}

// Asks tells whether the container asks anything of weir.
func (b *Bundle) Asks() bool { return b.Facts.Asks() }

// Concerns tells whether weir has anything to do with the container: others are never touched.
func (b *Bundle) Concerns() bool {
	return !b.Facts.IsSandbox(b.id) && (b.Asks() || b.Facts.HasGPU || b.Facts.AllDevices)
}

// OnlyShown tells whether the agent is told of the container for people's sake alone, so that nothing that it says
// keeps it from starting.
func (b *Bundle) OnlyShown() bool { return !b.Asks() && !b.Facts.HasGPU }

// Request is what the agent is to be told.
func (b *Bundle) Request() (ociapi.Container, error) {
	root := b.root()
	request := ociapi.Container{
		ID: b.id, Bundle: b.Dir, Name: b.Facts.Name, Namespace: b.Facts.Namespace, Pod: b.Facts.Pod,
		PodUID: b.Facts.PodUID, Image: b.Facts.Image, Command: b.Facts.Command, HasGPU: b.Facts.HasGPU, AllDevices: b.Facts.AllDevices,
		Root:        root,
		Annotations: b.Facts.Requests(),
	}
	if b.notTheirs != nil && b.Asks() {
		return request, b.notTheirs
	}
	if b.Facts.Disputed != "" {
		return request, fmt.Errorf("%s: which rules of weir.toml hold cannot be known; leave out the one that is not the "+
			"container runtime's own", b.Facts.Disputed)
	}
	image, err := rootfs.Open(root)
	if err != nil {
		return request, err
	}
	defer image.Close()
	request.FixedImage = image.ReadOnly() && !b.hasPlaces(image)
	if source := b.Facts.PreloadSource; source != "" {
		request.Preload, err = MountedPreload(source)
	} else {
		request.Preload, err = imagePreload(image)
	}
	return request, err
}

// root is the path of the container's root file system.
func (b *Bundle) root() string {
	if filepath.IsAbs(b.Facts.RootPath) {
		return b.Facts.RootPath
	}
	return filepath.Join(b.Dir, b.Facts.RootPath)
}

// ImagePreload is the image's own /etc/ld.so.preload, whatever is mounted over it in the container.
func (b *Bundle) ImagePreload() (string, error) {
	image, err := rootfs.Open(b.root())
	if err != nil {
		return "", err
	}
	defer image.Close()
	return imagePreload(image)
}

// hasPlaces tells whether an image that cannot be changed has what is to be mounted over.
func (b *Bundle) hasPlaces(image *rootfs.Root) bool {
	run := slices.ContainsFunc(b.Facts.Mounted, func(place string) bool {
		return place == filepath.Dir(oci.SocketPlace) || place == oci.SocketPlace
	})
	return image.Has(oci.PreloadPlace) && (run || image.Has(oci.SocketPlace))
}

// MountedPreload reads a file of the host's that is mounted over a container's /etc/ld.so.preload.
func MountedPreload(source string) (string, error) {
	text, err := readSmall(source)
	if err != nil {
		return "", fmt.Errorf("reading %s, which is mounted at %s: %w", source, oci.PreloadPlace, err)
	}
	return string(text), nil
}

func imagePreload(image *rootfs.Root) (string, error) {
	text, err := image.ReadFile(oci.PreloadPlace, ociapi.PreloadBytesMax)
	for _, none := range []error{os.ErrNotExist, unix.ELOOP, unix.ENOTDIR, rootfs.ErrOther} {
		if errors.Is(err, none) {
			return "", nil // to the container's loader, too
		}
	}
	return string(text), err
}

// readSmall reads a regular file of the host.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = rootfs.ErrOther
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, ociapi.PreloadBytesMax+1))
	if err == nil && len(text) > ociapi.PreloadBytesMax {
		err = fmt.Errorf("it has more than %d bytes", ociapi.PreloadBytesMax)
	}
	return text, err
}

// Write replaces the specification. It keeps its mode and owner.
func (b *Bundle) Write(spec []byte) (err error) {
	fail := func(err error) error { return fmt.Errorf("writing %s: %w", b.path, err) }
	info, err := os.Lstat(b.path)
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return fail(rootfs.ErrOther)
	}
	f, err := os.CreateTemp(filepath.Dir(b.path), "."+filepath.Base(b.path)+".weir-*")
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(spec)
	owner, _ := info.Sys().(*syscall.Stat_t)
	if err == nil && owner != nil {
		err = f.Chown(int(owner.Uid), int(owner.Gid))
	}
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Close())
	if err == nil {
		err = replace(f.Name(), b.path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fail(err)
	}
	return nil
}

// replace puts the file new in the place of old, in one step. The two change places where the file system can do
// that: a rename over a file makes ext4 write its data to the disk first, which takes as long as all the rest of
// a container's start.
func replace(new, old string) error {
	if unix.Renameat2(unix.AT_FDCWD, new, unix.AT_FDCWD, old, unix.RENAME_EXCHANGE) != nil {
		return os.Rename(new, old)
	}
	os.Remove(new) // what stays of it goes with the bundle
	return nil
}
