package plugin_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/plugin"
)

// The name and the factory are what a kube-scheduler of one's own registers, with
// app.WithPlugin of k8s.io/kubernetes/cmd/kube-scheduler/app.
func ExampleNew() {
	registry := map[string]func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error){
		plugin.Name: plugin.New,
	}
	for name := range registry {
		fmt.Println(name)
	}
	// Output: Lockstep
}
