// version_test.go: the version is named in three places, which must agree.

package library

import (
	"os"
	"regexp"
	"testing"

	"weir/cgo/lib"
)

func TestVersionIsTheChangelogs(t *testing.T) {
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindSubmatch(changelog)
	if newest == nil || string(newest[1]) != Version {
		t.Errorf("version.h says %s, CHANGELOG.md %s", Version, newest)
	}
	if lib.Version != Version {
		t.Errorf("version.h says %s, lib/embed.go %s", Version, lib.Version)
	}
}
