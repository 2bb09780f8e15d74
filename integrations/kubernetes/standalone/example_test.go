package standalone_test

import (
	"fmt"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

// A scheduler for a cluster with racks. Run is called with the process's context; it
// returns when that ends.
func Example() {
	s, err := standalone.New(standalone.Config{
		Client: fake.NewClientset(), // kubernetes.NewForConfig in a program
		View: view.Config{
			SchedulerName: "lockstep-scheduler",
			Keys:          []labels.Key{{Label: "example.com/rack", Level: topology.Level{Name: lockstep.Level("rack")}}},
		},
	})
	fmt.Println(s.Leading(), err)
	// Output: false <nil>
}

// All that is wrong with a configuration is said at once.
func ExampleConfig_Validate() {
	err := standalone.Config{Rule: "luck", Parallel: -1, Client: fake.NewClientset()}.Validate()
	fmt.Println(err)
	// Output:
	// standalone: config: Rule = "luck": no such rule
	// standalone: config: Parallel = -1: want 0 to 4096
}

// The metrics of this package, for an adapter that declares them.
func ExampleMetrics() {
	for _, m := range standalone.Metrics() {
		fmt.Println(m.Kind, m.Name)
	}
	// Output:
	// counter kube_bindings_total
	// counter kube_evictions_total
	// histogram kube_start_seconds
}
