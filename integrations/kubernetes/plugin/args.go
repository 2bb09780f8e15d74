package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// Args are the plugin's arguments in a KubeSchedulerConfiguration. The zero Args are
// valid.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	View     view.Config           `json:"view,omitzero"`      // View says how nodes and pods are read; its scheduler name is the profile's.
	Rule     scheduler.Rule        `json:"rule,omitempty"`     // Rule is the policy; "" means standalone.Priority. Queues win over it.
	Queues   standalone.ObjectName `json:"queues,omitzero"`    // Queues is a ConfigMap with rule, weights and terms; zero means none.
	Permit   metav1.Duration       `json:"permit,omitzero"`    // Permit is how long the pods of a batch may take to come through; 0 means 30 s.
	Repair   metav1.Duration       `json:"repair,omitzero"`    // Repair is how long a gang may have fewer pods bound than its least; see standalone.Config.
	Patience metav1.Duration       `json:"patience,omitzero"`  // Patience is how long a gang waits before it is told why; see standalone.Config.
	Reports  int                   `json:"reports,omitempty"`  // Reports is how many writes a second reports may take; see standalone.Config.
	Parallel int                   `json:"parallel,omitempty"` // Parallel is how many bindings are written at once, and how many deletions; 0 means 32.
	Evict    bool                  `json:"evict,omitempty"`    // Evict stops victims by the eviction API rather than by deletion.
}

// defaultPermit is Args.Permit where that is 0.
const defaultPermit = 30 * time.Second

// defaultParallel is Args.Parallel where that is 0. The framework has a goroutine for
// each binding; several hundred writes at once take an API server longer than the same
// one behind the other.
const defaultParallel = 32

// Validate reports what is wrong with a that is not for standalone.Config to find.
func (a Args) Validate() error {
	var errs []error
	if d := a.Permit.Duration; d < 0 || d > time.Hour {
		errs = append(errs, fault("Permit", d.String(), "want 0 to 1h"))
	}
	if a.View.SchedulerName != "" {
		errs = append(errs, fault("View.SchedulerName", errtext.Quote(a.View.SchedulerName), "is that of the profile"))
	}
	return errors.Join(errs...)
}

func fault(field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "plugin: args", Field: field, Value: value, Reason: reason}
}

// parse reads the arguments as the framework hands them over: nil, or JSON or YAML
// that it has not looked into. A field that there is not is refused.
func parse(obj runtime.Object) (Args, error) {
	var a Args
	var raw []byte
	switch o := obj.(type) {
	case nil:
		return a, nil
	case *runtime.Unknown:
		raw = o.Raw
	default:
		return a, fault("args", errtext.Quote(obj.GetObjectKind().GroupVersionKind().Kind), "want JSON or YAML")
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return a, nil
	}
	data, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return a, fault("args", errtext.Quote(err.Error()), "neither JSON nor YAML")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return Args{}, fault("args", errtext.Quote(err.Error()), "cannot be read")
	}
	return a, a.Validate()
}
