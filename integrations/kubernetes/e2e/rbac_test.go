package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/deploy"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// grant applies the roles of a folder of manifests, and its ConfigMap.
func (w *world) grant(folder string) {
	w.T.Helper()
	all, err := deploy.Objects(folder)
	cluster.Check(w.T, err)
	for _, obj := range all {
		var err error
		switch o := obj.(type) {
		case *corev1.Namespace:
			_, err = w.Client.CoreV1().Namespaces().Create(w.Ctx, o, createOptions)
		case *corev1.ConfigMap:
			_, err = w.Client.CoreV1().ConfigMaps(o.Namespace).Create(w.Ctx, o, createOptions)
		case *rbacv1.ClusterRole:
			_, err = w.Client.RbacV1().ClusterRoles().Create(w.Ctx, o, createOptions)
		case *rbacv1.ClusterRoleBinding:
			_, err = w.Client.RbacV1().ClusterRoleBindings().Create(w.Ctx, o, createOptions)
		case *rbacv1.Role:
			_, err = w.Client.RbacV1().Roles(o.Namespace).Create(w.Ctx, o, createOptions)
		case *rbacv1.RoleBinding:
			_, err = w.Client.RbacV1().RoleBindings(o.Namespace).Create(w.Ctx, o, createOptions)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.T.Fatal(err)
		}
	}
}

func TestManifestsGrantAllThatIsNeeded(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 4, GPUs: 8, Rack: 2}, cluster.Kubelet{Stop: 50 * time.Millisecond})
	// The rule of the manifests' ConfigMap shares by tenants; here priority decides.
	w.grant(deploy.Standalone)
	account := []string{"-kubeconfig=" + control.Kubeconfig(serviceAccount), "-lease=" + deploy.Namespace + "/" + deploy.Name}
	w.Controller.Forget() // victims do not come back, so that the next turn begins with nothing
	for _, evict := range []string{"-evict=false", "-evict=true"} {
		log := w.process("account"+evict, append(account, evict)...)
		low := w.Gangs("low"+strings.TrimPrefix(evict, "-evict="), 4, 8, 1)
		low[0].Native = true
		w.Make(low...)
		w.Rests(30*time.Second, 4, 0)
		high := w.Gangs("high"+strings.TrimPrefix(evict, "-evict="), 1, 8, 1)
		high[0].Priority = 10
		w.Make(high...)
		w.Rests(30*time.Second, 4, 0)
		w.told("Preempted", "comes first")
		cluster.Check(t, log.Process.Signal(os.Interrupt))
		cluster.Check(t, log.Wait())
		text, err := os.ReadFile(log.Stdout.(*os.File).Name())
		cluster.Check(t, err)
		if strings.Contains(string(text), "forbidden") {
			t.Errorf("something was forbidden:\n%s", text)
		}
		now := int64(0)
		cluster.Check(t, w.Client.CoreV1().Pods(w.Namespace).DeleteCollection(w.Ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	}
}

func TestQueuesOfTheManifestsAreTaken(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 4, GPUs: 8, Rack: 2}, cluster.Kubelet{})
	w.grant(deploy.Standalone)
	p := w.process("queues", "-kubeconfig="+control.Kubeconfig(serviceAccount), "-lease="+deploy.Namespace+"/"+deploy.Name, "-queues="+deploy.Namespace+"/"+deploy.Queues)
	w.Make(w.Gangs("g", 4, 8, 1)...)
	w.Rests(30*time.Second, 4, 0)
	text, err := os.ReadFile(filepath.Clean(p.Stdout.(*os.File).Name()))
	cluster.Check(t, err)
	if strings.Contains(string(text), "forbidden") || strings.Contains(string(text), "refused") {
		t.Errorf("something was refused:\n%s", text)
	}
}
