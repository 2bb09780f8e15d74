package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// The memory that a start may take: so much for a pod, and so much beside.
const (
	memoryEach   = 12 << 10
	memoryBeside = 160 << 20
)

// A start in a cluster with many pods, as many as E2E_PODS says: 100000 takes some
// minutes to make, so it is asked for.
func TestStartWithManyPods(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("E2E_PODS"))
	if err != nil {
		t.Skip("E2E_PODS does not say how many pods; 100000 takes minutes to make")
	}
	w := newWorld(t, cluster.Nodes{Count: 16, GPUs: 8, Rack: 4}, cluster.Kubelet{Silent: true})
	w.Ctx = t.Context()
	w.Client, err = cluster.Client(control, plane.Admin)
	cluster.Check(t, err)
	w.Make(w.Gangs("g", count/8, 8, 1)...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	cluster.Check(t, err)
	addr := l.Addr().String()
	cluster.Check(t, l.Close())
	begin := time.Now()
	p := w.process("large", "-leader-elect=false", "-listen="+addr)
	w.Eventually(2*time.Minute, func() error {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz is %s", resp.Status)
		}
		return nil
	})
	ready := time.Since(begin)
	w.Eventually(2*time.Minute, func() error {
		pods, _, err := w.Look()
		if err != nil {
			return err
		}
		bound := 0
		for i := range pods {
			if pods[i].Spec.NodeName != "" {
				bound++
			}
		}
		if bound != 128 {
			return fmt.Errorf("%d pods are bound, and there are 128 devices", bound)
		}
		return nil
	})
	u, err := plane.UsageOf(p.Process.Pid)
	cluster.Check(t, err)
	most := int64(memoryBeside + count*memoryEach)
	t.Logf("%d pods: ready after %v, %v of processor time, %d MiB at the most, of %d", count, ready.Round(time.Millisecond), u.CPU, u.Peak>>20, most>>20)
	if u.Peak > most {
		t.Errorf("a start with %d pods takes %d MiB, more than %d", count, u.Peak>>20, most>>20)
	}
}
