package sched

// How many slots there are (D): all of them, or by utilisation, as Ilúvatar has it (decision 11): an
// estimate follows samples, and what is granted or ends since the last sample is added and taken off.

// allowed is how many leases there may be now, those that are there included.
func (q *queue) allowed() int {
	n := len(q.leases)
	if q.config.UtilisationMax == 0 || n == 0 {
		return q.config.Slots
	}
	if q.util > q.config.UtilisationMax {
		return n
	}
	return min(n+1, q.config.Slots)
}

// sampled takes a sample of the GPU's utilisation, in percent.
func (q *queue) sampled(percent float64) {
	if !(percent >= 0) {
		return
	}
	q.sample = 0.4*q.sample + 0.6*min(percent, 100)
	q.util = q.sample
}

// utilGrant expects of one more lease what each of the n there takes, or half the GPU where it is alone.
func (q *queue) utilGrant(n int) {
	if n == 0 {
		q.util += 50
	} else {
		q.util += q.util / float64(n)
	}
}

// utilEnd takes off what one of n leases is taken to use.
func (q *queue) utilEnd(n int) {
	q.util *= float64(n-1) / float64(n)
}
