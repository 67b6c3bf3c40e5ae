package e2e

// `make install`: the programs, the units that start them, and the manual pages that the units and the documents name.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

func TestInstall(t *testing.T) {
	root, dir := node.Root(t), t.TempDir()
	arguments := []string{"-s", "-C", root, "install", "DESTDIR=" + dir, "PREFIX=/usr", "BUILD=" + filepath.Dir(node.Build(t, "weir"))}
	programs := []string{"weir", "weir-hook", "weir-runtime", "weir-runtime-create", "weir-containerd"}
	for _, program := range programs {
		arguments = append(arguments, "-o", node.Build(t, program)) // other tests use it: it is not to be made anew now
	}
	if out, err := exec.Command("make", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	for _, program := range programs {
		if info, err := os.Stat(filepath.Join(dir, "usr/bin", program)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v", program, err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/man/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		page = strings.TrimSuffix(filepath.Base(page), ".md")
		text, err := os.ReadFile(installedPage(dir, page))
		if err != nil || !strings.Contains(string(text), "\n.TH ") {
			t.Errorf("%s: %v, %.80q", page, err, text)
		}
	}
	units, err := filepath.Glob(filepath.Join(dir, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) != 2 {
		t.Fatalf("the units are %q, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range regexp.MustCompile(`man:([a-z.-]+)\((\d)\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(installedPage(dir, page[1]+"."+page[2])); err != nil {
				t.Errorf("%s names a page that is not there: %v", unit, err)
			}
		}
		for _, program := range regexp.MustCompile(`(?m)^ExecStart=(\S+)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(dir + program[1]); err != nil {
				t.Errorf("%s starts a program that is not there: %v", unit, err)
			}
		}
	}
}

// installedPage is where a page such as weir.1 is.
func installedPage(dir, page string) string {
	return filepath.Join(dir, "usr/share/man/man"+strings.TrimPrefix(filepath.Ext(page), "."), page)
}
