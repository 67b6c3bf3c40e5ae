// Package rootfs works in the root file system of a container that is about to start. All that is in it
// is the image's, and may be made to lead elsewhere. Invariants: no path is looked up but by openat2 with
// the root as its /, so no link leads out of it; nothing that is there is opened but a regular file or a
// directory, or written to; mounts are moved onto descriptors, not onto paths.
package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is a container's root file system, held by a descriptor.
type Root struct {
	fd   int
	path string // for messages
}

// Open takes a root file system by its path on the host.
func Open(root string) (*Root, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the root file system %s: %w", root, err)
	}
	return &Root{fd, root}, nil
}

// Close lets go of it.
func (r *Root) Close() error { return unix.Close(r.fd) }

// open opens a path as a process that has the root as its / would.
func (r *Root) open(name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(r.fd, name, &how)
		// EAGAIN: something was renamed meanwhile, so that it cannot be said where .. leads.
		if again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN); !again || tries > 100 {
			return fd, err
		}
	}
}

// ErrOther says that a path leads to something else than was expected there.
var ErrOther = errors.New("it is no regular file")

// ReadFile reads a regular file of at most max bytes. One that is not there is os.ErrNotExist.
func (r *Root) ReadFile(name string, max int64) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("reading %s of the image: %w", name, err)
	}
	// First only for looking: opening a device or a pipe can already do something.
	look, err := r.open(name, unix.O_PATH)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(look)
	var st unix.Stat_t
	if err := unix.Fstat(look, &st); err != nil {
		return fail(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(ErrOther)
	}
	if st.Size > max {
		return fail(fmt.Errorf("it has %d bytes, and %d are the most", st.Size, max))
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", look))
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(text)) > max {
		err = fmt.Errorf("it has more than %d bytes", max)
	}
	if err != nil {
		return fail(err)
	}
	return text, nil
}

// Has tells whether there is something at a path.
func (r *Root) Has(name string) bool {
	fd, err := r.open(name, unix.O_PATH)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// ReadOnly tells whether nothing can be made in its file system.
func (r *Root) ReadOnly() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(r.fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// place opens the place at which something is to be mounted, and makes it where it is missing: a
// directory, or an empty file. Directories on the way are made, too.
func (r *Root) place(name string, directory bool) (int, error) {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return -1, errors.New("the root itself is no place")
	}
	var at string
	parts := strings.Split(name, "/")
	for i := 0; ; i++ {
		parent, last := at, i == len(parts)-1
		at = path.Join(at, parts[i])
		fd, err := r.open(at, unix.O_PATH)
		if errors.Is(err, unix.ENOENT) {
			if err = r.make(parent, parts[i], directory || !last); err == nil {
				fd, err = r.open(at, unix.O_PATH)
			}
		}
		if err != nil {
			return -1, err
		}
		if last {
			return fd, checkKind(fd, directory)
		}
		unix.Close(fd)
	}
}

// make makes a directory or an empty file. A link that leads nowhere is not followed, so it fails.
func (r *Root) make(parent, name string, directory bool) error {
	if parent == "" {
		parent = "/"
	}
	dir, err := r.open(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = makeIn(dir, name, directory)
	if errors.Is(err, unix.EROFS) && r.unlock() {
		err = errors.Join(makeIn(dir, name, directory), r.lock())
	}
	if errors.Is(err, unix.EEXIST) {
		return nil // somebody was faster, or it is a link that leads nowhere, which the next look tells
	}
	return err
}

func makeIn(dir int, name string, directory bool) error {
	if directory {
		return unix.Mkdirat(dir, name, 0o755)
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// unlock makes the root's mount one that can be written to, and tells whether it was not: a runtime may have made it so
// already (crun does before hooks, runc after them). No process of the container's runs yet. It is this mount
// namespace's, and what its file system cannot do it still cannot.
func (r *Root) unlock() bool {
	return r.ReadOnly() && r.setMount(unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}) == nil
}

// lock undoes unlock.
func (r *Root) lock() error {
	if err := r.setMount(unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("making the root read-only again: %w", err)
	}
	return nil
}

func (r *Root) setMount(attr unix.MountAttr) error {
	return unix.MountSetattr(r.fd, "", unix.AT_EMPTY_PATH, &attr)
}

// checkKind closes a descriptor that is of the wrong kind.
func checkKind(fd int, directory bool) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case directory && kind != unix.S_IFDIR:
		err = errors.New("it is there and is no directory")
	case !directory && kind != unix.S_IFREG:
		err = ErrOther
	default:
		return nil
	}
	unix.Close(fd)
	return err
}
