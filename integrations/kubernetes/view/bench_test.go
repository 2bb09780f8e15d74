package view

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// manyPods returns pods in gangs of eight as a Job makes them, each with strings of
// its own as a decoder makes them; half of the gangs are bound, and every tenth pod is
// of somebody else.
func manyPods(n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		gang := "train-" + strconv.Itoa(i/8)
		p := newPod(gang+"-"+strconv.Itoa(i%8)+"-x7k2p", Prefix+"gang", gang, Prefix+"min-member", "8", Prefix+"queue", "vision", Prefix+"walltime", "12h")
		p.Labels = map[string]string{"batch.kubernetes.io/job-name": gang, "batch.kubernetes.io/job-completion-index": strconv.Itoa(i % 8), "app": "train"}
		p.UID = types.UID("2b9d3a4e-8f1c-4c57-9d0e-" + strconv.Itoa(100_000_000_000+i))
		if i/8%2 == 0 {
			bound(p, "node-"+strconv.Itoa(i/8%1000))
		}
		if i%10 == 9 {
			p.Spec.SchedulerName = "default-scheduler"
			p.Spec.Containers[0].Resources.Requests = list("cpu", "100m", "memory", "64Mi")
			bound(p, "node-"+strconv.Itoa(i%1000))
		}
		out[i] = p
	}
	return out
}

// BenchmarkStart is the listing at the start: all pods taken in and all gangs assembled.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		pods := manyPods(n)
		b.Run("pods="+strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a := newAssembler(b, racks())
				for _, p := range pods {
					if err := a.Upsert(p); err != nil {
						b.Fatal(err)
					}
				}
				for _, id := range a.Take().Gangs {
					a.State(id)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/pod")
		})
	}
}

// BenchmarkUpdate is one pod of 100,000 that becomes bound, and its gang assembled anew.
func BenchmarkUpdate(b *testing.B) {
	pods := manyPods(100_000)
	a := newAssembler(b, racks(), pods...)
	a.Take()
	free, there := pods[8], bound(pods[8].DeepCopy(), "node-1")
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		p := free
		if i%2 == 0 {
			p = there
		}
		i++
		if err := a.Upsert(p); err != nil {
			b.Fatal(err)
		}
		for _, id := range a.Take().Gangs {
			a.State(id)
		}
	}
}

// What is kept of a pod is bounded, whatever the pod says beside.
func TestMemoryOfAPod(t *testing.T) {
	const n = 20_000
	pods := manyPods(n)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	a := newAssembler(t, racks(), pods...)
	for _, id := range a.Take().Gangs {
		a.State(id)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a pod", each)
	require.Less(t, each, int64(1000), "bytes a pod")
	require.NotEmpty(t, a.IDs())
	runtime.KeepAlive(pods)
}

// BenchmarkCluster is all nodes read anew.
func BenchmarkCluster(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		nodes := make([]*corev1.Node, n)
		for i := range nodes {
			nodes[i] = newNode("node-"+strconv.Itoa(i), "example.com/block", "b"+strconv.Itoa(i/128), "example.com/rack", "r"+strconv.Itoa(i/16))
		}
		b.Run("nodes="+strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := racks().Cluster(Inputs{Nodes: nodes}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pod that did not change allocates little and changes nothing.
func BenchmarkUnchanged(b *testing.B) {
	pods := manyPods(8)
	a := newAssembler(b, racks(), pods...)
	a.Take()
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Upsert(pods[0]); err != nil {
			b.Fatal(err)
		}
	}
	if c := a.Take(); len(c.Gangs) > 0 {
		b.Fatal(c)
	}
}
