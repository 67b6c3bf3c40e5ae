package store

// Files that are replaced as a whole.

import (
	"errors"
	"os"
	"path/filepath"
)

// replace writes a file beside path, which only its owner may read, and renames it to path. With
// durable it is on the disk when replace returns.
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
	if err = os.Rename(temporary, path); err != nil || !durable {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
