package chaos

// One random sequence: rounds in which several performers act at once, and some are stopped or killed.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type sequence struct {
	*theatre
	seed       uint64
	random     *rand.Rand
	cast       []*performer
	holders    []int
	transcript []string
	totals     map[string]int
	watch      *cardWatch
	gpus       []int     // that are used
	used       []amounts // of the containers, when they were last compared
	pools      bool      // mostly about pools that are shared
	crossed    bool      // memory was imported across containers: only sums can be compared
}

func (s *sequence) note(format string, arguments ...any) {
	s.transcript = append(s.transcript, fmt.Sprintf(format, arguments...))
}

// fatal ends the test with the whole sequence and its seed.
func (s *sequence) fatal(format string, arguments ...any) {
	s.t.Helper()
	s.t.Fatal(s.story(format, arguments...))
}

func (s *sequence) story(format string, arguments ...any) string {
	return fmt.Sprintf("WEIR_TEST_SEED=%d: %s\nWhat was done:\n%s", s.seed,
		fmt.Sprintf(format, arguments...), strings.Join(s.transcript, "\n"))
}

// idle chooses a performer other than p that answers and has nothing to do, or none.
func (s *sequence) idle(p *performer) *performer {
	return s.idleThat(p, func(*performer) bool { return true })
}

// idleThat is idle among those that are as wanted.
func (s *sequence) idleThat(p *performer, wanted func(*performer) bool) *performer {
	var idle []*performer
	for _, other := range s.cast {
		if other != p && other.pending == nil && !other.stopped && !s.needed(other) && wanted(other) {
			idle = append(idle, other)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return idle[s.random.IntN(len(idle))]
}

// needed tells whether somebody is importing what p has exported. Until that is done p does nothing.
func (s *sequence) needed(p *performer) bool {
	return slices.ContainsFunc(s.cast, func(other *performer) bool {
		return other.pending != nil && other.pending.also == p
	})
}

func (s *sequence) play() {
	s.t.Helper()
	for _, stage := range s.stages {
		s.setCaps(stage, amounts{mib * (2 + s.random.Int64N(30)), mib * (2 + s.random.Int64N(30))})
		s.note("%s has caps of %d", stage.name, stage.caps)
	}
	s.used = make([]amounts, len(s.stages))
	s.gpus = [][]int{{0}, {1}, {0, 1}, {0, 1}}[s.random.IntN(4)]
	containers, most := 1+s.random.IntN(2), 8
	least := 1
	if s.pools = s.random.IntN(3) == 0; s.pools {
		least, most = 2, 3
	}
	for range least + s.random.IntN(most) {
		s.cast = append(s.cast, s.newPerformer(s.random.IntN(containers)))
	}
	s.watch = s.startWatch()
	halt := sync.OnceValue(s.watch.end)
	defer halt()
	for range 10 + s.random.IntN(30) {
		if len(s.cast) == 0 {
			break
		}
		s.round()
	}
	s.end()
	if over := halt(); over != "" {
		s.fatal("%s", over)
	}
}

// end lets all go, and looks that nothing is left.
func (s *sequence) end() {
	s.t.Helper()
	for len(s.cast) > 0 {
		p := s.cast[len(s.cast)-1]
		if p.pending != nil || p.stopped || s.random.IntN(2) == 0 {
			s.signal(p, syscall.SIGKILL)
		} else {
			s.tell(p, &request{text: "quit"})
		}
		s.gone(p)
	}
	s.Eventually(func() string {
		used, charged := s.charges()
		cards, _ := s.onCards()
		for i := range used {
			if used[i] != (amounts{}) || charged[i] != (amounts{}) {
				return s.story("all have ended, and %s uses %d bytes, is charged %d", s.stages[i].name,
					used[i], charged[i])
			}
		}
		if cards != (amounts{}) {
			return s.story("all have ended, and the cards' books say %d bytes", cards)
		}
		return ""
	})
	for _, pid := range s.holders {
		if pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// round has some performers act at once, and compares when all stand still.
func (s *sequence) round() {
	s.t.Helper()
	// What has been given back since is not missed: that would only make more fit.
	atMost := slices.Clone(s.used)
	for _, p := range s.cast {
		if p.pending != nil {
			atMost[p.stage].add(p.pending.most)
		}
	}
	busy := s.chooseActors(atMost)
	for _, p := range s.cast {
		if p.pending != nil {
			for gpu, bytes := range atMost[p.stage] {
				p.pending.atMost[gpu] = max(p.pending.atMost[gpu], bytes)
			}
		}
	}
	for _, p := range busy {
		s.totals["acts"]++
		if p.pending == nil {
			continue
		}
		switch s.random.IntN(40) {
		case 0:
			s.totals["killed amid a call"]++
			s.signal(p, syscall.SIGKILL)
			s.gone(p)
		case 1, 2:
			s.totals["stopped amid a call"]++
			s.signal(p, syscall.SIGSTOP)
			p.stopped = true
		}
	}
	for _, p := range slices.Clone(s.cast) {
		if p.pending != nil && !p.stopped {
			s.finish(p)
		}
	}
	s.compare()
	s.disturb()
}

// chooseActors tells one to four performers what to do, and adds what they ask for to atMost.
func (s *sequence) chooseActors(atMost []amounts) []*performer {
	s.t.Helper()
	var busy []*performer
	for range 1 + s.random.IntN(4) {
		p := s.idle(nil)
		if p == nil {
			break
		}
		r := s.draw(p)
		if r.also != nil {
			s.crossed = s.crossed || r.also.stage != p.stage
		}
		atMost[p.stage].add(r.most)
		s.tell(p, r)
		busy = append(busy, p)
	}
	return busy
}

// finish takes the answer of a performer. What fits at its most, together with all that was asked for
// meanwhile, must not have been refused.
func (s *sequence) finish(p *performer) {
	s.t.Helper()
	r := p.pending
	words := s.answer(p)
	s.settled(p)
	switch {
	case len(words) > 0 && words[0] == "ok":
		if r.done != nil {
			r.done(words)
		}
	case slices.Equal(words, []string{"error", strconv.Itoa(outOfMemory)}):
		s.totals["refused"]++
		if caps := s.stages[p.stage].caps; fits(r, caps) {
			s.fatal("performer %d is refused %q, and with all that was asked for %d of %d bytes would be used",
				p.pid, r.text, r.atMost, caps)
		}
	case r.child && p.used && slices.Equal(words, []string{"error", "3"}):
		// A child of a process that has used the driver must not: CUDA_ERROR_NOT_INITIALIZED.
	default:
		s.fatal("performer %d, asked to %q, says %v", p.pid, r.text, words)
	}
}

// fits tells whether a request keeps within the caps of all GPUs that it may take memory of.
func fits(r *request, caps amounts) bool {
	for gpu, limit := range caps {
		if (r.most[gpu] > 0 || gpu == r.gpu) && r.atMost[gpu] > limit {
			return false
		}
	}
	return true
}

// disturb stops, continues and kills performers that stand still, and brings in new ones.
func (s *sequence) disturb() {
	s.t.Helper()
	for _, p := range slices.Clone(s.cast) {
		n := s.random.IntN(30)
		if n == 0 && s.pools && s.random.IntN(4) > 0 { // for which performers have to live longer
			continue
		}
		switch {
		case p.stopped && n < 10:
			s.signal(p, syscall.SIGCONT)
			p.stopped = false
		case s.needed(p):
		case n == 0:
			s.totals["killed"]++
			s.signal(p, syscall.SIGKILL)
			s.gone(p)
		case !p.stopped && n == 1:
			s.totals["stopped"]++
			s.signal(p, syscall.SIGSTOP)
			p.stopped = true
		}
	}
	if len(s.cast) < 8 && s.random.IntN(10) == 0 {
		s.cast = append(s.cast, s.newPerformer(s.stageInUse()))
	}
}

// stageInUse is where a newcomer plays.
func (s *sequence) stageInUse() int {
	if len(s.cast) == 0 {
		return 0
	}
	return s.cast[s.random.IntN(len(s.cast))].stage
}

// compare waits until the agent has seen all that happened, and compares its charge with the card's
// own books. While somebody is stopped amid a call, neither can be more than the cap allows; that
// they are equal is seen when he goes on.
func (s *sequence) compare() {
	s.t.Helper()
	amid := slices.ContainsFunc(s.cast, func(p *performer) bool { return p.pending != nil })
	end := time.Now().Add(patience)
	for {
		used, charged := s.charges()
		cards, each := s.onCards()
		wrong := ""
		for gpu := 0; gpu < gpusMax && wrong == ""; gpu++ {
			wrong = s.compareOnce(gpu, used, charged, cards[gpu], each, amid)
		}
		if wrong == "" {
			s.used = used
			return
		}
		if time.Now().After(end) {
			s.fatal("%s", wrong)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *sequence) compareOnce(gpu int, used, charged []amounts, card int64, each map[int]amounts, amid bool) string {
	var sum int64
	inherited := slices.ContainsFunc(s.cast, func(p *performer) bool { return p.inherits(gpu) })
	if inherited {
		s.totals["inherited"]++
	}
	for i, stage := range s.stages {
		use, charge := used[i][gpu], charged[i][gpu]
		sum += use
		if charge > stage.caps[gpu] || use > charge {
			return fmt.Sprintf("%s uses %d bytes of GPU %d, is charged %d, and its cap is %d", stage.name, use,
				gpu, charge, stage.caps[gpu])
		}
		var own int64
		for _, p := range s.cast {
			if p.stage == i {
				own += each[p.pid][gpu]
			}
		}
		if !s.crossed && !amid && own != use && (!inherited || own > use) {
			return fmt.Sprintf("%s uses %d bytes of GPU %d by the agent, %d by the card's books: %v", stage.name,
				use, gpu, own, each)
		}
	}
	if !amid && sum != card && (!inherited || card > sum) {
		return fmt.Sprintf("%d bytes of GPU %d are used by the agent, %d by the card's books", sum, gpu, card)
	}
	return ""
}
