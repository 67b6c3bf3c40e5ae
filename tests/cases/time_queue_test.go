package cases

// What operators are shown of GPU time, beside what the simulated machine's books and the programs themselves say.

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/node"
)

// TestQueueTellsWhatTheBooksTell: shares asked and got, time served, operations, waits and leases of two that take turns.
func TestQueueTellsWhatTheBooksTell(t *testing.T) {
	t.Parallel()
	const window = 4 * time.Second
	n := node.Start(t, node.Options{Config: always})
	flows := []*node.Flow{n.Weighted("light", 1), n.Weighted("heavy", 3)}
	loads := []playing{begin(flows[0], node.Hog), begin(flows[1], node.Hog)}
	time.Sleep(settle)
	look := func() (shown []control.Flow, had []time.Duration, at time.Time) {
		for _, f := range flows {
			shown, had = append(shown, f.Queue(0)), append(had, f.Busy(0))
		}
		return shown, had, time.Now()
	}
	attempt(t, func() string {
		before, hadBefore, began := look()
		time.Sleep(window)
		after, had, ended := look()
		took := ended.Sub(began)
		var sum time.Duration
		for i := range flows {
			sum += had[i] - hadBefore[i]
		}
		lags, slot := 0, time.Duration(0)
		for i, now := range after {
			asked, got := []float64{0.25, 0.75}[i], had[i]-hadBefore[i]
			share := got.Seconds() / sum.Seconds()
			served, busy := time.Duration(now.ServedNS-before[i].ServedNS), time.Duration(now.BusyNS-before[i].BusyNS)
			slot += served
			line := fmt.Sprintf("simulated: %s had %s in %s, %.3f of all; shown: served %s, busy %s, shares %v %v %v: %+v", now.Container,
				got, took, share, served, busy, deref(now.ShareGot1s), deref(now.ShareGot10s), deref(now.ShareGot60s), now)
			switch off := took.Seconds() * shareOff / 100; {
			case now.Mode != control.ModeLeased || now.ShareAsked == nil || *now.ShareAsked != asked || now.Weight != float64(2*i+1):
				return "asked or mode: " + line
			case served.Seconds() < got.Seconds()-off: // what is served is a turn's whole time, used or not
				return "served: " + line
			case math.Abs(busy.Seconds()-got.Seconds()) > 2*off: // with gaps that its own thread is late for
				return "busy: " + line
			case now.ShareGot10s == nil || math.Abs(*now.ShareGot10s-share) > shareOff/100:
				return "share of 10 s: " + line
			case now.ShareGot60s == nil || math.Abs(*now.ShareGot60s-share) > shareOff/100:
				return "share of 60 s: " + line
			case now.Leases <= before[i].Leases || now.Handovers <= before[i].Handovers || now.Handovers > now.Leases:
				return "leases: " + line
			case now.WaitMeanNS == nil || now.WaitWorstNS == nil || *now.WaitMeanNS <= 0 || *now.WaitWorstNS < *now.WaitMeanNS:
				return "waits: " + line
			case now.LagNS == nil || *now.LagNS > 0 || now.VirtualNS == nil || *now.VirtualNS <= *before[i].VirtualNS:
				return "lag: " + line
			}
			if *now.LagNS == 0 {
				lags++
			}
		}
		if math.Abs(slot.Seconds()-took.Seconds()) > 2*took.Seconds()*shareOff/100 {
			return fmt.Sprintf("in %s they were served %s together", took, slot)
		}
		if lags > 1 || math.Abs(float64(*after[0].VirtualNS-*after[1].VirtualNS)) > float64(100*time.Millisecond.Nanoseconds()) {
			return fmt.Sprintf("%d are furthest behind; virtual times %d and %d", lags, *after[0].VirtualNS, *after[1].VirtualNS)
		}
		return ""
	})
	for i, p := range loads {
		launches := p.Number("stop %d", p.load)
		n.Eventually(func() string {
			if shown := flows[i].Queue(0); shown.Submitted != launches || shown.Ungated != 0 || shown.Expired != 0 {
				return fmt.Sprintf("%s has launched %d kernels, shown is %+v", p.Name, launches, shown)
			}
			return ""
		})
	}
}

func deref(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// TestEventsOfTime: an operator is told, by the container's name, of one whose work waits for what the gate holds back, and
// of one that is held back for long, since it is far ahead.
func TestEventsOfTime(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Config: always})
	knot, hog := n.Weighted("knot", 1), n.Weighted("hog", 1)
	begin(knot, "knot=2 cost=1000000 gap=2000")
	begin(hog, node.Hog)
	named(n, "drain-stalled", "knot")
	named(n, "co-run", "knot")
	n.Eventually(func() string {
		if flow := knot.Queue(0); flow.Mode != control.ModeCoRun || flow.Reopened == 0 {
			return fmt.Sprintf("co-run it is shown as %+v", flow)
		}
		return ""
	})
	least := n.Weighted("least", 0.001)
	begin(least, node.Hog)
	named(n, "throttled", "least")
	for _, kind := range []string{"co-run", "throttled", "holder-gone"} { // a drain may stand still where the machine is busy
		if said := n.EventsOf(kind, "hog"); len(said) > 0 {
			t.Errorf("of who is at fault in nothing it is said: %+v", said)
		}
	}
}
