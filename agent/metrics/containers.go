package metrics

// What is told of containers.

import "weir/agent/control"

// States that containers and sessions are counted by: those that there are none of are told, too.
var (
	containerStates = []string{"prepared", "running", "ending"}
	sessionStates   = []string{"connected", "detached", "recovered", "exiting"}
)

// survey tells of all containers, and of what has happened.
func (s *scrape) survey(survey *control.Survey, names *names) {
	for kind, count := range survey.Events {
		s.tell(eventsTotal, float64(count), label(kind))
	}
	s.tell(eventsDropped, float64(survey.EventsDropped))
	s.count(survey.Containers)
	told := survey.Containers[:min(len(survey.Containers), containersMax)]
	s.tell(leftOut, float64(len(survey.Containers)-len(told)))
	given := names.name(told)
	flows := make(map[string][]*control.Flow, len(survey.Flows))
	for i := range survey.Flows {
		f := &survey.Flows[i]
		flows[f.ContainerID] = append(flows[f.ContainerID], f)
	}
	seen := make(map[identity]bool, len(told))
	for i := range told {
		c := &told[i]
		if id := identityOf(c); !seen[id] {
			seen[id] = true
			s.container(c, flows[c.ID], given[id])
		}
	}
}

// count tells how many containers and sessions there are.
func (s *scrape) count(list []control.Container) {
	byState, bySession := make(map[string]int), make(map[string]int)
	for i := range list {
		byState[list[i].State]++
		for j := range list[i].Sessions {
			bySession[list[i].Sessions[j].State]++
		}
	}
	for _, state := range containerStates {
		s.tell(containers, float64(byState[state]), state)
	}
	for _, state := range sessionStates {
		s.tell(sessions, float64(bySession[state]), state)
	}
}

// container tells of one. Of one that weir has no part in, that it has none is all that is known.
func (s *scrape) container(c *control.Container, flows []*control.Flow, as named) {
	by := ""
	if c.EnforcedBy != nil {
		by = *c.EnforcedBy
	}
	s.tell(enforced, truth(c.Enforced), as.values(label(by), label(c.ReasonKind))...)
	s.tell(started, unix(c.Started), as.values()...)
	if c.Identity == "" {
		return
	}
	s.tell(ownUsers, float64(len(c.Sessions)), as.values()...)
	s.tell(denials, float64(c.Refused), as.values()...)
	s.tell(weight, weightOf(c, flows), as.values()...)
	timed := make(map[string]bool, len(flows))
	for _, f := range flows {
		timed[f.UUID] = true
		s.time(f, as.values(f.UUID))
	}
	for i := range c.GPUs {
		if u := &c.GPUs[i]; len(c.GPUs) == 1 || timed[u.UUID] || u.ChargedBytes > 0 || movedAny(u.Swap) {
			s.memory(u, as)
		}
	}
}

// weightOf is the weight that the scheduler goes by, where that is known.
func weightOf(c *control.Container, flows []*control.Flow) float64 {
	switch {
	case len(flows) > 0:
		return flows[0].Weight
	case c.Caps.Weight != nil:
		return *c.Caps.Weight
	}
	return 1
}

func movedAny(swap *control.SwapUse) bool {
	return swap != nil && swap.MovedInBytes != nil && *swap.MovedInBytes+*swap.MovedOutBytes > 0
}

// memory tells of what the container has on a GPU that it uses.
func (s *scrape) memory(u *control.GPUUse, as named) {
	on := as.values(u.UUID)
	s.tellBytes(memoryCap, u.CapBytes, on...)
	s.tellBytes(driverLimit, u.DriverLimitBytes, on...)
	if u.CapBytes != nil {
		s.tell(charged, float64(u.ChargedBytes), on...)
	}
	s.tell(used, float64(u.UsedBytes), on...)
	s.tell(plain, float64(u.UsedBytes-u.MovableBytes), on...)
	s.tell(movable, float64(u.MovableBytes), on...)
	s.tell(resident, float64(u.OnCard()), on...)
	s.tell(contexts, float64(u.ContextBytes+u.CodeBytes), on...)
	if u.Swap == nil {
		return
	}
	s.tell(swapLimit, float64(u.Swap.LimitBytes), on...)
	s.tellBytes(swapResident, u.Swap.ResidentBytes, on...)
	s.tellBytes(swapped, u.Swap.SwappedBytes, on...)
	s.tellBytes(moved, u.Swap.MovedInBytes, as.values(u.UUID, "in", "plan")...)
	s.tellBytes(moved, u.Swap.MovedOutBytes, as.values(u.UUID, "out", "plan")...)
	s.tellBytes(moved, u.Swap.FaultedBytes, as.values(u.UUID, "in", "fault")...)
	s.tellBytes(moved, u.Swap.DisplacedBytes, as.values(u.UUID, "out", "fault")...)
	if all, undone := u.Swap.CancelledMoves, u.Swap.UndoneMoves; all != nil && undone != nil {
		s.tell(cancelled, float64(*undone), as.values(u.UUID, "undone")...)
		s.tell(cancelled, float64(*all-*undone), as.values(u.UUID, "late")...)
	}
}

// time tells of the GPU time that the container has on a GPU. One that is not scheduled has none that is known.
func (s *scrape) time(f *control.Flow, on []string) {
	if f.Mode == control.ModeOff {
		return
	}
	s.tell(gpuTime, seconds(f.GotNS), on...)
	s.tell(gpuCharged, seconds(f.ServedNS), on...)
	s.tellRatio(shareAsked, f.ShareAsked, on...)
	s.tellRatio(shareGot, f.ShareGot10s, on...)
	s.tell(leases, float64(f.Leases), on...)
	s.tell(handovers, float64(f.Handovers), on...)
	s.summarise(leaseWait, f.Leases, f.WaitedNS, on...)
	s.tell(longestWait, seconds(orZero(f.WaitWorstNS)), on...)
	s.tell(waiting, seconds(orZero(f.WaitingNS)), on...)
	s.tell(reopened, float64(f.Reopened), on...)
	s.tell(expired, float64(f.Expired), on...)
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
