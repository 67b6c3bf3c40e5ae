package swap

// Containers above their caps on the card: how long, how far, and whether that is the overshoot of page faults that was
// told. Of a sample above the cap that is so if all of these hold:
//   - the machine's books have page faults of at least as much since it last was within its cap, with what the agent may
//     have granted it of plain memory, and had under way;
//   - the program works: who does not hold the GPU any more has time for its memory to go, and no more;
//   - the agent says (over_cap_bytes, over_cap_most_bytes) that it is, or was, as far above.
//
// While a cap is being lowered the old one counts, and after that what is above has the time that the link takes for it.

import (
	"fmt"
	"slices"
	"time"
)

const (
	slower  = 1.15                   // times what the link takes: how long memory may take to go
	telling = 50 * time.Millisecond  // after a sample, the agent has said what there is to say of it
	resting = 100 * time.Millisecond // after its last kernel, a program whose gate is open counts as one that works
	rounded = 4 * mib                // pieces that are under way: so much less may be told
)

// limit is a cap from a moment on: asked for, and set. The first of a program holds from the beginning.
type limit struct {
	asked, set time.Duration
	bytes      int64
}

// report is what the agent said at a moment of how far a program is above its cap.
type report struct {
	at          time.Duration
	above, most int64
}

// excess is what came of one program, or of several.
type excess struct {
	samples  int           // in all
	apart    time.Duration // the longest time between two
	above    int           // samples above the cap
	lowered  int           // times that a cap was set below what was on the card
	toGo     int64         // the most bytes that were above then
	slowest  float64       // until that was gone, as part of what the link takes
	longest  time.Duration // above the cap, not told as faults and beyond what the link takes
	most     int64         // bytes above the cap then
	faults   time.Duration // the longest overshoot of faults
	faulted  int64         // the most bytes of it
	faulting time.Duration // all of it together
}

// lowering is a cap that was set below what was on the card.
type lowering struct {
	set, until time.Duration
	toGo       int64
}

// onCard is all that a program has there.
func (s sample) onCard() int64 { return s.resident + s.plain }

// capAt is the cap at a moment: of two while it is being changed, the greater.
func capAt(limits []limit, at time.Duration) int64 {
	bytes := limits[0].bytes
	for i := 1; i < len(limits); i++ {
		switch {
		case at >= limits[i].set:
			bytes = limits[i].bytes
		case at >= limits[i].asked:
			bytes = max(bytes, limits[i].bytes)
		}
	}
	return bytes
}

// told is how far above its cap the agent says a program is or has been, some time after a sample.
func told(reports []report, at time.Duration) int64 {
	i := slices.IndexFunc(reports, func(r report) bool { return r.at >= at+telling })
	if i < 0 {
		i = len(reports) - 1
	}
	if i < 0 {
		return 0
	}
	return max(reports[i].above, reports[i].most)
}

// judge goes through the samples of one program.
type judge struct {
	card
	limits  []limit
	reports []report
	spare   int64 // bytes of plain memory that the agent may have granted before they are taken
	excess

	next     int           // limit
	going    lowering      // under way
	faulted0 int64         // what had come by faults when the program was last within its cap
	leaves   time.Duration // by then what is above by faults has gone, unless the program works on
	bare     time.Duration // since when it has been above with no excuse; 0: it is not
	byFaults time.Duration // so too, by faults
	last     time.Duration // sample
}

// take takes the sample of a row, and whether the program has worked since the last one.
func (j *judge) take(at time.Duration, now sample, worked bool) {
	if j.samples++; j.samples > 1 {
		j.apart = max(j.apart, at-j.last)
	}
	above := now.onCard() - capAt(j.limits, at)
	if worked || j.samples == 1 {
		j.leaves = at + resting + j.within(above) + period
	}
	j.lower(at, now)
	switch {
	case above <= 0:
		if j.going.toGo > 0 {
			j.slowest = max(j.slowest, float64(at-j.going.set)/float64(j.takes(j.going.toGo)))
		}
		j.bare, j.byFaults, j.going = 0, 0, lowering{}
		if above <= -j.spare-rounded {
			j.faulted0 = now.faulted
		}
	case j.going.toGo > 0 && at <= j.going.until:
		j.above++
	case now.faulted-j.faulted0 >= above && at <= j.leaves && told(j.reports, at) >= above-rounded:
		if j.above++; j.byFaults == 0 {
			j.byFaults = at
		} else {
			j.faulting += at - j.last
		}
		j.faults, j.faulted, j.bare = max(j.faults, at-j.byFaults), max(j.faulted, above), 0
	default:
		if j.above++; j.bare == 0 {
			j.bare = at
		}
		j.longest, j.most, j.byFaults = max(j.longest, at-j.bare), max(j.most, above), 0
	}
	j.last = at
}

// within is how long so many bytes may take to go.
func (j *judge) within(bytes int64) time.Duration {
	return time.Duration(slower * float64(j.takes(max(0, bytes))))
}

// lower notes caps that have been set below what is on the card.
func (j *judge) lower(at time.Duration, now sample) {
	for ; j.next < len(j.limits) && at >= j.limits[j.next].set; j.next++ {
		if toGo := now.onCard() - j.limits[j.next].bytes; toGo > 0 {
			j.lowered++
			j.toGo = max(j.toGo, toGo)
			j.going = lowering{at, at + j.within(toGo), toGo}
		}
	}
}

// excessOf judges the samples of program p.
func (s *series) excessOf(p int, c card, limits []limit, reports []report, spare int64) excess {
	j := &judge{card: c, limits: limits, reports: reports, spare: spare, next: 1}
	for i, r := range s.rows {
		now := r.of[p]
		j.take(r.at, now, i > 0 && now.busy+now.fault > s.rows[i-1].of[p].busy+s.rows[i-1].of[p].fault)
	}
	return j.excess
}

// and is what came of both.
func (e excess) and(o excess) excess {
	return excess{
		samples: e.samples + o.samples, apart: max(e.apart, o.apart), above: e.above + o.above,
		lowered: e.lowered + o.lowered, toGo: max(e.toGo, o.toGo),
		slowest: max(e.slowest, o.slowest), longest: max(e.longest, o.longest), most: max(e.most, o.most),
		faults: max(e.faults, o.faults), faulted: max(e.faulted, o.faulted), faulting: e.faulting + o.faulting,
	}
}

// excesses are those of all programs of a stage.
func (s *stage) excesses() (all []excess) {
	for p := range s.sets {
		all = append(all, s.series.excessOf(p, s.card, s.limits[p], s.reports[p], s.plain))
	}
	return all
}

// String names what is promised first, then what is excused.
func (e excess) String() string {
	text := fmt.Sprintf("%s, by %s, in %d samples", e.longest.Round(100*time.Microsecond), inMiB(e.most), e.samples)
	if e.lowered > 0 {
		text += fmt.Sprintf("; %d times lowered, by up to %s, gone in at most %.2f of what the link takes", e.lowered, inMiB(e.toGo),
			e.slowest)
	}
	return text + fmt.Sprintf("; faults, told: by up to %s, %s at a time, %s in all", inMiB(e.faulted),
		e.faults.Round(time.Millisecond), e.faulting.Round(time.Millisecond))
}

func inMiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mib) }
