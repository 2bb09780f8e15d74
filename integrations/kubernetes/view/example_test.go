package view_test

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

func node(name, rack string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/rack": rack, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				"cpu": resource.MustParse("128"), "memory": resource.MustParse("2Ti"), "pods": resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("8"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func worker(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vision", Name: fmt.Sprintf("train-%d", i), UID: types.UID(fmt.Sprint(i)),
			Annotations: map[string]string{"lockstep.dev/gang": "train", "lockstep.dev/min-member": "2", "lockstep.dev/required-level": "example.com/rack"},
		},
		Spec: corev1.PodSpec{SchedulerName: view.DefaultSchedulerName, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
		}}},
	}
}

// Nodes and pods in, bindings out; deciding is in between.
func Example() {
	cfg := view.Config{Keys: []labels.Key{{Label: "example.com/rack"}}}
	cluster, _ := cfg.Cluster(view.Inputs{Nodes: []*corev1.Node{node("n1", "r1"), node("n2", "r2"), node("n3", "r2")}})
	room, _ := placement.New(cluster.Tree, placement.Config{Nodes: cluster.Nodes, Layouts: cluster.Layouts})

	gangs, _ := view.NewAssembler(cfg)
	for i := range 2 {
		if err := gangs.Upsert(worker(i)); err != nil {
			fmt.Println(err)
		}
	}
	for _, id := range gangs.Take().Gangs {
		state, _ := gangs.State(id)
		fmt.Println(id, state.Phase)
		var plan lockstep.Plan
		verdict, _ := room.Fit(&lockstep.Request{Gang: state.Gang}, &plan)
		fmt.Println(verdict)
		bindings, _ := view.Bindings(state, &plan, 1)
		for _, b := range bindings {
			fmt.Println(b.Name, "to", b.Node, "as rank", b.Annotations[view.KeyRank])
		}
	}
	// Output:
	// vision/train ready
	// fits, 2 of 2 members in example.com/rack r2
	// train-0 to n2 as rank 0
	// train-1 to n3 as rank 1
}

// What is malformed is refused by name, and holds its own gang.
func ExampleAssembler_Upsert() {
	gangs, _ := view.NewAssembler(view.Config{})
	p := worker(0)
	delete(p.Annotations, "lockstep.dev/required-level")
	p.Annotations["lockstep.dev/walltime"] = "soon"
	err := gangs.Upsert(p)
	var fault *view.Fault
	fmt.Println(errors.As(err, &fault), fault.Name, fault.Err.Field, fault.Err.Value)
	state, _ := gangs.State("vision/train")
	fmt.Println(state.Phase, errors.Is(err, lockstep.ErrInvalid))
	// Output:
	// true train-0 lockstep.dev/walltime "soon"
	// faulty true
}

// Pods that are bound when a scheduler starts are taken in where they are.
func ExampleSeats() {
	cfg := view.Config{}
	cluster, _ := cfg.Cluster(view.Inputs{Nodes: []*corev1.Node{node("n1", "r1")}})
	gangs, _ := view.NewAssembler(cfg)
	p := worker(0)
	p.Annotations = nil
	p.Spec.NodeName = "n1"
	if err := gangs.Upsert(p); err != nil {
		fmt.Println(err)
	}
	state, _ := gangs.State("vision/pod:train-0")
	plan, err := view.NewSeats(&cluster, nil).Observe(state)
	fmt.Println(state.Phase, plan.Members[0].Devices, err)
	// Output:
	// placed 0-7 <nil>
}

func ExampleParseQueues() {
	q, err := view.ParseQueues("lockstep-system", "lockstep-queues", map[string]string{
		view.SchedulerKey: "rule: las\nterm: 20m\n",
	})
	fmt.Println(q.Scheduler.Rule, q.Scheduler.Term, err)
	// Output:
	// las 20m0s <nil>
}

func ExampleMessage() {
	e := lockstep.Explanation{Verdict: lockstep.Verdict{Reason: lockstep.ReasonBusy, Want: 8, Resource: lockstep.ResourceGPU, Requested: 64_000, Available: 9_000}}
	fmt.Println(view.Message(&e))
	// Output:
	// the gang needs 8 members at once; too little is free, gpu asked 64
}
