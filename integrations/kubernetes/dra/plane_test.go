package dra

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/deploy"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

const account = "system:serviceaccount:" + deploy.Namespace + ":" + deploy.Name

func start(t *testing.T) (admin, ours kubernetes.Interface) {
	t.Helper()
	assets := os.Getenv(plane.Env)
	if assets == "" {
		if os.Getenv(plane.RequireEnv) == "1" {
			t.Fatalf("%s=1, and %s names no folder", plane.RequireEnv, plane.Env)
		}
		t.Skipf("%s names no folder with etcd and kube-apiserver", plane.Env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	p, err := plane.Start(ctx, plane.Config{Assets: assets, Users: []plane.User{{Name: account, Groups: []string{"system:serviceaccounts"}}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	client := func(user string) kubernetes.Interface {
		cfg, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig(user))
		require.NoError(t, err)
		cfg.QPS = -1
		c, err := kubernetes.NewForConfig(cfg)
		require.NoError(t, err)
		return c
	}
	return client(plane.Admin), client(account)
}

// apply makes the objects of folders of manifests, in their order.
func apply(t *testing.T, admin kubernetes.Interface, opts metav1.CreateOptions, folders ...string) {
	t.Helper()
	ctx := t.Context()
	for _, folder := range folders {
		all, err := deploy.Objects(folder)
		require.NoError(t, err)
		for _, o := range all {
			var err error
			switch o := o.(type) {
			case *corev1.Namespace:
				_, err = admin.CoreV1().Namespaces().Create(ctx, o, opts)
			case *corev1.ServiceAccount:
				_, err = admin.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, opts)
			case *corev1.ConfigMap:
				_, err = admin.CoreV1().ConfigMaps(o.Namespace).Create(ctx, o, opts)
			case *appsv1.Deployment:
				_, err = admin.AppsV1().Deployments(o.Namespace).Create(ctx, o, opts)
			case *rbacv1.ClusterRole:
				_, err = admin.RbacV1().ClusterRoles().Create(ctx, o, opts)
			case *rbacv1.ClusterRoleBinding:
				_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, o, opts)
			case *rbacv1.Role:
				_, err = admin.RbacV1().Roles(o.Namespace).Create(ctx, o, opts)
			case *rbacv1.RoleBinding:
				_, err = admin.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, opts)
			default:
				t.Fatalf("%s has a %T", folder, o)
			}
			if !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
	}
}

// The API server takes the manifests, and allocations as they are made here from the
// scheduler's own account, which needs the rights for claims.
func TestServerTakesAllocations(t *testing.T) {
	admin, ours := start(t)
	ctx, opts := t.Context(), metav1.CreateOptions{}
	apply(t, admin, opts, deploy.Standalone)
	apply(t, admin, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}, deploy.Plugin)
	o := load(t)
	for _, name := range []string{"node-1", "node-2"} {
		_, err := admin.CoreV1().Nodes().Create(ctx, newNode(name), opts)
		require.NoError(t, err)
	}
	for _, c := range o.classes {
		_, err := admin.ResourceV1().DeviceClasses().Create(ctx, c, opts)
		require.NoError(t, err)
	}
	for _, s := range append(o.slices, divisible("node-9", 1)...) {
		_, err := admin.ResourceV1().ResourceSlices().Create(ctx, s, opts)
		require.NoError(t, err)
	}
	claim, err := admin.ResourceV1().ResourceClaims("default").Create(ctx, o.claim, opts)
	require.NoError(t, err)
	pod, err := admin.CoreV1().Pods("default").Create(ctx, o.pod, opts)
	require.NoError(t, err)

	_, err = ours.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	apply(t, admin, opts, deploy.ForClaims)
	var published *resourcev1.ResourceSliceList
	require.Eventually(t, func() bool {
		published, err = ours.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		return err == nil
	}, 10*time.Second, 50*time.Millisecond, "the roles take effect")
	var all []*resourcev1.ResourceSlice
	for i := range published.Items {
		all = append(all, &published.Items[i])
	}
	v := New(Config{}, all, o.classes)
	require.Empty(t, v.Faults())
	require.Equal(t, "dra_1g.10gbx1@127_2g.20gbx2@21_3g.40gbx4@17_7g.80gbx8@1", v.Devices()["node-9"].MIG)
	claims, err := Claims(pod, get(claim))
	require.NoError(t, err)
	out, err := v.Allocate(pod, claims, lockstep.Member{Node: "node-2", Devices: 3})
	require.NoError(t, err)
	require.True(t, NeedsUpdate(claim, out[0]))
	after, err := ours.ResourceV1().ResourceClaims("default").Update(ctx, out[0], metav1.UpdateOptions{})
	require.NoError(t, err)
	out[0].ResourceVersion = after.ResourceVersion
	after, err = ours.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, out[0], metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, out[0].Status, after.Status)
	require.Equal(t, []string{resourcev1.Finalizer}, after.Finalizers)

	b := view.Binding{Namespace: "default", Name: pod.Name, UID: pod.UID, Node: "node-2", Annotations: map[string]string{view.KeyRank: "0", view.KeyWorldSize: "1"}}
	require.NoError(t, ours.CoreV1().Pods("default").Bind(ctx, b.Object(), opts))
	bound, err := ours.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "node-2", bound.Spec.NodeName)
	require.Equal(t, "0", bound.Annotations[view.KeyRank])
	m, ok := v.Member([]*resourcev1.ResourceClaim{after})
	require.True(t, ok)
	require.Equal(t, lockstep.Member{Node: "node-2", Devices: 3}, m)

	free, err := Deallocate(pod, after)
	require.NoError(t, err)
	free, err = ours.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, free, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Nil(t, free.Status.Allocation)
}
