package pipeline

import "time"

// Slack returns by how much the i-th op of the order of a stage could end later without a later Makespan; 0 on a longest
// path, and if there is no such op. The first call after a Run is linear in the ops and keeps what it finds in r.
func (r *Result) Slack(stage, i int) time.Duration {
	at, ok := r.slot(stage, i)
	if !ok {
		return 0
	}
	r.tails()
	return r.late[at] - r.ends[at]
}

// tails finds when each op may end at the latest.
func (r *Result) tails() {
	if r.tail {
		return
	}
	r.tail = true
	r.late = resize(r.late, len(r.ends))
	late := r.late
	for i := range late {
		late[i] = r.Makespan
	}
	nodes := r.line.nodes
	for i := len(nodes) - 1; i >= 0; i-- {
		n := &nodes[i]
		start := late[n.at] - r.took[n.at]
		late[n.at-1] = min(late[n.at-1], start)
		late[n.dep] = min(late[n.dep], start-r.hops[n.hop])
	}
}
