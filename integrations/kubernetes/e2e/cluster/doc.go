// Package cluster plays what a control plane in tests lacks: nodes, the kubelets on
// them, and the controllers that make pods anew; and it judges what schedulers did.
//
// # Model
//
// Nodes and gangs are made of a Shape each. A Kubelet says that bound pods run, that
// they end, and that those that were to be deleted are gone. A Controller makes pods
// anew whose gang lost them. Audit looks at pods and nodes alone, and knows nothing
// of any scheduler.
//
// # Usage
//
//	client, err := cluster.Client(p, plane.Admin)
//	err = cluster.MakeNodes(ctx, client, cluster.Nodes{Count: 10, GPUs: 8})
//	err = cluster.MakeGangs(ctx, client, cluster.Gang{Namespace: "x", Name: "g", Members: 8, GPUs: 1})
//	fault := cluster.Audit(pods, nodes)
//
// # Concurrency
//
// A Kubelet and a Controller run until their context ends; all else is called by one
// goroutine at a time.
//
// # Limits
//
// It is for tests and benchmarks: it trusts what it reads.
package cluster
