// Package plane starts a real Kubernetes control plane for tests: etcd and
// kube-apiserver as two processes on the loopback interface.
//
// # Model
//
// A Plane is one etcd and one kube-apiserver with RBAC, a token for each User, and
// a folder of its own for data, certificates and logs. There is no
// controller-manager, scheduler or kubelet: nodes and pods are what tests make of
// them. The programs come from a folder that the environment variable
// KUBE_ASSETS names. The API server can be killed and started again on the same
// port with the same data.
//
// # Usage
//
//	p, err := plane.Start(ctx, plane.Config{Assets: os.Getenv(plane.Env)})
//	defer p.Stop()
//	file := p.Kubeconfig(plane.Admin)
//
// # Errors
//
// Start says which process failed and ends with the last lines of its log.
//
// # Concurrency
//
// Safe for concurrent use, but for Kill, Restart and Stop, which the caller
// serializes.
//
// # Cost
//
// About 3 s and 310 MiB. etcd does not wait for the disk.
//
// # Limits
//
// On Linux the processes die with the one that started them, whatever it dies of;
// elsewhere only Stop ends them.
package plane
