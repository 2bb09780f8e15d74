package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// claimed makes a class, devices on nodes, and a gang whose pods have a claim each.
func (w *world) claimed(nodes cluster.Nodes, devices, members, count int) cluster.Gang {
	w.T.Helper()
	const driver = "gpu.example.com"
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + driver + "'"}}},
	}}
	_, err := w.Client.ResourceV1().DeviceClasses().Create(w.Ctx, class, createOptions)
	cluster.Check(w.T, err)
	for i := range nodes.Count {
		name := nodes.Name(i)
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-gpus"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}}
		for k := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", k)})
		}
		_, err := w.Client.ResourceV1().ResourceSlices().Create(w.Ctx, s, createOptions)
		cluster.Check(w.T, err)
		w.T.Cleanup(func() {
			_ = w.Client.ResourceV1().ResourceSlices().Delete(cleanup(), s.Name, metav1.DeleteOptions{})
		})
	}
	g := w.Gangs("claimed", 1, members, 0)[0]
	for i := range members {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", i)}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: w.Namespace, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(count),
			}}}},
		}}
		_, err := w.Client.ResourceV1().ResourceClaims(w.Namespace).Create(w.Ctx, claim, createOptions)
		cluster.Check(w.T, err)
		p := g.Pod(i)
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &claim.Name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
		_, err = w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, p, createOptions)
		cluster.Check(w.T, err)
	}
	return g
}

func TestClaimsAreAllocated(t *testing.T) {
	nodes := cluster.Nodes{Count: 4, GPUs: 0, Rack: 2}
	w := newWorld(t, nodes, cluster.Kubelet{})
	w.claimed(nodes, 4, 6, 2)
	cfg := w.config()
	cfg.Claims = true
	w.schedule(cfg)
	w.Rests(20*time.Second, 1, 0)
	taken := make(map[string]string)
	for i := range 6 {
		c, err := w.Client.ResourceV1().ResourceClaims(w.Namespace).Get(w.Ctx, fmt.Sprint("claim-", i), getOptions)
		cluster.Check(t, err)
		p, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.Ctx, fmt.Sprint("claimed000-", i), getOptions)
		cluster.Check(t, err)
		if c.Status.Allocation == nil || len(c.Status.Allocation.Devices.Results) != 2 {
			t.Fatalf("claim %d has %+v", i, c.Status.Allocation)
		}
		if len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].UID != p.UID {
			t.Errorf("claim %d is reserved for %+v", i, c.Status.ReservedFor)
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Pool != p.Spec.NodeName {
				t.Errorf("claim %d has devices of %s, and its pod is on %s", i, r.Pool, p.Spec.NodeName)
			}
			if other := taken[r.Pool+"/"+r.Device]; other != "" {
				t.Errorf("%s of %s is in %s and %s", r.Device, r.Pool, other, c.Name)
			}
			taken[r.Pool+"/"+r.Device] = c.Name
		}
	}
}
