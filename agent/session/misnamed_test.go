package session

// Tests of annotations of pods that name a container which is not there.

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control/ociapi"
)

// member is a container of the pod web-0.
func member(id, name string, others ...string) ociapi.Listed {
	return ociapi.Listed{Key: key(id), Name: name, PodNamespace: "team-a", Pod: "web-0", PodUID: "u", Others: others}
}

func TestPodsNames(t *testing.T) {
	type step struct {
		after time.Duration // since the beginning
		there []ociapi.Listed
		told  []string
	}
	train, helper := member("1", "train", "weir/memory.trian"), member("2", "helper", "weir/memory.trian", "weir/memory.train")
	good := member("3", "good", "weir/memory.train")
	late := misnamedWait + time.Second
	for name, steps := range map[string][]step{
		"nobody":        {{0, nil, nil}, {late, nil, nil}},
		"in no pod":     {{0, []ociapi.Listed{{Key: key("1"), Others: []string{"weir/memory.x"}}}, nil}, {late, nil, nil}},
		"named rightly": {{0, []ociapi.Listed{good}, nil}, {1, []ociapi.Listed{good, train}, nil}, {2, []ociapi.Listed{good}, nil}, {late, []ociapi.Listed{good}, []string{"weir/memory.trian [good train]"}}},
		"once": {{0, []ociapi.Listed{train}, nil}, {late, []ociapi.Listed{train}, []string{"weir/memory.trian [train]"}},
			{2 * late, []ociapi.Listed{train}, nil}, {3 * late, nil, nil}},
		"another comes late": {{0, []ociapi.Listed{train}, nil}, {misnamedWait - 1, []ociapi.Listed{train, helper}, nil},
			{late, []ociapi.Listed{train, helper}, nil}, {2 * late, []ociapi.Listed{train, helper}, []string{"weir/memory.trian [helper train]"}}},
		"its end": {{0, []ociapi.Listed{train}, nil}, {1, nil, []string{"weir/memory.trian [train]"}}, {2, nil, nil}},
	} {
		p, begin := make(pods), time.Unix(1, 0)
		for i, s := range steps {
			all := make(map[ociapi.Key]ociapi.Listed)
			for _, l := range s.there {
				all[l.Key] = l
			}
			p.see(all, begin.Add(s.after))
			var told []string
			for _, m := range p.due(begin.Add(s.after)) {
				told = append(told, fmt.Sprint(m.annotation, " ", m.has))
			}
			if diff := cmp.Diff(s.told, told); diff != "" {
				t.Errorf("%s, step %d: %s", name, i, diff)
			}
			if len(s.there) == 0 && len(p) > 0 {
				t.Errorf("%s, step %d: %d pods are kept that are over", name, i, len(p))
			}
		}
	}
}

func TestMisnamedInAPod(t *testing.T) {
	var ahead atomic.Int64
	b := start(t, hooked, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	train := member("1", "train", "weir/memory.trian")
	b.told(train)
	b.tellMisnamed()
	if b.hasEvent("misnamed") {
		t.Error("the pod may get more containers")
	}
	ahead.Store(int64(misnamedWait))
	b.tellMisnamed()
	b.wantEvent("misnamed", "annotation weir/memory.trian of pod web-0 asks for nobody", "but train;")
	b.tellMisnamed()
	if got := b.number("misnamed"); got != 1 {
		t.Errorf("%d events", got)
	}
}
