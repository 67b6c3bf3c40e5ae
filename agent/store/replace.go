package store

// Files that are replaced as a whole.

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// replace writes a file beside path, which only its owner may read, and puts it in the place of path in one step.
// With durable it is on the disk when replace returns; else no disk is waited for.
func replace(path string, content []byte, durable bool) (err error) {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	if _, err = f.Write(content); err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if !durable {
		return exchange(temporary, path)
	}
	if err = os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// exchange puts the file new in the place of path. Where the file system can, the two change places: a rename over
// a file makes ext4 write the data to the disk first.
func exchange(new, path string) error {
	if unix.Renameat2(unix.AT_FDCWD, new, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) != nil {
		return os.Rename(new, path)
	}
	return os.Remove(new)
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
