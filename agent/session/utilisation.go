package session

// How busy each GPU is, for the scheduler: where several containers may have a turn at once, and by utilisation.
//
// NVML is asked on a goroutine of its own, outside all locks: one that does not answer holds up nobody, and the
// scheduler goes by what it expects of leases meanwhile.

import (
	"context"
	"time"
)

// utilisationEvery is how often a GPU's utilisation is asked: cards bring theirs up to date once or several times a
// second.
const utilisationEvery = 500 * time.Millisecond

// followsUtilisation tells whether the scheduler has any use for it.
func (o *Options) followsUtilisation() bool {
	return o.Utilisation != nil && o.Time != nil && o.Time.Slots > 1 && o.Time.UtilisationMax > 0
}

// utilising feeds the scheduler until ctx ends.
func (n *Node) utilising(ctx context.Context) {
	if !n.opts.followsUtilisation() {
		return
	}
	for gpu := range n.gpus {
		n.tasks.Go(func() { n.utilisationOf(ctx, gpu) })
	}
}

// utilisationOf asks for one GPU. An error is told once, until NVML answers again.
func (n *Node) utilisationOf(ctx context.Context, gpu int) {
	tick := time.NewTicker(utilisationEvery)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(n.list()) == 0 {
			continue
		}
		percent, err := n.askUtilisation(ctx, gpu)
		if err != nil && !failed && ctx.Err() == nil {
			n.log.Warn("the GPU's utilisation is not told, so slots follow what was told last", "gpu", n.gpus[gpu].uuid, "error", err)
		}
		if failed = err != nil; !failed {
			n.time.do(func(now int64) { n.time.table.Utilisation(now, gpu, percent) })
		}
	}
}

// askUtilisation waits no longer than the node lives.
func (n *Node) askUtilisation(ctx context.Context, gpu int) (float64, error) {
	type answer struct {
		percent float64
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		percent, err := n.opts.Utilisation(n.gpus[gpu].uuid)
		answered <- answer{percent, err}
	}()
	select {
	case a := <-answered:
		return a.percent, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
