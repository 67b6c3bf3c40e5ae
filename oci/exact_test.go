package oci

// Texts of any bytes come back from JSON as they were.

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := Exact(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		text, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		got := Exact("before")
		if err := json.Unmarshal(text, &got); err != nil || got != given {
			t.Fatalf("%q became %q by %s: %v", given, got, text, err)
		}
	})
	if text, err := json.Marshal(Exact("/etc/ä")); err != nil || string(text) != `"/etc/ä"` {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{`7`, `{"base64":"?"}`, `[]`} {
		var got Exact
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s was read as %q", bad, got)
		}
	}
}
