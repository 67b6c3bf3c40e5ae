package store

// Tests of what contexts take: kept, and never a reason not to start.

import (
	"os"
	"path/filepath"
	"testing"
)

func TestContextSizesSurvive(t *testing.T) {
	dir := t.TempDir()
	sizes, err := LoadContextSizes(dir)
	if err != nil || sizes.Of("A100", 80<<30, "550") != 0 {
		t.Fatalf("of none: %d, %v", sizes.Of("A100", 80<<30, "550"), err)
	}
	for _, s := range []ContextSize{
		{"A100", 80 << 30, "550", 400 << 20}, {"A100", 40 << 30, "550", 300 << 20},
		{"A100", 80 << 30, "560", 500 << 20}, {"A100", 80 << 30, "550", 410 << 20},
	} {
		if err := sizes.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	again, err := LoadContextSizes(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gpu    string
		memory int64
		driver string
		want   int64
	}{
		{"A100", 80 << 30, "550", 410 << 20}, {"A100", 40 << 30, "550", 300 << 20},
		{"A100", 80 << 30, "560", 500 << 20}, {"H100", 80 << 30, "550", 0}, {"A100", 80 << 30, "", 0},
	} {
		if got := again.Of(c.gpu, c.memory, c.driver); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "contexts.json")); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestDamagedContextSizes are reported, and written anew with the next.
func TestDamagedContextSizes(t *testing.T) {
	for name, text := range map[string]string{
		"cut":          `{"schema": 1, "sizes": [{"gpu": "A1`,
		"another time": `{"schema": 2, "sizes": []}`,
		"empty":        ``,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "contexts.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sizes, err := LoadContextSizes(dir)
		if err == nil || sizes == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := sizes.Set(ContextSize{"A100", 1 << 30, "550", 5}); err != nil {
			t.Fatal(err)
		}
		if again, err := LoadContextSizes(dir); err != nil || again.Of("A100", 1<<30, "550") != 5 {
			t.Errorf("%s: after the next: %v", name, err)
		}
	}
}

// TestOddContextSizes: what no context takes is not believed.
func TestOddContextSizes(t *testing.T) {
	dir := t.TempDir()
	text := `{"schema": 1, "sizes": [
		{"gpu": "a", "memory_bytes": 10, "context_bytes": 11},
		{"gpu": "b", "memory_bytes": 10, "context_bytes": -1},
		{"gpu": "c", "memory_bytes": 10, "context_bytes": 0},
		{"gpu": "d", "memory_bytes": 10, "context_bytes": 10}]}`
	if err := os.WriteFile(filepath.Join(dir, "contexts.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sizes, err := LoadContextSizes(dir)
	if err != nil {
		t.Fatal(err)
	}
	for gpu, want := range map[string]int64{"a": 0, "b": 0, "c": 0, "d": 10} {
		if got := sizes.Of(gpu, 10, ""); got != want {
			t.Errorf("GPU %s: %d", gpu, got)
		}
	}
}
