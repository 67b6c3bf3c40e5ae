// hooks_test.go: what each wrapper says to the scheduler of time, and that the driver gets what the program gave.

package hookstest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exports are those of a class that have wrappers, by symbols.def.
func exports(t *testing.T, class string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../symbols.def")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^HOOK\((\w+), \w+, \d+, \w+, `+class+`\)$`).FindAllSubmatch(text, -1) {
		names = append(names, string(row[1]))
	}
	if len(names) == 0 {
		t.Fatalf("no row of class %s", class)
	}
	return names
}

// prototypes are the parameters of the driver's functions, as the library's headers have them.
func prototypes(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, header := range []string{"../cuda.h", "../cuda_work.h"} {
		text, err := os.ReadFile(header)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`typedef CUresult\s+(\w+)_fn\(([^;]*)\);`).FindAllStringSubmatch(string(text), -1) {
			for _, parameter := range strings.Split(match[2], ",") {
				found[match[1]] = append(found[match[1]], strings.Join(strings.Fields(parameter), " "))
			}
		}
		for _, match := range regexp.MustCompile(`typedef (\w+)_fn (\w+)_fn;`).FindAllStringSubmatch(string(text), -1) {
			found[match[2]] = found[match[1]]
		}
	}
	return found
}

// described are the exports whose arguments are in a structure that the library reads.
var described = regexp.MustCompile(`^cuMemcpy[23]D|^cuLaunchKernelEx|MultiDevice$`)

// untimed are exports of classes LAUNCH and COPY that take no time of the GPU.
var untimed = regexp.MustCompile(`^cuGraphUpload(_ptsz)?$`)

// withHost are copies with an end in the host, by their names; also those between any addresses, since the words that
// they get are no device's.
var withHost = regexp.MustCompile(`^cuMemcpy([AD]toH|Hto[AD]|(Async)?(_|$))`)

func perThread(export string) int {
	if strings.HasSuffix(export, "_ptsz") || strings.HasSuffix(export, "_ptds") {
		return 1
	}
	return 0
}

// words are different ones for so many parameters, each small enough for any type.
func words(parameters []string) (words []uint64) {
	for i := range parameters {
		words = append(words, uint64(0x11*(i+1)))
	}
	return words
}

// A timed is what a wrapper says of one call.
type timed struct {
	stream         uint64
	perThread, how int
}

const gated, charged = 0, 1

// expectTimed fails the test unless the call was made once, with these words, between begin and end, its result was
// returned, and nothing else came to pass but for what is named.
func (p *program) expectTimed(export string, arguments []uint64, want timed, more ...string) {
	p.t.Helper()
	const answer = 0x2bc
	for _, code := range []uint64{0, answer} {
		p.do("now answer %x", code)
		result, story := p.call(export, arguments...)
		if code != 0 {
			more = nil // of calls that succeed only
		}
		if result != code {
			p.t.Errorf("%s: the driver answers %d, the wrapper %d", export, code, result)
		}
		if len(story) != 3+len(more) || !slices.Equal(story[3:], more) {
			p.t.Errorf("%s: came to pass:\n%s", export, strings.Join(story, "\n"))
			continue
		}
		var number, perThread, how int
		var stream uint64
		if _, err := fmt.Sscanf(story[0], "begin %d stream %x thread %d how %d", &number, &stream, &perThread, &how); err != nil ||
			(timed{stream, perThread, how}) != want {
			p.t.Errorf("%s: %s, want %+v (%v)", export, story[0], want, err)
		}
		if !strings.HasPrefix(story[1]+",", "call "+export+" "+listed(arguments)) {
			p.t.Errorf("%s: %s, want %s", export, story[1], listed(arguments))
		}
		if end := fmt.Sprintf("end %d %d", number, code); story[2] != end {
			p.t.Errorf("%s: %s, want %s", export, story[2], end)
		}
	}
	p.do("now answer 0")
}

func listed(words []uint64) (text string) {
	for _, word := range words {
		text += fmt.Sprintf("%x,", word)
	}
	return text
}

// Rows T1 and T6: each launch, copy and set, in each form, says so once, with its stream and its form, and whether it
// may be held back; the driver gets the program's words, and the program the driver's answer.
func TestT1T6EveryForm(t *testing.T) {
	p, parameters := start(t), prototypes(t)
	for _, export := range slices.Concat(exports(t, "LAUNCH"), exports(t, "COPY")) {
		if described.MatchString(export) || untimed.MatchString(export) {
			continue
		}
		if len(parameters[export]) == 0 {
			t.Fatalf("%s is not declared", export)
		}
		arguments := words(parameters[export])
		want := timed{perThread: perThread(export)}
		if at := slices.Index(parameters[export], "CUstream stream"); at >= 0 {
			want.stream = arguments[at]
		} else if strings.Contains(export, "Async") {
			t.Errorf("%s has no stream", export)
		}
		var more []string
		if withHost.MatchString(export) {
			want.how = charged
		}
		if strings.Contains(export, "toH") && !strings.Contains(export, "Async") {
			more = []string{fmt.Sprintf("synced 0 thread %d whole 0", want.perThread)}
		}
		p.expectTimed(export, arguments, want, more...)
	}
}

// The forms with a configuration: its stream counts, and without one the driver is asked all the same.
func TestT1LaunchEx(t *testing.T) {
	p := start(t)
	config := p.addresses("config 321 1 2 3 4 5 6 7")[0]
	for _, export := range []string{"cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"} {
		p.expectTimed(export, []uint64{config, 0x22, 0x33, 0x44}, timed{0x321, perThread(export), gated})
		p.expectUntimed(export, []uint64{0, 0x22, 0x33, 0x44})
	}
}

// expectUntimed fails the test unless the driver was called with these words and nothing else came to pass.
func (p *program) expectUntimed(export string, arguments []uint64) {
	p.t.Helper()
	p.do("now answer 1")
	result, story := p.call(export, arguments...)
	if result != 1 || len(story) != 1 || !strings.HasPrefix(story[0]+",", "call "+export+" "+listed(arguments)) {
		p.t.Errorf("%s %s: result %d, came to pass:\n%s", export, listed(arguments), result, strings.Join(story, "\n"))
	}
	p.do("now answer 0")
}

// A launch on several devices goes through the gate of each, in the order of the devices, and is counted for each,
// before the one call. Where one is closed, it leaves those before it, waits for that one, and begins anew.
func TestT1LaunchOnSeveralDevices(t *testing.T) {
	const export = "cuLaunchCooperativeKernelMultiDevice"
	p := start(t)
	launches := p.addresses("launches 310 120 230")[0]
	p.do("now closed 2")
	_, story := p.call(export, launches, 3, 0x33)
	want := []string{
		"on 0 try 1 stream 120 thread 0 open", "on 1 try 2 stream 230 thread 0 closed", "end 1 0", "await 2",
		"on 0 try 3 stream 120 thread 0 open", "on 1 try 4 stream 230 thread 0 open", "on 2 try 5 stream 310 thread 0 open",
		"count 3 on 0 stream 120 thread 0 what f", "count 4 on 1 stream 230 thread 0 what f", "count 5 on 2 stream 310 thread 0 what f",
		"call " + export + fmt.Sprintf(" %x,3,33,", launches), "end 5 0", "end 4 0", "end 3 0",
	}
	if len(story) != len(want) {
		t.Fatalf("came to pass:\n%s", strings.Join(story, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(story[i], want[i]) {
			t.Errorf("%s, want %s", story[i], want[i])
		}
	}
	for _, arguments := range [][]uint64{{0, 3, 0x33}, {launches, 0, 0x33}, {launches, 1 << 20, 0x33}} {
		p.expectUntimed(export, arguments)
	}
}

// Kinds of memory, as the structures name them.
const host, device, array, unified = 1, 2, 3, 4

// Copies that are described: where both ends are on a device they may be held back, and those only.
func TestCopiesByTheirEnds(t *testing.T) {
	p := start(t)
	seen := 0
	for _, export := range exports(t, "COPY") {
		if !described.MatchString(export) {
			continue
		}
		seen++
		arguments := make([]uint64, 1, 2)
		want := timed{perThread: perThread(export)}
		async := strings.Contains(export, "Async")
		if async {
			want.stream = 0x77
			arguments = append(arguments, want.stream)
		}
		p.expectUntimed(export, arguments) // without a structure
		form := 0
		if strings.HasPrefix(export, "cuMemcpy3D") {
			form = 2
		}
		if !strings.Contains(export, "_v2") && !strings.Contains(export, "Peer") {
			form++ // of before 3.2
		}
		for _, to := range []int{host, device, array, unified} {
			for _, from := range []int{host, device, array, unified} {
				for _, addresses := range [][2]uint64{{0x1100, 0x1200}, {0x1100, 0x99}, {0x99, 0x1200}, {0x99, 0x99}} {
					on := func(kind int, address uint64) bool {
						return kind == device || kind == array || (kind == unified && address != 0x99)
					}
					arguments[0] = p.addresses("copy %x %x %x %x 40 8 2", to, from, addresses[0], addresses[1])[form]
					want.how = charged
					var more []string
					switch {
					case on(to, addresses[0]) && on(from, addresses[1]):
						want.how = gated
					case on(from, addresses[1]) && !async:
						more = []string{fmt.Sprintf("synced 0 thread %d whole 0", want.perThread)}
					}
					p.expectTimed(export, arguments, want, more...)
				}
			}
		}
	}
	if seen != 19 {
		t.Errorf("%d exports are described by structures", seen)
	}
}

// A copy between any two addresses may be held back if the driver knows both as a device's. Where nothing is
// counted, it is not asked.
func TestCopyBetweenAnyAddresses(t *testing.T) {
	p := start(t)
	for _, export := range []string{"cuMemcpy", "cuMemcpy_ptds", "cuMemcpyAsync", "cuMemcpyAsync_ptsz"} {
		for addresses, how := range map[[2]uint64]int{
			{0x1100, 0x1200}: gated, {0x1100, 0x99}: charged, {0x99, 0x1200}: charged, {0x99, 0x99}: charged,
		} {
			arguments := []uint64{addresses[0], addresses[1], 0x33}
			want := timed{perThread: perThread(export), how: how}
			var more []string
			if strings.Contains(export, "Async") {
				want.stream = 0x77
				arguments = append(arguments, want.stream)
			} else if addresses[0] == 0x99 && addresses[1] != 0x99 {
				more = []string{fmt.Sprintf("synced 0 thread %d whole 0", want.perThread)}
			}
			p.expectTimed(export, arguments, want, more...)
		}
	}
	p.do("mode 2") // passes through
	p.expectTimed("cuMemcpy", []uint64{0x1100, 0x1200, 0x33}, timed{how: charged})
}

// key is what a call says of itself: what, size and shape.
func (p *program) key(export string, arguments ...uint64) string {
	p.t.Helper()
	_, story := p.call(export, arguments...)
	_, key, found := strings.Cut(story[0], " what ")
	if !found {
		p.t.Fatalf("%s: %v", export, story)
	}
	return key
}

// Launches of a kernel that differ in what decides how long they take have different keys, and only those.
func TestKeysTellLaunchesApart(t *testing.T) {
	p := start(t)
	launch := []uint64{0xf0, 1, 1, 1, 1, 1, 1, 0, 0x99, 0xaa, 0xbb}
	keys := map[string]bool{p.key("cuLaunchKernel", launch...): true}
	for i := range launch[:8] {
		changed := slices.Clone(launch)
		changed[i] += 2
		keys[p.key("cuLaunchKernel", changed...)] = true
	}
	if len(keys) != 9 {
		t.Errorf("%d keys of launches that differ in function, grid, block or shared memory", len(keys))
	}
	for i := range launch[8:] {
		changed := slices.Clone(launch)
		changed[8+i] += 2
		keys[p.key("cuLaunchKernel", changed...)] = true
		keys[p.key("cuLaunchKernel_ptsz", changed...)] = true
	}
	config := p.addresses("config 321 1 1 1 1 1 1 0")[0]
	keys[p.key("cuLaunchKernelEx", config, 0xf0, 0, 0)] = true
	keys[p.key("cuLaunchCooperativeKernel", launch[:10]...)] = true
	if len(keys) != 9 {
		t.Errorf("%d keys in all: stream, form or parameters count", len(keys))
	}
}

// Copies of about the same size have one key, those of other sizes and kinds another.
func TestKeysTellCopiesApart(t *testing.T) {
	p := start(t)
	const mib = 1 << 20
	keys := map[string]bool{}
	for _, export := range []string{"cuMemcpyDtoD_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemsetD8_v2"} {
		keys[p.key(export, 0x11, 0x22, mib)] = true
		keys[p.key(export, 0x11, 0x22, mib+4096)] = true
		keys[p.key(export, 0x11, 0x22, 2*mib)] = true
	}
	keys[p.key("cuMemcpyDtoDAsync_v2_ptsz", 0x33, 0x44, mib, 0x55)] = true
	keys[p.key("cuMemsetD32_v2", 0x11, 0x22, mib/4)] = true
	if len(keys) != 8 {
		t.Errorf("%d keys of 4 kinds of 2 sizes", len(keys))
	}
	// Rows of another length.
	wide := p.key("cuMemsetD2D8_v2", 0x11, 4096, 0, 4096, 256)
	if narrow := p.key("cuMemsetD2D8_v2", 0x11, 4096, 0, 64, 256*64); wide == narrow {
		t.Errorf("rows of 4096 and 64 bytes: both %s", wide)
	}
}

// Of a graph that takes memory, only the launch takes time: not its upload.
func TestGraphsWithMemory(t *testing.T) {
	p := start(t)
	p.do("now recalled 1")
	for _, suffix := range []string{"", "_ptsz"} {
		_, story := p.call("cuGraphLaunch"+suffix, 0x11, 0x22)
		want := []string{"call cuGraphUpload" + suffix + " 11,22,",
			fmt.Sprintf("begin 1 stream 22 thread %d how 0 what 11 size 0 shape 0", len(suffix)/5),
			"call cuGraphLaunch" + suffix + " 11,22,", "end 1 0"}
		want[1] = strings.Replace(want[1], "begin 1", fmt.Sprintf("begin %d", 1+len(suffix)/5), 1)
		want[3] = fmt.Sprintf("end %d 0", 1+len(suffix)/5)
		if len(story) != len(want) {
			t.Fatalf("came to pass:\n%s", strings.Join(story, "\n"))
		}
		for i := range want {
			if !strings.HasPrefix(story[i], want[i]) {
				t.Errorf("%s, want %s", story[i], want[i])
			}
		}
	}
	p.do("now recalled 0")
	for _, export := range []string{"cuGraphUpload", "cuGraphUpload_ptsz"} {
		p.expectUntimed(export, []uint64{0x11, 0x22})
	}
}
