package deploy_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/deploy"
)

// What a scheduler that is elected, and reads no PodGroups and claims, may do.
func ExampleRules() {
	for _, r := range deploy.Rules(deploy.Rights(), "", deploy.Always) {
		fmt.Println(r.Resources[0], r.Verbs)
	}
	for _, r := range deploy.Rules(deploy.Rights(), deploy.Namespace, deploy.Always, deploy.Elections) {
		fmt.Println(r.Resources[0], r.Verbs, r.ResourceNames)
	}
	// Output:
	// nodes [list watch]
	// pods [delete get list watch]
	// pods/binding [create]
	// pods/status [patch]
	// events [create]
	// configmaps [list watch] [lockstep-queues]
	// leases [create] []
	// leases [get update] [lockstep-scheduler]
}

func ExampleObjects() {
	objects, err := deploy.Objects(deploy.ForClaims)
	for _, o := range objects {
		fmt.Println(o.GetObjectKind().GroupVersionKind().Kind)
	}
	fmt.Println(err)
	// Output:
	// ClusterRole
	// ClusterRoleBinding
	// <nil>
}
