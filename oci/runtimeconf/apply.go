package runtimeconf

// Writing a plan, and undoing it. A manifest in the state directory is on the disk before the first file
// is written, with the hash of each file as it was and as it will be; what was there lies beside it. So a
// kill at any moment leaves what can be undone.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// manifestSchema is the version of the manifest.
const manifestSchema = 1

// manifest is what was written for one container runtime.
type manifest struct {
	Schema int       `json:"schema"`
	Mode   string    `json:"mode"`
	Files  []changed `json:"files"`
	// Dirs are the directories that were made for them, the outer ones first.
	Dirs []string `json:"dirs,omitempty"`
}

// changed is one file. Backup is the name of the copy of what was there; empty: nothing was.
type changed struct {
	Path         string   `json:"path"`
	Backup       string   `json:"backup"`
	BeforeSHA256 string   `json:"before_sha256"`
	AfterSHA256  []string `json:"after_sha256"` // the last one is what it is to be
	Import       string   `json:"import,omitempty"`
	Shared       bool     `json:"shared,omitempty"`
}

// Records is the directory in which it is kept what was there: STATE/rollback.
type Records string

func (r Records) dir(runtime string) string { return filepath.Join(string(r), runtime) }

func (r Records) manifest(runtime string) string {
	return filepath.Join(r.dir(runtime), "manifest.json")
}

// ErrChanged is the error for a file that somebody has changed since it was looked at, or written.
var ErrChanged = errors.New("changed by somebody else")

// Load reads a file for a plan. One that is a symbolic link is another tool's and is not to be written.
func Load(path string) (File, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{Path: path}, nil
	}
	if err != nil {
		return File{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, _ := os.Readlink(path)
		return File{}, fmt.Errorf("%s is a symbolic link to %s, so another tool makes it; nothing is written: name the "+
			"file itself with --config, or configure that tool", path, target)
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is no regular file", path)
	}
	text, err := os.ReadFile(path)
	if text == nil {
		text = []byte{}
	}
	return File{path, text}, err
}

// check refuses an edit whose file is not as the plan found it.
func (e Edit) check() error {
	now, err := Load(e.Path)
	if err == nil && hash(now.Text) != hash(e.Before) {
		err = fmt.Errorf("%s: %w meanwhile; try again", e.Path, ErrChanged)
	}
	return err
}

// Apply writes a plan. Nothing is written where a file is not as the plan found it.
func (r Records) Apply(plan Plan, mode string) error {
	if len(plan.Edits) == 0 {
		return nil
	}
	kept, err := r.load(plan.Runtime)
	if err != nil {
		return err
	}
	for _, edit := range plan.Edits {
		if err := edit.check(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.dir(plan.Runtime), 0o700); err != nil {
		return fmt.Errorf("keeping what is there: %w", err)
	}
	kept.Mode = mode
	for _, edit := range plan.Edits {
		if err := r.keep(kept, plan.Runtime, edit); err != nil {
			return fmt.Errorf("keeping what is there: %w", err)
		}
		kept.Dirs = append(kept.Dirs, missing(filepath.Dir(edit.Path), kept.Dirs)...)
	}
	if err := r.save(plan.Runtime, kept); err != nil {
		return fmt.Errorf("keeping what is there: %w", err)
	}
	for _, edit := range plan.Edits {
		if err := os.MkdirAll(filepath.Dir(edit.Path), 0o755); err != nil {
			return err
		}
		if err := replace(edit.Path, edit.After, edit.Mode); err != nil {
			return fmt.Errorf("%w; what was there is in %s, and weir runtime unconfigure puts it back", err,
				r.dir(plan.Runtime))
		}
	}
	return nil
}

// missing are the directories that have to be made for a path, the outer ones first, but for those known.
func missing(dir string, known []string) (dirs []string) {
	for ; !slices.Contains(known, dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dirs = append([]string{dir}, dirs...)
	}
	return dirs
}

// keep notes an edit, with a copy of what was there if it is the first of that file.
func (r Records) keep(kept *manifest, runtime string, edit Edit) error {
	after := hash(edit.After)
	at := slices.IndexFunc(kept.Files, func(c changed) bool { return c.Path == edit.Path })
	if at >= 0 {
		entry := &kept.Files[at]
		if !slices.Contains(entry.AfterSHA256, hash(edit.Before)) && entry.BeforeSHA256 != hash(edit.Before) {
			// Somebody has made it his own since: what is there now is what is to be put back.
			kept.Files = slices.Delete(kept.Files, at, at+1)
			return r.keep(kept, runtime, edit)
		}
		entry.AfterSHA256 = append(entry.AfterSHA256, after)
		return nil
	}
	entry := changed{Path: edit.Path, BeforeSHA256: hash(edit.Before), AfterSHA256: []string{after}, Import: edit.Import,
		Shared: edit.Shared}
	if edit.Before != nil {
		entry.Backup = r.freeName(runtime, filepath.Base(edit.Path))
		if err := replace(filepath.Join(r.dir(runtime), entry.Backup), edit.Before, 0o600); err != nil {
			return err
		}
	}
	kept.Files = append(kept.Files, entry)
	return nil
}

// freeName is a name for a copy that no other has.
func (r Records) freeName(runtime, base string) string {
	for i := 0; ; i++ {
		name := base + "." + strconv.Itoa(i)
		if _, err := os.Lstat(filepath.Join(r.dir(runtime), name)); errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
}

// Configured tells the mode in which a runtime was made to use weir; empty: it was not.
func (r Records) Configured(runtime string) (string, error) {
	kept, err := r.load(runtime)
	if err != nil {
		return "", err
	}
	return kept.Mode, nil
}

// Undo plans what puts back exactly what was there before all that Apply has written for a runtime. A
// file that somebody has changed since is left to him, with an error that is ErrChanged if nothing else is
// wrong; but of one in which weir had only put an import, that import is taken out.
func (r Records) Undo(runtime string) (Plan, error) {
	kept, err := r.load(runtime)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Runtime: runtime}
	var errs []error
	more := false
	for _, file := range slices.Backward(kept.Files) {
		now, err := Load(file.Path)
		if err == nil {
			err = r.relied(runtime, file)
		}
		if err == nil {
			var edit *Edit
			if edit, err = r.undo(runtime, file, now); edit != nil {
				plan.Edits = append(plan.Edits, *edit)
			}
		}
		if err != nil && !errors.Is(err, ErrChanged) {
			more = true
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if more {
		err = errors.New(err.Error()) // not to be forced: what was there would be forgotten
	}
	return plan, err
}

// relied is an error where another container runtime goes through weir-runtime and has found its settings
// as this one has written them.
func (r Records) relied(runtime string, file changed) error {
	if !file.Shared {
		return nil
	}
	others, err := os.ReadDir(string(r))
	for _, other := range others {
		var kept *manifest
		if other.Name() != runtime && err == nil {
			kept, err = r.load(other.Name())
		}
		if kept != nil && err == nil && kept.Mode == ModeRuntime &&
			!slices.ContainsFunc(kept.Files, func(c changed) bool { return c.Path == file.Path }) {
			return fmt.Errorf("%s: %s needs it as it is, too; unconfigure that first", file.Path, other.Name())
		}
	}
	return err
}

// undo is the edit that undoes one file's; nil: there is nothing to do.
func (r Records) undo(runtime string, file changed, now File) (*Edit, error) {
	is := hash(now.Text)
	if is == file.BeforeSHA256 {
		return nil, nil
	}
	edit := &Edit{Path: file.Path, Before: now.Text, Mode: 0o644}
	switch {
	case slices.Contains(file.AfterSHA256, is):
		if file.Backup == "" {
			return edit, nil
		}
		kept := filepath.Join(r.dir(runtime), file.Backup)
		before, err := os.ReadFile(kept)
		if err == nil && hash(before) != file.BeforeSHA256 {
			err = errors.New("it is damaged")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: the copy of what was there, %s, cannot be used: %w; take weir's part out by "+
				"hand, and try again", file.Path, kept, err)
		}
		edit.After = before
		return edit, nil
	case file.Import != "" && now.Text != nil:
		after, err := WithoutImport(now, file.Import)
		edit.After = after
		return edit, err
	case now.Text == nil:
		return nil, nil // it is gone, and nobody wants it back
	}
	return nil, fmt.Errorf("%s: %w since weir wrote it; take weir's part out by hand, or give --force to leave it",
		file.Path, ErrChanged)
}

// Revert writes the plan of Undo and forgets what was kept. Of directories that were made, those go in
// which there is nothing any more.
func (r Records) Revert(plan Plan) error {
	kept, err := r.load(plan.Runtime)
	if err != nil {
		return err
	}
	for _, edit := range plan.Edits {
		if err := edit.check(); err != nil {
			return err
		}
		if edit.After == nil {
			err = os.Remove(edit.Path)
		} else {
			err = replace(edit.Path, edit.After, edit.Mode)
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(kept.Dirs) {
		os.Remove(dir) // one that has something in it stays
	}
	return os.RemoveAll(r.dir(plan.Runtime))
}

func (r Records) load(runtime string) (*manifest, error) {
	path := r.manifest(runtime)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &manifest{Schema: manifestSchema}, nil
	}
	kept := &manifest{}
	if err == nil {
		err = json.Unmarshal(text, kept)
	}
	if err == nil && kept.Schema != manifestSchema {
		err = fmt.Errorf("of schema %d, where this version knows %d", kept.Schema, manifestSchema)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was there, %s: %w", path, err)
	}
	return kept, nil
}

func (r Records) save(runtime string, kept *manifest) error {
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return replace(r.manifest(runtime), append(text, '\n'), 0o600)
}

// hash names a file's contents; that of no file is empty.
func hash(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// replace writes a file in one step: whoever reads it finds the old one or the new. One that is there
// keeps its mode and owner.
func replace(path string, text []byte, mode fs.FileMode) (err error) {
	owner := [2]int{-1, -1}
	if info, err := os.Lstat(path); err == nil {
		mode, owner = info.Mode().Perm(), ownerOf(info)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+strings.TrimPrefix(filepath.Base(path), ".")+".weir-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil && owner[0] >= 0 {
		err = os.Lchown(f.Name(), owner[0], owner[1])
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("bringing %s to the disk: %w", path, err)
	}
	defer dir.Close()
	return dir.Sync() // or a power failure could keep a later file of the plan, and not this one
}

func ownerOf(info fs.FileInfo) [2]int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return [2]int{int(st.Uid), int(st.Gid)}
	}
	return [2]int{-1, -1}
}
