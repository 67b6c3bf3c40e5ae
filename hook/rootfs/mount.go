package rootfs

// Mounting something of the host's in the root file system, without a path that the image could bend.

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"weir/oci"
)

// attributes are a mount's options as the kernel has them.
var attributes = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
	"noexec": unix.MOUNT_ATTR_NOEXEC,
}

// Mount binds a file or directory of the host to a place in the root, which is made where it is missing.
// The mount is in this process's mount namespace, which is to be the container's.
func (r *Root) Mount(m oci.Mount) error {
	if err := r.mount(m); err != nil {
		return fmt.Errorf("mounting %s at %s of the container: %w", m.Source, m.Destination, explain(err))
	}
	return nil
}

func (r *Root) mount(m oci.Mount) error {
	var attr unix.MountAttr
	for _, option := range m.Options {
		bit, known := attributes[option]
		if !known && !slices.Contains([]string{"bind", "rbind"}, option) {
			return fmt.Errorf("option %q is not known", option)
		}
		attr.Attr_set |= bit
	}
	var st unix.Stat_t
	if err := unix.Lstat(m.Source, &st); err != nil {
		return fmt.Errorf("looking at it: %w", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cloning it: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("setting its options: %w", err)
	}
	place, err := r.place(m.Destination, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return fmt.Errorf("making the place: %w", err)
	}
	defer unix.Close(place)
	return unix.MoveMount(tree, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// explain adds what can be done about an error that has a known cause.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w; the image's file system cannot be changed: put an empty file /etc/ld.so.preload and a "+
			"directory /run/weir into the image, or use weir-runtime, which needs neither", err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w; this needs Linux 5.12 or later: use weir-runtime, which does not", err)
	}
	return err
}
