// Package deploy holds the manifests of the scheduler, for both shapes, and the one
// table of what it may do with the API server.
//
// # Model
//
// Each folder is a kustomize base: standalone is the scheduler as a program of its
// own, plugin is a kube-scheduler with the plugin, to run beside the cluster's own;
// claims adds the rights for resource claims. Rights is the table; the roles in the
// folders grant exactly what is in it, and a test says so.
//
// # Usage
//
//	kubectl apply -k integrations/kubernetes/deploy/standalone
//
// A test that runs the scheduler with these rights applies what Objects returns.
//
// # Errors
//
// Objects returns lockstep.ErrUnknown for a folder that there is not, and the
// decoder's error, wrapped, for a manifest that is not of its type.
//
// # Concurrency
//
// Functions only; safe for concurrent use.
//
// # Limits
//
// Images have no registry: build them with the Dockerfile and set them with kustomize.
// The plugin's folder relies on the roles system:kube-scheduler and
// system:volume-scheduler, which the API server makes itself.
package deploy
