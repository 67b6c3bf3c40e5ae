// Package layout holds the rules of the tree as tests: which package may import which, and what
// every file must look like. They read source files only and need nothing built.
package layout

import (
	"bytes"
	"debug/elf"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	linesMax         = 800 // of a source file
	functionLinesMax = 70
)

// root is the top of the tree, from this package's folder.
const root = "../.."

// files returns every file of the tree that is tracked, or new and not ignored, as slash paths from
// the top. Without git it takes all but build outputs.
func files(t *testing.T) []string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	if out, err := list.Output(); err == nil {
		names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		return slices.DeleteFunc(names, func(name string) bool {
			info, err := os.Lstat(filepath.Join(root, name))
			return err != nil || !info.Mode().IsRegular()
		})
	}
	var names []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "build" || name == ".git"):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func withSuffix(names []string, suffixes ...string) []string {
	var found []string
	for _, name := range names {
		if slices.Contains(suffixes, filepath.Ext(name)) {
			found = append(found, name)
		}
	}
	return found
}

// Packages by how far down they lie. One imports only packages of its own height or below; the pure
// ones, at the bottom, import no package of the project at all.
var heights = map[string]int{
	"agent/sched": 0, "agent/ledger": 0, "agent/residency": 0, "agent/place": 0, "oci": 0,
	"oci/annotation": 1, "oci/cdi": 1, "oci/engine": 1, "oci/policy": 1, "oci/runtimeconf": 1,
	"agent/config": 1, "agent/store": 1, "agent/device": 1, "cgo/abi": 1,
	"agent/control": 2,
	"agent/events":  3, "agent/session": 3, "agent/metrics": 3, "agent/doctor": 3, "agent/top": 3,
	"agent/containerd": 3, "agent/cmd": 4, "hook": 4, "ebpf": 1,
}

// height finds the entry for a package by its longest prefix; -1 if there is none.
func height(pkg string) int {
	for prefix := pkg; prefix != "."; prefix = filepath.Dir(prefix) {
		if h, ok := heights[prefix]; ok {
			return h
		}
	}
	return -1
}

// imports calls visit for every import of the agent's and hooks' own Go files.
func imports(t *testing.T, visit func(file, pkg, imported string)) {
	t.Helper()
	for _, name := range withSuffix(files(t), ".go") {
		source, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.ImportsOnly)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, spec := range source.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			visit(name, filepath.Dir(name), path)
		}
	}
}

func TestPurePackagesImportNothingOfTheProject(t *testing.T) {
	imports(t, func(file, pkg, imported string) {
		if height(pkg) == 0 && strings.HasPrefix(imported, "weir/") && imported != "weir/"+pkg {
			t.Errorf("%s imports %s: a pure package imports nothing of the project", file, imported)
		}
	})
}

func TestImportsRunDownwards(t *testing.T) {
	imports(t, func(file, pkg, imported string) {
		target, ours := strings.CutPrefix(imported, "weir/")
		top, _, _ := strings.Cut(pkg, "/")
		if !ours || top == "tests" || strings.HasSuffix(file, "_test.go") {
			return
		}
		switch above, below := height(pkg), height(target); {
		case strings.HasPrefix(target, "tests/") && !strings.HasPrefix(pkg, "agent/cmd"):
			t.Errorf("%s imports %s: only the command line may reach into the tests", file, imported)
		case top == "cgo":
		case above < 0:
			t.Errorf("%s: package %s has no height; give it one here", file, pkg)
		case below > above:
			t.Errorf("%s imports %s, which lies above it", file, imported)
		}
	})
}

// Some things one package alone may know.
func TestOneOwner(t *testing.T) {
	owners := map[string][]string{
		"github.com/NVIDIA/go-nvml/": {"agent/device"},
		"net/http":                   {"agent/control", "agent/metrics"},
		"github.com/urfave/cli/":     {"agent/cmd"},
	}
	imports(t, func(file, pkg, imported string) {
		top, _, _ := strings.Cut(pkg, "/")
		if top == "tests" {
			return
		}
		for prefix, allowed := range owners {
			owned := slices.ContainsFunc(allowed, func(owner string) bool {
				return pkg == owner || strings.HasPrefix(pkg, owner+"/")
			})
			if strings.HasPrefix(imported, prefix) && !owned {
				t.Errorf("%s imports %s, which only %v may", file, imported, allowed)
			}
		}
	})
}

// In Go the comment may also stand right below the package clause, where it is not taken for the
// package's own documentation.
func TestFilesOpenWithAComment(t *testing.T) {
	clause := regexp.MustCompile(`^package \w+\n\s*`)
	for _, name := range withSuffix(files(t), ".go", ".c", ".h", ".cu", ".S", ".def", ".mk", ".sh") {
		text := strings.TrimSpace(string(read(t, name)))
		text = clause.ReplaceAllString(text, "")
		if first, rest, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, "#!") || first == "# shellcheck shell=bash" {
			text = rest
		}
		script := strings.HasSuffix(name, ".sh") || strings.HasSuffix(name, ".mk")
		if !strings.HasPrefix(text, "//") && !strings.HasPrefix(text, "/*") && (!script || !strings.HasPrefix(text, "# ")) {
			t.Errorf("%s does not open with a comment that gives its purpose", name)
		}
	}
}

func TestSourceFilesAreShort(t *testing.T) {
	for _, name := range withSuffix(files(t), ".go", ".c", ".h", ".cu", ".S", ".sh", ".py") {
		if n := bytes.Count(read(t, name), []byte("\n")); n > linesMax {
			t.Errorf("%s has %d lines, more than %d: give each subject its own file", name, n, linesMax)
		}
	}
}

func TestFunctionsAreShort(t *testing.T) {
	for _, name := range withSuffix(files(t), ".go") {
		set := token.NewFileSet()
		source, err := parser.ParseFile(set, name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, decl := range source.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || strings.HasSuffix(name, "_test.go") {
				continue
			}
			lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
			if lines > functionLinesMax {
				t.Errorf("%s: %s has %d lines, more than %d", name, function.Name.Name, lines, functionLinesMax)
			}
		}
	}
	// In C, formatted as here, a function is what lies between a line that ends in "{" and begins
	// at the margin and the next "}" at the margin.
	start := regexp.MustCompile(`^[a-zA-Z_].*\) \{$|^    *.*\) \{$`)
	for _, name := range withSuffix(files(t), ".c", ".cu") {
		begin, head := 0, ""
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			switch {
			case begin == 0 && start.MatchString(line):
				begin, head = i, line
			case line == "}":
				if begin > 0 && i-begin+1 > functionLinesMax {
					t.Errorf("%s:%d: %s has %d lines, more than %d", name, begin+1, head, i-begin+1, functionLinesMax)
				}
				begin = 0
			}
		}
	}
}

// A path of the machine on which the tree was made means nothing to anyone else.
func TestNoPathsOfThisMachine(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	forbidden := []string{top + "/"}
	if parent := filepath.Dir(top); strings.Count(parent, "/") > 1 {
		forbidden = append(forbidden, parent+"/")
	}
	if home, err := os.UserHomeDir(); err == nil && len(home) > len("/root") {
		forbidden = append(forbidden, home+"/")
	}
	for _, name := range files(t) {
		text := read(t, name)
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		for _, path := range forbidden {
			if bytes.Contains(text, []byte(path)) || strings.Contains(name, path) {
				t.Errorf("%s names %s, a path of this machine", name, path)
			}
		}
	}
}

func TestNothingBuiltIsTracked(t *testing.T) {
	for _, name := range files(t) {
		file, err := elf.Open(filepath.Join(root, name))
		if err != nil {
			continue
		}
		file.Close()
		if file.Machine != elf.EM_BPF {
			t.Errorf("%s is a build output", name)
		}
	}
}

func TestReadmeNamesTheCommands(t *testing.T) {
	screen := strings.Join(strings.SplitAfterN(string(read(t, "README.md")), "\n", 26)[:25], "")
	for _, want := range []string{"make demo", "make test", "simulated"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first screen of README.md does not say %q", want)
		}
	}
}
