package annotation

// Tests of what annotations are understood as, and of what is said about those that are not.

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden file anew")

func pointer[T any](value T) *T { return &value }

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        Request
	}{
		"nothing": {nil, Request{}},
		"of others": {map[string]string{
			"nvidia.com/gpu": "1", "weird/memory": "x", "weir": "y", "weir/memory.db": "nonsense",
			"weir/nonsense.db": "",
		}, Request{}},
		"the marker": {map[string]string{"weir/injected": "0123456789ab"}, Request{}},
		"everything": {map[string]string{
			"weir/memory": "8GiB", "weir/swap": "16Gi", "weir/weight": "0.5", "weir/report": "virtual",
			"weir/gpu": "auto", "weir/count": "2", "weir/profile": "1g.10gb+me", "weir/affinity": "llama-3.1",
			"weir/task": "training", "weir/memory-min": "4G", "weir/memory-max": "8589934592",
			"weir/weight-min": "0.25", "weir/weight-max": "4",
		}, Request{
			Memory: pointer[int64](8 << 30), Swap: pointer[int64](16 << 30), Weight: pointer(0.5),
			Report: "virtual", GPUs: []string{"auto"}, Count: 2, Profile: "1g.10gb+me",
			Affinity: "llama-3.1", Task: "training",
			MemoryMin: pointer[int64](4 << 30), MemoryMax: pointer[int64](8 << 30),
			WeightMin: pointer(0.25), WeightMax: pointer(4.0),
		}},
		"no swap": {map[string]string{"weir/swap": "off"}, Request{Swap: pointer[int64](0)}},
		"one's own comes first": {map[string]string{
			"weir/memory": "8GiB", "weir/memory.web": "4GiB", "weir/memory.db": "2GiB", "weir/weight": "3",
		}, Request{Memory: pointer[int64](4 << 30), Weight: pointer(3.0)}},
		"a bad one is no matter where one's own is there": {map[string]string{
			"weir/memory": "much", "weir/memory.web": "4GiB",
		}, Request{Memory: pointer[int64](4 << 30)}},
		"GPUs": {map[string]string{"weir/gpu": "0, 1:0,GPU-1f2e, MIG-GPU-1/2/0", "weir/count": "4"},
			Request{GPUs: []string{"0", "1:0", "GPU-1f2e", "MIG-GPU-1/2/0"}, Count: 4}},
	} {
		got, err := Parse(test.annotations, "web")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got.IsZero() != cmp.Equal(test.want, Request{}) {
			t.Errorf("%s: IsZero() = %v of %+v", name, got.IsZero(), got)
		}
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	for _, test := range []struct{ annotation, value, want string }{
		{"weir/memroy", "1", `unknown; accepted: weir/memory, weir/swap,`},
		{"weir/", "1", `it names nothing; accepted: weir/memory`},
		{"weir/memroy.web", "1", `unknown; accepted: weir/memory,`},
		{"weir/Memory", "8GiB", `unknown`},
		{"weir/memory.web", "8 gigs", `"8 gigs" is not a size: want a size such as 8GiB`},
		{"weir/memory", "", `an empty size: want a size such as 8GiB`},
		{"weir/memory", "-1", `"-1" is negative: want a size`},
		{"weir/memory", "0", `0 is no size here: want one above it`},
		{"weir/memory", "9000P", `is too large`},
		{"weir/memory-min", "1.5", `"1.5" is not a whole number of bytes: want a size such as 8GiB`},
		{"weir/memory-max", "x", `not a size`},
		{"weir/swap", "no", `"no" is not a size: want a size such as 8GiB, 512M, 64MB, or a number of bytes (K, M, G, T and P are powers of 1024), or off`},
		{"weir/weight", "", `"" is no weight: want a number from 0.001 to 1000`},
		{"weir/weight", "0", `"0" is no weight: want a number from 0.001 to 1000`},
		{"weir/weight", "NaN", `no weight`}, {"weir/weight", "1e3", `no weight`},
		{"weir/weight", "-2", `no weight`}, {"weir/weight", "1000.5", `to 1000 in digits`},
		{"weir/weight-min", "x", `no weight`}, {"weir/weight-max", "x", `no weight`},
		{"weir/report", "all", `"all": want cap (the cap is shown`},
		{"weir/gpu", "", `it is empty: want auto, or indices`},
		{"weir/gpu", "first", `"first" is no GPU: want auto, or indices`},
		{"weir/gpu", "0,", `"" is no GPU`}, {"weir/gpu", "0,0", `"0" is named twice: want each GPU once`},
		{"weir/gpu", "auto,1", `want auto alone`}, {"weir/gpu", "all", `no GPU`},
		{"weir/gpu", "../../dev", `no GPU`}, {"weir/gpu", "01", `no GPU`},
		{"weir/count", "0", `"0" is no number of GPUs: want one from 1 to 64`},
		{"weir/count", "two", `no number of GPUs`}, {"weir/count", "65", `from 1 to 64`},
		{"weir/profile", "small", `"small" is no profile of MIG instances: want one such as 1g.10gb`},
		{"weir/affinity", "a b", `want a word of at most 63 letters`},
		{"weir/task", "", `want a word`}, {"weir/task", strings.Repeat("x", 64), `want a word`},
	} {
		_, err := Parse(map[string]string{test.annotation: test.value}, "web")
		checkError(t, err, test.annotation, test.want)
	}
}

// What is said of every bad value, whole: each line names the annotation and says what is accepted.
func TestParseOfBadValues(t *testing.T) {
	const golden = "testdata/bad-values.golden"
	sizes := []string{"", "0", "-1", "0.3", "1.5KiBs", "8 gigs", "4GB?", "1e9", "8192P"}
	var said strings.Builder
	for _, test := range []struct {
		name   string
		values []string
	}{
		{"memory", sizes}, {"swap", append([]string{""}, sizes[2:]...)}, {"memory-min", sizes}, {"memory-max", sizes},
		{"weight", []string{"", "0", "-2", "NaN", "inf", "1e30", "1001", "0.0001"}}, {"weight-min", []string{""}}, {"weight-max", []string{""}},
		{"report", []string{"", "all"}},
		{"gpu", []string{"", "first", "0,", "0,0", "auto,1", strings.Repeat("0,", 4096), distinct(65)}},
		{"count", []string{"", "0", "65"}}, {"profile", []string{"", "small"}},
		{"affinity", []string{"", "a b"}}, {"task", []string{""}},
	} {
		for _, value := range test.values {
			_, err := Parse(map[string]string{"weir/" + test.name: value}, "web")
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "want ") {
				t.Errorf("weir/%s=%.70s: %v; want one line that says what is accepted", test.name, value, err)
			}
			fmt.Fprintln(&said, err)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(said.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), said.String()); diff != "" {
		t.Errorf("%s: %s", golden, diff)
	}
}

// What is said to be accepted is: of each kind the message about a bad value gives these examples.
func TestParseAcceptsItsExamples(t *testing.T) {
	sizes := []string{"8GiB", "512M", "64MB"}
	for name, test := range map[string]struct {
		said []string // in the message
		too  []string // what else it describes
	}{
		"memory": {sizes, []string{"1", "64mb", "1.5 GiB", "2Ki", "1P", "1T", "512B"}}, "memory-min": {sizes, nil}, "memory-max": {sizes, nil},
		"swap":   {append(sizes, "off"), []string{"0"}},
		"weight": {[]string{"2", "0.5"}, []string{"1000", "0.001"}}, "weight-min": {[]string{"2", "0.5"}, nil},
		"weight-max": {[]string{"2", "0.5"}, nil},
		"report":     {[]string{"cap", "virtual"}, nil},
		"gpu":        {[]string{"auto", "0", "0,1", "1:0", "GPU-5a3cb7e1", "MIG-9d2e4f60"}, []string{"0, 1:0,GPU-1f2e"}},
		"count":      {[]string{"1", "64"}, nil}, "profile": {[]string{"1g.10gb", "1g.10gb+me"}, []string{"2g.20gb+gfx", "7g.80gb"}},
		"affinity": {nil, []string{"llama-3.1", "A_b", strings.Repeat("x", 63)}}, "task": {nil, []string{"training", "1"}},
	} {
		_, err := Parse(map[string]string{"weir/" + name: "?"}, "web")
		if err == nil {
			t.Errorf("weir/%s=? is accepted", name)
			continue
		}
		for _, value := range test.said {
			if !strings.Contains(err.Error(), value) {
				t.Errorf("%v: it does not say %q", err, value)
			}
		}
		for _, value := range append(test.said, test.too...) {
			if _, err := Parse(map[string]string{"weir/" + name: value}, "web"); err != nil {
				t.Error(err)
			}
		}
	}
}

// distinct names so many GPUs.
func distinct(count int) string {
	indices := make([]string, count)
	for i := range indices {
		indices[i] = fmt.Sprint(i)
	}
	return strings.Join(indices, ",")
}

func TestParseFindsContradictions(t *testing.T) {
	for _, test := range []struct {
		first, firstValue, second, secondValue, named, want string
	}{
		{"memory", "2GiB", "memory-min", "4GiB", "memory-min", "4GiB is more than weir/memory, 2GiB"},
		{"memory", "8GiB", "memory-max", "4GiB", "memory", "8GiB is more than weir/memory-max, 4GiB"},
		{"memory-min", "8GiB", "memory-max", "4GiB", "memory-min", "more than weir/memory-max"},
		{"weight", "1", "weight-min", "2", "weight-min", "2 is more than weir/weight, 1"},
		{"weight", "3", "weight-max", "2", "weight", "3 is more than weir/weight-max, 2"},
		{"weight-min", "3", "weight-max", "2", "weight-min", "more than weir/weight-max"},
		{"gpu", "0,1", "count", "3", "count", "3, but weir/gpu names 2"},
		{"gpu", "0", "profile", "1g.10gb", "profile", "weir/gpu names one"},
	} {
		_, err := Parse(map[string]string{
			"weir/" + test.first + ".web": test.firstValue, "weir/" + test.second + ".web": test.secondValue,
		}, "web")
		checkError(t, err, "weir/"+test.named+".web", test.want)
	}
}

func checkError(t *testing.T, err error, annotation, want string) {
	t.Helper()
	var typed *Error
	switch {
	case !errors.As(err, &typed):
		t.Errorf("%s: %v is no *Error", annotation, err)
	case typed.Annotation != annotation || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), annotation) || !strings.Contains(err.Error(), want):
		t.Errorf("%s: %v\nwant one line with the annotation and %q", annotation, err, want)
	}
}

// Whatever stands in annotations: an error is one line that names one of them, and what is accepted is
// accepted alone, too.
func TestParseAnything(t *testing.T) {
	names := Names()
	rapid.Check(t, func(t *rapid.T) {
		annotations := rapid.MapOfN(
			rapid.Custom(func(t *rapid.T) string {
				name := rapid.OneOf(rapid.SampledFrom(names), rapid.StringMatching(`[a-z.-]{0,8}`)).Draw(t, "name")
				return "weir/" + name + rapid.SampledFrom([]string{"", ".web", ".db"}).Draw(t, "of")
			}),
			rapid.OneOf(rapid.SampledFrom([]string{"8GiB", "1", "2", "0", "auto", "off", "cap", "1g.5gb", "x"}),
				rapid.String()), 0, 6).Draw(t, "annotations")
		request, err := Parse(annotations, "web")
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q", err)
			}
			if _, ours := annotations[typed.Annotation]; !ours {
				t.Fatalf("%v names none of %q", err, annotations)
			}
			return
		}
		if again, err := Parse(annotations, "web"); err != nil || !cmp.Equal(request, again) {
			t.Fatalf("then %+v, %v", again, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"8GiB", "auto", "0,1:0", "GPU-1", "1g.10gb", "off", "1.5", "training", ""} {
		f.Add("memory", seed)
		f.Add("gpu.web", seed)
		f.Add("profile", seed)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		_, err := Parse(map[string]string{"weir/" + name: value}, "web")
		if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 2000) {
			t.Errorf("%q=%q: %q", name, value, err)
		}
	})
}

func TestMisnamed(t *testing.T) {
	for _, annotations := range []map[string]string{
		nil, {"weir/memory": "1", "weir/memory.web": "1", "weir/injected": "web", "other/memory.db": "1"},
	} {
		if err := Misnamed(annotations, "web"); err != nil {
			t.Errorf("%v: %v", annotations, err)
		}
	}
	checkError(t, Misnamed(map[string]string{"weir/memory.": "1"}, "web"), "weir/memory.", `there is no container ""`)
	err := Misnamed(map[string]string{"weir/memory.wbe": "1", "weir/swap.wbe": "1", "weir/gpu": "0"}, "web")
	checkError(t, err, "weir/memory.wbe",
		`there is no container "wbe": this one is "web", and in no pod; accepted: weir/memory, or weir/memory.web`)
}
