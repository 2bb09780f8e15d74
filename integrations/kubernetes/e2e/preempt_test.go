package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

func TestPreemptionTakesWholeGangsWithGrace(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 4, GPUs: 8, Rack: 2}, cluster.Kubelet{Stop: 400 * time.Millisecond})
	low := w.Gangs("low", 4, 8, 1)
	for i := range low {
		low[i].Grace = 7
	}
	w.Make(low...)
	w.schedule(w.config())
	w.Rests(20*time.Second, 4, 0)

	high := w.Gangs("high", 1, 8, 1)
	high[0].Priority, high[0].Annotations = 100, map[string]string{cluster.RunAnnotation: "3s"}
	w.Make(high...)
	// The victim stops within its grace, and nothing of the other starts before.
	w.Eventually(10*time.Second, func() error {
		pods, _, err := w.Look()
		if err != nil {
			return err
		}
		for i := range pods {
			if p := &pods[i]; p.DeletionTimestamp != nil {
				if p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 7 {
					t.Errorf("%s is stopped with a grace of %v", p.Name, p.DeletionGracePeriodSeconds)
				}
				return nil
			}
		}
		return fmt.Errorf("nobody is being stopped")
	})
	w.Rests(20*time.Second, 4, 1)
	if n := w.Controller.Made(); n != 8 {
		t.Errorf("%d pods had to make room, want those of one gang", n)
	}
	// Behind it the victim comes back, and nobody else moves.
	w.Rests(30*time.Second, 5, 0)
	if n := w.Controller.Made(); n != 8 {
		t.Errorf("%d pods were made anew by then, want 8", n)
	}
	w.told("Preempted", "its room goes to a gang that comes first")
}

// told waits until some pod of the namespace has an event like that.
func (w *world) told(reason, text string) {
	w.T.Helper()
	w.Eventually(10*time.Second, func() error {
		list, err := w.Client.EventsV1().Events(w.Namespace).List(w.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && contains(e.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no event %s says %q among %d", reason, text, len(list.Items))
	})
}

func TestRequiredLevelHolds(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 16, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	// Gangs of three nodes' devices in racks of four: what is left over is enough for
	// one more by number, but not in one rack.
	gangs := w.Gangs("g", 5, 24, 1)
	for i := range gangs {
		gangs[i].Annotations = map[string]string{"lockstep.dev/required-level": "rack"}
	}
	w.Make(gangs...)
	w.schedule(w.config())
	w.Rests(20*time.Second, 4, 1)
	pods, nodes, err := w.Look()
	cluster.Check(t, err)
	rack := make(map[string]string)
	for i := range nodes {
		rack[nodes[i].Name] = nodes[i].Labels[cluster.RackLabel]
	}
	for _, g := range cluster.Tally(pods) {
		for _, n := range g.Nodes {
			if rack[n] != rack[g.Nodes[0]] {
				t.Errorf("gang %s is in %s and %s", g.Name, rack[g.Nodes[0]], rack[n])
			}
		}
	}
	w.told("FailedScheduling", "not close enough together")
	w.Eventually(10*time.Second, func() error {
		pods, _, err := w.Look()
		if err != nil {
			return err
		}
		for i := range pods {
			p := &pods[i]
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && p.Spec.NodeName == "" {
					return nil
				}
			}
		}
		return fmt.Errorf("no pod has the condition")
	})
}

func TestMalformedPodsHarmNobody(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 8, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	bad := w.Gangs("bad", 6, 2, 1)
	for i, a := range []map[string]string{
		{"lockstep.dev/priority": "very"},
		{"lockstep.dev/required-level": "galaxy"},
		{"lockstep.dev/walltime": "-3h"},
		{"lockstep.dev/gpu-share-milli": "1001"},
		{"lockstep.dev/max-member": "99999999999999999999"},
		{"lockstep.dev/queue": "a b\n\x00c"},
	} {
		bad[i].Annotations = a
	}
	w.Make(bad...)
	w.Make(w.Gangs("good", 4, 8, 1)...)
	w.schedule(w.config())
	w.Rests(20*time.Second, 4, 6)
	w.told("FailedScheduling", "lockstep.dev/priority")
	w.told("FailedScheduling", "galaxy")

	// One that is put right goes on.
	for i := range 2 {
		_, err := w.Client.CoreV1().Pods(w.Namespace).Patch(w.Ctx, fmt.Sprintf("bad000-%d", i), types.MergePatchType, []byte(`{"metadata":{"annotations":{"lockstep.dev/priority":"3"}}}`), metav1.PatchOptions{})
		cluster.Check(t, err)
	}
	w.Rests(20*time.Second, 5, 5)
}

func TestRestKeepsGangsWithoutChurn(t *testing.T) {
	// Gangs of three priorities arrive, run and end; victims come back. Everybody
	// runs in the end, and a gang makes room no more often than gangs with more
	// priority arrive.
	w := newWorld(t, cluster.Nodes{Count: 6, GPUs: 8, Rack: 2}, cluster.Kubelet{Stop: 30 * time.Millisecond})
	w.schedule(w.config())
	var gangs []cluster.Gang
	for i := range 24 {
		g := w.Gangs(fmt.Sprintf("p%d-%02d-", i%3, i), 1, 8, 1)[0]
		g.Priority, g.Grace = int32(10*(i%3)), 1
		g.Annotations = map[string]string{cluster.RunAnnotation: "900ms"}
		gangs = append(gangs, g)
	}
	for i := 0; i < len(gangs); i += 4 {
		w.Make(gangs[i : i+4]...)
		w.boundAtLeast(min(48, 8*i))
	}
	w.Eventually(60*time.Second, func() error {
		pods, _, err := w.Look()
		if err != nil {
			return err
		}
		for i := range pods {
			if !cluster.Over(&pods[i]) {
				return fmt.Errorf("%s has not ended", pods[i].Name)
			}
		}
		return nil
	})
	if n := w.Controller.Made(); n > 8*16 {
		t.Errorf("%d pods were made anew for 16 gangs with more priority than others", n)
	}
}
