package deploy

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

//go:embed standalone plugin claims
var files embed.FS

// The folders of manifests.
const (
	Standalone = "standalone" // Standalone is the scheduler as a program of its own.
	Plugin     = "plugin"     // Plugin is a kube-scheduler with the plugin, beside the cluster's own.
	ForClaims  = "claims"     // ForClaims are the rights for resource claims, to be added to either.
)

// kustomization is what is read of the file of that name.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName,omitempty"`
		NewTag  string `json:"newTag,omitempty"`
	} `json:"images,omitempty"`
}

// Objects returns the objects of a folder in the order of its kustomization, each of
// its API type, as a client applies them. A field that the type does not have is an
// error, as is a folder that there is not.
func Objects(folder string) ([]runtime.Object, error) {
	data, err := files.ReadFile(path.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, &lockstep.Error{Kind: lockstep.ErrUnknown, Op: "deploy: objects", Field: "folder", Value: errtext.Quote(folder), Reason: "want standalone, plugin or claims"}
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		return nil, fmt.Errorf("deploy: %s/kustomization.yaml: %w", folder, err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []runtime.Object
	for _, name := range k.Resources {
		data, err := files.ReadFile(path.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("deploy: %s: %w", folder, err)
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			o, _, err := decoder.Decode([]byte(doc), nil, nil)
			if err != nil {
				return nil, fmt.Errorf("deploy: %s/%s: %w", folder, name, err)
			}
			out = append(out, o)
		}
	}
	return out, nil
}
