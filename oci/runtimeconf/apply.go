package runtimeconf

// Applying a plan, and undoing it. A manifest in the state directory is on the disk before the first file
// is written, with the hash of each file as it was and as it will be; what was there lies beside it. So a
// kill at any moment leaves what can be undone.

import (
	"bytes"
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
	"syscall"
)

// manifestSchema is the version of the manifest.
const manifestSchema = 1

// manifest is what was written for one container runtime.
type manifest struct {
	Schema int    `json:"schema"`
	Mode   string `json:"mode"`
	// Reads is that of the plan.
	Reads string    `json:"reads,omitempty"`
	Files []changed `json:"files"`
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
	ImportLine   bool     `json:"import_line,omitempty"`
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
		return File{}, fmt.Errorf("reading %s: %w; nothing is written", path, reason(err))
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, _ := os.Readlink(path)
		return File{}, fmt.Errorf("%s is a symbolic link to %s, so another tool makes it; nothing is written: name the "+
			"file itself, or configure that tool", path, target)
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is no regular file; nothing is written", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w; nothing is written", path, reason(err))
	}
	if text == nil {
		text = []byte{}
	}
	return File{path, text}, nil
}

// Apply writes a plan. Nothing is written where a file is not as the plan found it, or one cannot be written.
func (r Records) Apply(plan Plan, mode string) error {
	if len(plan.Edits) == 0 {
		return nil
	}
	for _, edit := range plan.Edits {
		if err := edit.check(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.dir(plan.Runtime), 0o700); err != nil {
		return fmt.Errorf("keeping what is there in %s: %w; nothing is written", r, reason(err))
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	before, err := r.load(plan.Runtime)
	if err != nil {
		return err
	}
	kept, err := r.load(plan.Runtime) // another copy
	if err != nil {
		return err
	}
	err = r.write(plan, mode, kept)
	if errors.Is(err, errPartial) {
		return fmt.Errorf("%w; what was there is in %s, and weir runtime unconfigure puts it back", err, r.dir(plan.Runtime))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; nothing is changed", err), r.forgetOr(plan.Runtime, before, kept))
	}
	return nil
}

// write keeps what is there, and does a plan's edits.
func (r Records) write(plan Plan, mode string, kept *manifest) error {
	kept.Mode, kept.Reads = mode, plan.Reads
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
		sweep(edit.Path)
		if err := os.MkdirAll(filepath.Dir(edit.Path), 0o755); err != nil {
			return fmt.Errorf("making the directory of %s: %w", edit.Path, reason(err))
		}
	}
	return writeAll(plan.Edits)
}

// TakeBack undoes what Apply has just written of a plan, and no more: mode is that of before it.
func (r Records) TakeBack(plan Plan, mode string) error {
	if err := takeBack(plan.Edits); err != nil {
		return err
	}
	kept, err := r.load(plan.Runtime)
	if err != nil {
		return err
	}
	for _, edit := range plan.Edits { // what keep has noted of it
		at := slices.IndexFunc(kept.Files, func(c changed) bool { return c.Path == edit.Path })
		if at < 0 {
			continue
		}
		entry := &kept.Files[at]
		if entry.AfterSHA256 = entry.AfterSHA256[:len(entry.AfterSHA256)-1]; len(entry.AfterSHA256) == 0 {
			kept.Files = slices.Delete(kept.Files, at, at+1)
		}
	}
	kept.Mode = mode
	return r.forgetOr(plan.Runtime, kept, kept)
}

// forgetOr goes back to what was kept before, from what is kept now.
func (r Records) forgetOr(runtime string, before, now *manifest) error {
	if len(before.Files) > 0 {
		return r.save(runtime, before)
	}
	return r.forget(runtime, now)
}

// forget removes all that is kept of a runtime, and the directories that were made for it, as far as nothing
// is in them.
func (r Records) forget(runtime string, kept *manifest) error {
	for _, file := range kept.Files {
		sweep(file.Path)
	}
	for _, dir := range slices.Backward(kept.Dirs) {
		os.Remove(dir) // one that has something in it stays
	}
	if err := os.RemoveAll(r.dir(runtime)); err != nil {
		return fmt.Errorf("removing %s, which is needed no more: %w", r.dir(runtime), reason(err))
	}
	return nil
}

// lock keeps two of these commands from writing at a time.
func (r Records) lock() (unlock func(), err error) {
	dir, err := os.Open(string(r))
	if err == nil {
		if err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
			dir.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", r, reason(err))
	}
	return func() { dir.Close() }, nil
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
		ImportLine: edit.ImportLine, Shared: edit.Shared}
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
	plan := Plan{Runtime: runtime, Reads: kept.Reads}
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

// Drift tells what of a configured runtime is no longer as weir wrote it, a line each.
func (r Records) Drift(runtime string) (lines []string, err error) {
	kept, err := r.load(runtime)
	if err != nil {
		return nil, err
	}
	for _, file := range kept.Files {
		now, err := Load(file.Path)
		is := hash(now.Text)
		switch {
		case err != nil:
			lines = append(lines, err.Error())
		case is == file.AfterSHA256[len(file.AfterSHA256)-1]:
		case is == file.BeforeSHA256:
			lines = append(lines, file.Path+" is as it was before weir")
		case now.Text == nil:
			lines = append(lines, file.Path+" is gone")
		case file.Import == "":
			lines = append(lines, file.Path+" has been changed since")
		default:
			if has, err := Imports(now, file.Import); err == nil && !has {
				lines = append(lines, file.Path+" no longer imports "+file.Import)
			} else if err != nil {
				lines = append(lines, file.Path+" cannot be read as TOML")
			}
		}
	}
	return lines, nil
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
		if err == nil && file.ImportLine {
			after, err = withoutLine(File{file.Path, after})
		}
		if err != nil || bytes.Equal(after, now.Text) {
			return nil, err
		}
		edit.After = after
		return edit, nil
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
	if err != nil || len(kept.Files) == 0 {
		return err
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = writeAll(plan.Edits)
	if errors.Is(err, errPartial) {
		return fmt.Errorf("%w; what was there is in %s: call it again", err, r.dir(plan.Runtime))
	}
	if err != nil {
		return fmt.Errorf("%w; nothing is changed", err)
	}
	return r.forget(plan.Runtime, kept)
}

func (r Records) load(runtime string) (*manifest, error) {
	path := r.manifest(runtime)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &manifest{Schema: manifestSchema}, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s, which says what was there: %w", path, reason(err))
	}
	kept := &manifest{}
	if err == nil {
		err = json.Unmarshal(text, kept)
	}
	if err == nil && kept.Schema != manifestSchema {
		err = fmt.Errorf("of schema %d, where this version knows %d", kept.Schema, manifestSchema)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which says what was there: %w; nothing is written: if it is damaged, take weir's part out "+
			"by hand, remove %s, and try again", path, reason(err), r.dir(runtime))
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
