// streams_test.go: captures, ends of streams and contexts, and calls that wait.

package hookstest

import (
	"fmt"
	"strings"
	"testing"
)

// expectStory fails the test unless a call comes to pass so; a wanted part may leave off the end of one.
func (p *program) expectStory(code uint64, export string, arguments []uint64, want ...string) {
	p.t.Helper()
	p.do("now answer %x", code)
	result, story := p.call(export, arguments...)
	p.do("now answer 0")
	if result != code {
		p.t.Errorf("%s: the driver answers %d, the wrapper %d", export, code, result)
	}
	right := len(story) == len(want)
	for i := range story {
		right = right && strings.HasPrefix(story[i]+",", want[i])
	}
	if !right {
		p.t.Errorf("%s with code %d: came to pass:\n%s\nwant:\n%s", export, code, strings.Join(story, "\n"), strings.Join(want, "\n"))
	}
}

func TestCaptures(t *testing.T) {
	p := start(t)
	parameters := prototypes(t)
	for _, export := range []string{"cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph"} {
		for i, export := range []string{export, export + "_ptsz"} {
			arguments := words(parameters[export])
			called := "call " + export + " " + listed(arguments)
			form := fmt.Sprintf("11 thread %d", i)
			p.expectStory(0, export, arguments, "capture begin "+form, called)
			p.expectStory(1, export, arguments, "capture begin "+form, called, "capture end "+form)
		}
	}
	for i, export := range []string{"cuStreamEndCapture", "cuStreamEndCapture_ptsz"} {
		arguments := []uint64{0x11, 0x22}
		called := "call " + export + " " + listed(arguments)
		form := fmt.Sprintf("11 thread %d", i)
		p.expectStory(0, export, arguments, called, "capture end "+form)
		// One that was found invalid has ended, one that is another thread's has not.
		p.expectStory(901, export, arguments, called, "capture end "+form)
		p.do("now capturing 1")
		p.expectStory(908, export, arguments, called)
		p.do("now capturing 0")
	}
}

func TestStreamEnds(t *testing.T) {
	p := start(t)
	for _, export := range []string{"cuStreamDestroy", "cuStreamDestroy_v2"} {
		p.expectStory(0, export, []uint64{0x110}, "stream ending 110", "call "+export+" 110,")
		for _, stream := range []uint64{0, 1, 2} { // the default ones
			p.expectStory(400, export, []uint64{stream}, fmt.Sprintf("call %s %x,", export, stream))
		}
	}
}

func TestCallsThatWait(t *testing.T) {
	p := start(t)
	for export, synced := range map[string]string{
		"cuStreamSynchronize":      "synced 110 thread 0 whole 0",
		"cuStreamSynchronize_ptsz": "synced 110 thread 1 whole 0",
		"cuStreamQuery":            "synced 110 thread 0 whole 0",
		"cuStreamQuery_ptsz":       "synced 110 thread 1 whole 0",
		"cuCtxSynchronize":         "synced 0 thread 0 whole 1",
		"cuEventSynchronize":       "",
		"cuEventQuery":             "",
	} {
		arguments := []uint64{0x110}
		if export == "cuCtxSynchronize" {
			arguments = nil
		}
		called := "call " + export + " " + listed(arguments)
		p.expectStory(600, export, arguments, called)
		if synced == "" {
			p.expectStory(0, export, arguments, called)
		} else {
			p.expectStory(0, export, arguments, called, synced)
		}
	}
}

func TestContextEnds(t *testing.T) {
	p := start(t)
	for _, export := range []string{"cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxDetach"} {
		p.expectStory(0, export, []uint64{0x110}, "context ending 110", "call "+export+" 110,")
	}
	p.do("now attached 1")
	p.expectStory(0, "cuCtxDetach", []uint64{0x110}, "call cuCtxDetach 110,")
}

// The primary context of device 0 is 100. Only what may be its last release ends it, and a reset.
func TestPrimaryContextEnds(t *testing.T) {
	p := start(t)
	p.do("now active 1")
	place := p.addresses("config 0 0 0 0 0 0 0 0")[0] // some memory
	retain := func(times int) {
		for range times {
			p.call("cuDevicePrimaryCtxRetain", place, 0)
		}
	}
	for _, suffix := range []string{"", "_v2"} {
		release, reset := "cuDevicePrimaryCtxRelease"+suffix, "cuDevicePrimaryCtxReset"+suffix
		retain(2)
		p.expectStory(0, release, []uint64{0}, "call "+release+" 0,")
		p.expectStory(1, release, []uint64{0}, "context ending 100", "call "+release+" 0,")
		p.expectStory(0, release, []uint64{0}, "context ending 100", "call "+release+" 0,")
		retain(2)
		p.expectStory(0, reset, []uint64{0}, "context ending 100", "call "+reset+" 0,")
		p.expectStory(0, release, []uint64{0}, "context ending 100", "call "+release+" 0,")
	}
	retain(1)
	p.do("now other 990")
	p.expectStory(0, "cuGreenCtxDestroy", []uint64{0x110}, "context ending 990", "call cuGreenCtxDestroy 110,")
}
