package layout

// What the documents claim is shown by tests that are there.

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestNamedTestsAreThere(t *testing.T) {
	there := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	for _, name := range withSuffix(files(t), ".go") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			there[match[1]] = true
		}
	}
	for _, document := range []string{"docs/THREAT_MODEL.md", "docs/KUBERNETES.md", "docs/ENFORCEMENT.md"} {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
			if !there[match[1]] {
				t.Errorf("%s names %s, and there is no such test", document, match[1])
			}
		}
	}
}
