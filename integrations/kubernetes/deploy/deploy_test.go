package deploy

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

func objects(t testing.TB, folder string) []runtime.Object {
	t.Helper()
	out, err := Objects(folder)
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// find returns the objects of one type by namespace and name.
func find[T any, P interface {
	*T
	GetName() string
	GetNamespace() string
}](all []runtime.Object) map[string]P {
	out := map[string]P{}
	for _, o := range all {
		if p, ok := o.(P); ok {
			out[path.Join(p.GetNamespace(), p.GetName())] = p
		}
	}
	return out
}

func TestEveryFileIsInItsKustomization(t *testing.T) {
	for _, folder := range []string{Standalone, Plugin, ForClaims} {
		data, err := files.ReadFile(folder + "/kustomization.yaml")
		require.NoError(t, err)
		var k kustomization
		require.NoError(t, yaml.UnmarshalStrict(data, &k))
		require.Equal(t, "kustomize.config.k8s.io/v1beta1", k.APIVersion)
		require.Equal(t, "Kustomization", k.Kind)
		entries, err := fs.ReadDir(files, folder)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			if e.Name() != "kustomization.yaml" {
				names = append(names, e.Name())
			}
		}
		require.ElementsMatch(t, k.Resources, names, folder)
		images := map[string]bool{}
		for _, d := range find[appsv1.Deployment](objects(t, folder)) { // a set
			for _, c := range d.Spec.Template.Spec.Containers {
				images[c.Image] = true
			}
		}
		for _, i := range k.Images {
			require.True(t, images[i.Name], "%s: nobody has the image %s", folder, i.Name)
		}
		require.Len(t, k.Images, len(images), folder)
	}
}

func TestUnknownFolder(t *testing.T) {
	_, err := Objects("helm")
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

// The roles grant what the table says, no more and no less.
func TestRolesAreTheTable(t *testing.T) {
	for folder, want := range map[string]struct { // each stands alone
		cluster, namespaced []rbacv1.PolicyRule
		clusterRole         string
	}{
		Standalone: {Rules(Rights(), "", Always, Gangs, Evictions), Rules(Rights(), Namespace, Always, Elections), Name},
		Plugin:     {Rules(Rights(), "", Always, Gangs, Evictions), Rules(Rights(), Namespace, Always, Elections), Name},
		ForClaims:  {Rules(Rights(), "", Claims), nil, Name + "-claims"},
	} {
		all := objects(t, folder)
		roles := find[rbacv1.ClusterRole](all)
		require.Equal(t, []string{want.clusterRole}, slices.Collect(maps.Keys(roles)))
		require.ElementsMatch(t, want.cluster, roles[want.clusterRole].Rules, folder)
		var rules []rbacv1.PolicyRule
		for name, r := range find[rbacv1.Role](all) { // one
			require.Equal(t, Namespace+"/"+Name, name)
			rules = append(rules, r.Rules...)
		}
		require.ElementsMatch(t, want.namespaced, rules, folder)
	}
	used := map[Use]bool{Always: true, Gangs: true, Evictions: true, Elections: true, Claims: true}
	for _, r := range Rights() {
		require.True(t, used[r.Use])
		require.True(t, slices.IsSorted(r.Verbs))
		require.NotContains(t, r.Verbs, "*")
		require.NotContains(t, r.Resource, "secrets")
	}
}

// Every role is bound, to the account that the pods have.
func TestRolesAreBound(t *testing.T) {
	for _, folder := range []string{Standalone, Plugin, ForClaims} {
		all := objects(t, folder)
		subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: Name, Namespace: Namespace}}
		bound := map[string]bool{}
		for _, b := range find[rbacv1.ClusterRoleBinding](all) { // a set
			require.Equal(t, subject, b.Subjects)
			require.Equal(t, "ClusterRole", b.RoleRef.Kind)
			bound[b.RoleRef.Name] = true
		}
		for name := range find[rbacv1.ClusterRole](all) { // a set
			require.True(t, bound[name], name)
		}
		for _, b := range find[rbacv1.RoleBinding](all) { // a set
			require.Equal(t, subject, b.Subjects)
			bound[b.Namespace+"/"+b.RoleRef.Name] = true
		}
		for name := range find[rbacv1.Role](all) { // a set
			require.True(t, bound[name], name)
		}
		for _, d := range find[appsv1.Deployment](all) { // one
			require.Contains(t, find[corev1.ServiceAccount](all), d.Namespace+"/"+d.Spec.Template.Spec.ServiceAccountName)
			require.Contains(t, find[corev1.Namespace](all), d.Namespace)
			require.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
		}
	}
}

func TestQueuesOfTheManifestsAreRead(t *testing.T) {
	for _, folder := range []string{Standalone, Plugin} {
		c := find[corev1.ConfigMap](objects(t, folder))[Namespace+"/"+Queues]
		require.NotNil(t, c)
		q, err := view.ParseQueues(c.Namespace, c.Name, c.Data)
		require.NoError(t, err)
		require.Equal(t, 1000, q.Scheduler.MaxAttempts)
	}
}

// The Deployment gives flags that the program has.
func TestFlagsOfTheManifestExist(t *testing.T) {
	source, err := os.ReadFile("../standalone/lockstep-scheduler/main.go")
	if err != nil {
		t.Skip("the program's source is not there:", err)
	}
	flags := map[string]bool{}
	for _, m := range regexp.MustCompile(`f\.(?:\w+Var\([^"]+|\w+\()"([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		flags[m[1]] = true
	}
	require.True(t, flags["kubeconfig"], "%v", flags)
	d := find[appsv1.Deployment](objects(t, Standalone))[Namespace+"/"+Name]
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		require.True(t, flags[name], "no flag %s", name)
	}
}

func TestConfigurationOfKubeScheduler(t *testing.T) {
	all := objects(t, Plugin)
	c := find[corev1.ConfigMap](all)[Namespace+"/lockstep-kube-scheduler"]
	require.NotNil(t, c)
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerconfig.AddToScheme(scheme))
	o, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(c.Data["config.yaml"]), nil, nil)
	require.NoError(t, err)
	cfg := o.(*schedulerconfig.KubeSchedulerConfiguration)
	require.Equal(t, Name, *cfg.Profiles[0].SchedulerName)
	require.Equal(t, Namespace, cfg.LeaderElection.ResourceNamespace)
	require.Equal(t, Name, cfg.LeaderElection.ResourceName)
	enabled := cfg.Profiles[0].Plugins.MultiPoint.Enabled[0].Name
	require.Equal(t, enabled, cfg.Profiles[0].PluginConfig[0].Name)
	var args struct {
		View view.Config `json:"view"`
	}
	require.NoError(t, yaml.Unmarshal(cfg.Profiles[0].PluginConfig[0].Args.Raw, &args))
	require.Equal(t, "topology.kubernetes.io/zone", args.View.Keys[0].Label)
	require.NoError(t, args.View.Validate())
	d := find[appsv1.Deployment](all)[Namespace+"/"+Name]
	require.Equal(t, c.Name, d.Spec.Template.Spec.Volumes[0].ConfigMap.Name)
	require.Equal(t, "--config="+d.Spec.Template.Spec.Containers[0].VolumeMounts[0].MountPath+"/config.yaml", d.Spec.Template.Spec.Containers[0].Args[0])
}

func TestPodsRunWithoutPrivileges(t *testing.T) {
	for _, folder := range []string{Standalone, Plugin} {
		for _, d := range find[appsv1.Deployment](objects(t, folder)) { // one
			pod := d.Spec.Template.Spec
			require.True(t, *pod.SecurityContext.RunAsNonRoot)
			for _, c := range pod.Containers {
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
				require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
				require.NotEmpty(t, c.Resources.Requests)
			}
		}
	}
}
