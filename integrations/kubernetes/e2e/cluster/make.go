package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// GPU is the resource that counts devices.
const GPU corev1.ResourceName = "nvidia.com/gpu"

// RackLabel is the node label that names the rack.
const RackLabel = "example.com/rack"

// writers is how many objects are made at once.
const writers = 16

// RESTConfig returns how user reaches p: in protobuf, without limits.
func RESTConfig(p *plane.Plane, user string) (*rest.Config, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig(user))
	if err != nil {
		return nil, err
	}
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.QPS, rc.Burst = -1, -1
	return rc, nil
}

// Client returns a client of p for user.
func Client(p *plane.Plane, user string) (kubernetes.Interface, error) {
	rc, err := RESTConfig(p, user)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(rc)
}

// Nodes are like nodes.
type Nodes struct {
	Prefix string // Prefix begins their names; "" means "node-".
	Count  int    // Count is how many there are.
	GPUs   int    // GPUs is how many devices each has.
	Rack   int    // Rack is how many share a rack; 0 means that none is labelled.
}

// Name returns the name of the i-th node.
func (n Nodes) Name(i int) string {
	prefix := n.Prefix
	if prefix == "" {
		prefix = "node-"
	}
	return fmt.Sprintf("%s%05d", prefix, i)
}

// Object returns the i-th node, as a kubelet would have made it.
func (n Nodes) Object(i int) *corev1.Node {
	offer := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("110"),
		GPU: *resource.NewQuantity(int64(n.GPUs), resource.DecimalSI),
	}
	labels := map[string]string{corev1.LabelHostname: n.Name(i), "nvidia.com/gpu.product": "H100"}
	if n.Rack > 0 {
		labels[RackLabel] = "rack-" + strconv.Itoa(i/n.Rack)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name(i), Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: offer, Allocatable: offer,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		},
	}
}

// MakeNodes makes nodes.
func MakeNodes(ctx context.Context, client kubernetes.Interface, n Nodes) error {
	return Each(n.Count, func(i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, n.Object(i), metav1.CreateOptions{})
		return err
	})
}

// Gang is the pods of one gang.
type Gang struct {
	Namespace   string            // Namespace is where they are.
	Name        string            // Name is the gang's, and begins the pods'.
	Scheduler   string            // Scheduler is who places them.
	Members     int               // Members is how many must run together.
	Absent      int               // Absent is how many of them are not made.
	GPUs        int               // GPUs is how many devices each has.
	Annotations map[string]string // Annotations are those of each pod, beside the gang's own.
	Native      bool              // Native says it with a PodGroup, else with annotations.
	Grace       int64             // Grace is how many seconds a pod gets to stop.
	Priority    int32             // Priority is that of the pods; 0 means none. It is given as an annotation.
}

// Pod returns the i-th pod.
func (g Gang) Pod(i int) *corev1.Pod {
	needs := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	if g.GPUs > 0 {
		needs[GPU] = *resource.NewQuantity(int64(g.GPUs), resource.DecimalSI)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace, Name: fmt.Sprintf("%s-%d", g.Name, i),
			Labels: map[string]string{GangLabel: g.Name, MembersLabel: strconv.Itoa(g.Members)}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			SchedulerName: g.Scheduler, TerminationGracePeriodSeconds: &g.Grace,
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: needs, Limits: needs}}},
		},
	}
	for k, v := range g.Annotations { // a copy, so order cannot matter
		p.Annotations[k] = v
	}
	if g.Native {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &g.Name}
	} else {
		p.Annotations["lockstep.dev/gang"] = g.Name
		p.Annotations["lockstep.dev/min-member"] = strconv.Itoa(g.Members)
	}
	if g.Priority != 0 {
		p.Annotations["lockstep.dev/priority"] = strconv.Itoa(int(g.Priority))
	}
	return p
}

// The labels that say to Audit and Controller what gang a pod is of.
const (
	GangLabel    = "e2e.example.com/gang"    // GangLabel is the gang's name.
	MembersLabel = "e2e.example.com/members" // MembersLabel is how many must run together.
)

// Group returns the PodGroup of a native gang.
func (g Gang) Group() *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
		Spec:       schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(g.Members)}}},
	}
}

// MakeGangs makes the pods of gangs, and the groups of those that are native.
func MakeGangs(ctx context.Context, client kubernetes.Interface, gangs ...Gang) error {
	var list []*corev1.Pod
	for i := range gangs {
		g := &gangs[i]
		for k := range g.Members - g.Absent {
			list = append(list, g.Pod(k))
		}
	}
	err := Each(len(gangs), func(i int) error {
		if !gangs[i].Native {
			return nil
		}
		_, err := client.SchedulingV1beta1().PodGroups(gangs[i].Namespace).Create(ctx, gangs[i].Group(), metav1.CreateOptions{})
		return err
	})
	return errors.Join(err, Each(len(list), func(i int) error {
		_, err := client.CoreV1().Pods(list[i].Namespace).Create(ctx, list[i], metav1.CreateOptions{})
		return err
	}))
}

// Each calls do for 0 to n-1, several at a time, and returns the first error.
func Each(n int, do func(i int) error) error {
	var (
		mu    sync.Mutex
		next  int
		first error
		all   sync.WaitGroup
	)
	for range min(writers, n) {
		all.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= n || first != nil
				mu.Unlock()
				if stop {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return first
}
