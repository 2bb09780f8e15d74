package standalone

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// BenchmarkBacklog is all that a desk does for a backlog: it reads nodes and pods,
// decides, and takes note of each binding twice, as its answer and as the watch's
// event, with a turn for each.
func BenchmarkBacklog(b *testing.B) {
	for _, size := range []struct{ nodes, gangs int }{{50, 20}, {1000, 100}, {5000, 500}} {
		b.Run(fmt.Sprintf("nodes=%d/gangs=%d", size.nodes, size.gangs), func(b *testing.B) {
			b.ReportAllocs()
			n := cluster.Nodes{Count: size.nodes, GPUs: 8, Rack: 16}
			for b.Loop() {
				d, err := newDesk(Config{Rule: Priority}.withDefaults())
				if err != nil {
					b.Fatal(err)
				}
				for i := range n.Count {
					d.node(n.Name(i), n.Object(i))
				}
				for i := range size.gangs {
					g := cluster.Gang{Namespace: "x", Name: fmt.Sprint("g", i), Scheduler: "lockstep-scheduler", Members: 8, GPUs: 1}
					for k := range g.Members {
						p := g.Pod(k)
						p.UID = types.UID(p.Name)
						d.pod("x/"+p.Name, p)
					}
				}
				d.stir(time.Time{})
				now := time.Unix(1e9, 0)
				d.turn(now)
				orders := d.orders
				if len(orders) != 8*size.gangs {
					b.Fatalf("%d orders", len(orders))
				}
				for _, o := range orders {
					d.bound(result{task: o})
					d.turn(now)
					p := d.pods[o.key].DeepCopy()
					p.Spec.NodeName = string(o.node)
					d.pod(o.key, p)
					d.turn(now)
				}
			}
		})
	}
}
