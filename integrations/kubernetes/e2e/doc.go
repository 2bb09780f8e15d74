// Package e2e holds the tests of the schedulers against a real control plane, which
// they start: etcd and kube-apiserver, from the folder that KUBE_ASSETS names. Without
// it they are skipped, unless REQUIRE_KUBE=1 makes that a failure.
//
// There is one plane for all tests, and a namespace and a set of nodes for each.
// Whatever a test does, two things are looked at all the time or at its end: no node
// is ever asked for more devices than it has, and no gang is partly bound at rest.
package e2e
