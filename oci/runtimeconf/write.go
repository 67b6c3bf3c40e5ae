package runtimeconf

// Writing files so that all of them change or none does. Invariants: what is to be written lies complete on
// the disk, beside each file, before the first one is replaced; a file is replaced in one step, and only if it
// is still as it was found; what is cut short leaves files beside it that sweep finds.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// staged is an edit with what is to be written on the disk already; without a name the file is to go.
type staged struct {
	edit Edit
	temp string
}

// errPartial is the error of edits of which some were done, and could not be taken back.
var errPartial = errors.New("what had been written before it cannot be taken back")

// writeAll does edits in their order. At an error those that were done are taken back.
func writeAll(edits []Edit) error {
	var list []staged
	done := 0
	defer func() {
		for _, s := range list[done:] {
			if s.temp != "" {
				os.Remove(s.temp)
			}
		}
	}()
	for _, edit := range edits {
		s, err := stage(edit)
		if err != nil {
			return err
		}
		list = append(list, s)
	}
	for _, s := range list {
		err := s.commit()
		if err == nil {
			done++
			err = syncDir(filepath.Dir(s.edit.Path))
		}
		if err == nil {
			continue
		}
		if back := takeBack(edits[:done]); back != nil {
			err = fmt.Errorf("%w; %w: %w", err, errPartial, back)
		}
		return err
	}
	return nil
}

// Write gives a file a text, in a directory that is made if it is not there.
func Write(file File, text []byte) error {
	sweep(file.Path)
	if file.Text != nil && bytes.Equal(file.Text, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file.Path), 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", file.Path, reason(err))
	}
	return writeAll([]Edit{{Path: file.Path, Before: file.Text, After: text, Mode: 0o644}})
}

// takeBack undoes edits that were written.
func takeBack(edits []Edit) error {
	if len(edits) == 0 {
		return nil
	}
	back := make([]Edit, 0, len(edits))
	for _, edit := range slices.Backward(edits) {
		edit.Before, edit.After = edit.After, edit.Before
		back = append(back, edit)
	}
	return writeAll(back)
}

// check refuses an edit whose file is not as the plan found it.
func (e Edit) check() error {
	now, err := Load(e.Path)
	if err == nil && hash(now.Text) != hash(e.Before) {
		err = fmt.Errorf("%s: %w meanwhile; try again", e.Path, ErrChanged)
	}
	return err
}

// stage writes what an edit needs.
func stage(edit Edit) (staged, error) {
	if edit.After == nil {
		return staged{edit: edit}, nil
	}
	temp, err := beside(edit.Path, edit.After, edit.Mode)
	if err != nil {
		return staged{}, fmt.Errorf("writing %s: %w", edit.Path, err)
	}
	return staged{edit, temp}, nil
}

// commit puts what was staged into its place.
func (s staged) commit() error {
	if err := s.edit.check(); err != nil {
		return err
	}
	var err error
	if s.temp == "" {
		if err = os.Remove(s.edit.Path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = os.Rename(s.temp, s.edit.Path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.edit.Path, reason(err))
	}
	return nil
}

// replace writes one file in one step: whoever reads it finds the old one or the new.
func replace(path string, text []byte, mode fs.FileMode) error {
	temp, err := beside(path, text, mode)
	if err == nil {
		if err = os.Rename(temp, path); err != nil {
			os.Remove(temp)
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, reason(err))
	}
	return syncDir(filepath.Dir(path))
}

// besideName begins the names of files that are to take another's place.
func besideName(path string) string {
	return "." + strings.TrimPrefix(filepath.Base(path), ".") + ".weir-"
}

// beside writes what is to take a file's place, with mode and owner of the one that is there.
func beside(path string, text []byte, mode fs.FileMode) (name string, err error) {
	owner := [2]int{-1, -1}
	if info, err := os.Lstat(path); err == nil {
		mode, owner = info.Mode().Perm(), ownerOf(info)
	}
	f, err := os.CreateTemp(filepath.Dir(path), besideName(path)+"*")
	if err != nil {
		return "", reason(err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil && owner[0] >= 0 {
		err = os.Lchown(f.Name(), owner[0], owner[1])
	}
	if err != nil {
		os.Remove(f.Name())
		return "", reason(err)
	}
	return f.Name(), nil
}

// sweep removes what writing a file has left beside it, where it was cut short.
func sweep(path string) {
	entries, _ := os.ReadDir(filepath.Dir(path)) // what cannot be read has nothing of ours
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), besideName(path)) && entry.Type().IsRegular() {
			os.Remove(filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
}

// syncDir brings a directory to the disk, or a power failure could keep a later file of a plan and not an
// earlier one.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("bringing %s to the disk: %w", path, reason(err))
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("bringing %s to the disk: %w", path, reason(err))
	}
	return nil
}

// reason is why something failed, without the name of the file, which is a passing one.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func ownerOf(info fs.FileInfo) [2]int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return [2]int{int(st.Uid), int(st.Gid)}
	}
	return [2]int{-1, -1}
}
