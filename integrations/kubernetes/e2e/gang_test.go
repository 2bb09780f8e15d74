package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

func TestGangsAreBoundWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 20, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 12, 8, 1)
	gangs[3].Absent, gangs[7].Absent = 1, 1
	for i := range 6 {
		gangs[i].Native = true
	}
	w.Make(gangs...)
	w.schedule(w.config())
	w.Rests(30*time.Second, 10, 2)

	// The missing pod of one comes late.
	late := gangs[3]
	_, err := w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, late.Pod(7), createOptions)
	cluster.Check(t, err)
	w.Rests(20*time.Second, 11, 1)
	w.ranked(gangs[3])
}

// ranked checks that the pods of a gang have the ranks 0 to n-1, in order of names.
func (w *world) ranked(g cluster.Gang) {
	w.T.Helper()
	for i := range g.Members {
		p, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.Ctx, fmt.Sprintf("%s-%d", g.Name, i), getOptions)
		cluster.Check(w.T, err)
		if got := p.Annotations["lockstep.dev/rank"]; got != fmt.Sprint(i) {
			w.T.Errorf("pod %s has rank %q", p.Name, got)
		}
		if got := p.Annotations["lockstep.dev/world-size"]; got != fmt.Sprint(g.Members) {
			w.T.Errorf("pod %s has world size %q", p.Name, got)
		}
	}
}
