package standalone

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/dra"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// Config configures a Scheduler. Only Client has no default.
type Config struct {
	View      view.Config      `json:"view"`               // View says how nodes and pods are read, and which pods are ours.
	Rule      scheduler.Rule   `json:"rule,omitempty"`     // Rule is the policy; "" means Priority. Queues of the ConfigMap win over it.
	Quota     quota.Config     `json:"quota,omitzero"`     // Quota is a tree of queues; zero limits nothing. Without a Capacity the devices of the nodes are divided. That of the ConfigMap wins over it. Not with the rule Static, which has its own.
	Queues    ObjectName       `json:"queues,omitzero"`    // Queues is a ConfigMap with rule, weights and terms, see view.ParseQueues; zero means none.
	Election  Election         `json:"election,omitzero"`  // Election is how one of several replicas becomes the one that acts.
	Parallel  int              `json:"parallel,omitempty"` // Parallel is how many writes are under way at once; 0 means 16.
	Repair    time.Duration    `json:"repair,omitempty"`   // Repair is how long a gang may have fewer pods bound than its least before it is undone; 0 means 5 s.
	Regroup   time.Duration    `json:"regroup,omitempty"`  // Regroup is the least time between two looks at changed nodes, so that a burst of changes costs one; 0 means 200 ms.
	Patience  time.Duration    `json:"patience,omitempty"` // Patience is how long a gang waits before it is told why; 0 means 5 s.
	Repeat    time.Duration    `json:"repeat,omitempty"`   // Repeat is the least time between two reports about one gang; 0 means 1 minute.
	Reports   int              `json:"reports,omitempty"`  // Reports is how many writes a second reports may take, events and conditions together; 0 means 20, and less than 0 means that none are made.
	Drain     time.Duration    `json:"drain,omitempty"`    // Drain is how long a graceful stop waits for bindings that are under way; 0 means 10 s.
	Evict     bool             `json:"evict,omitempty"`    // Evict stops pods by the eviction API, which heeds disruption budgets, rather than by deletion.
	Claims    bool             `json:"claims,omitempty"`   // Claims gives out devices by resource claims too; without it pods with claims are held.
	Drivers   dra.Config       `json:"drivers,omitzero"`   // Drivers says how drivers name things, for Claims.
	Listen    string           `json:"listen,omitempty"`   // Listen is the address of /healthz, /readyz and /metrics; "" means none.
	Scheduler scheduler.Config `json:"scheduler,omitzero"` // Scheduler is what the composition is made with; Tree, Nodes, Rule, Policy, Recorder and StartAtOnce are filled in here.

	Client   kubernetes.Interface `json:"-"` // Client reaches the API server; required. Its rate limits are the caller's.
	Binder   Binder               `json:"-"` // Binder makes bindings in place of the API server's client; nil means that client.
	Metrics  http.Handler         `json:"-"` // Metrics serves /metrics; nil means that there is none.
	Recorder lockstep.Recorder    `json:"-"` // Recorder takes measurements; nil means none.
	Clock    lockstep.Clock       `json:"-"` // Clock tells the time of decisions; nil means a lockstep.Monotone. Leases go by the system's monotonic clock.
	Logger   *zap.Logger          `json:"-"` // Logger is told of each decision and fault once; nil means nobody.
}

// ObjectName names an object.
type ObjectName struct {
	Namespace string `json:"namespace,omitempty"` // Namespace is its namespace.
	Name      string `json:"name,omitempty"`      // Name is its name; "" means none.
}

// Election says how one of several replicas becomes the one that acts.
type Election struct {
	Disable  bool          `json:"disable,omitempty"`  // Disable is for a scheduler that has no replicas, and no lease.
	Lease    ObjectName    `json:"lease,omitzero"`     // Lease is the lease; empty parts mean kube-system and lockstep-scheduler.
	Identity string        `json:"identity,omitempty"` // Identity is unique to this process; "" means one made of the host name and a random number.
	Term     time.Duration `json:"term,omitempty"`     // Term is how long others wait for a holder that does not renew; 0 means 15 s.
	Renew    time.Duration `json:"renew,omitempty"`    // Renew is how long after it asked for the last renewal that was granted a holder still acts, less than Term; 0 means two thirds of Term.
	Retry    time.Duration `json:"retry,omitempty"`    // Retry is the time between two attempts to get or renew it; 0 means an eighth of Term.
}

// Priority, as Config.Rule, is strict priority: higher first, then the gang that
// came first; and a gang that finds no room takes that of gangs with less priority
// that may be preempted. It is the default.
const Priority scheduler.Rule = "priority"

// LTGF, as Config.Rule, is long-term GPU-time fairness between tenants, which is
// scheduler.LTGF: "" means another rule here.
const LTGF scheduler.Rule = "ltgf"

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "standalone: config", Field: field, Value: value, Reason: reason})
	}
	errs = append(errs, c.View.Validate(), validQuota(c.Quota))
	known := c.Rule == "" || c.Rule == Priority || c.Rule == LTGF
	for _, r := range scheduler.Rules() {
		known = known || c.Rule == r
	}
	if !known {
		bad("Rule", errtext.Quote(string(c.Rule)), "no such rule")
	}
	if c.Rule == scheduler.Static && limits(&c.Quota) {
		bad("Quota", itoa(len(c.Quota.Queues)+len(c.Quota.Tenants))+" queues", "the rule static has its own")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Repair", c.Repair},
		{"Regroup", c.Regroup},
		{"Patience", c.Patience},
		{"Repeat", c.Repeat},
		{"Drain", c.Drain},
		{"Election.Term", c.Election.Term},
		{"Election.Renew", c.Election.Renew},
		{"Election.Retry", c.Election.Retry},
	} {
		if d.value < 0 || d.value > lockstep.MaxWalltime {
			bad(d.field, d.value.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	if e := c.Election.withDefaults(); !e.Disable && (e.Renew >= e.Term || e.Retry >= e.Renew) {
		bad("Election", e.Term.String()+", "+e.Renew.String()+", "+e.Retry.String(), "want Retry less than Renew less than Term")
	}
	if c.Parallel < 0 || c.Parallel > 4096 {
		bad("Parallel", itoa(c.Parallel), "want 0 to 4096")
	}
	if c.Client == nil {
		bad("Client", "nil", "required")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Election = c.Election.withDefaults()
	c.Parallel = cmp.Or(c.Parallel, 16)
	c.Repair = cmp.Or(c.Repair, 5*time.Second)
	c.Regroup = cmp.Or(c.Regroup, 200*time.Millisecond)
	c.Patience = cmp.Or(c.Patience, 5*time.Second)
	c.Repeat = cmp.Or(c.Repeat, time.Minute)
	c.Reports = cmp.Or(c.Reports, 20)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Rule = cmp.Or(c.Rule, Priority)
	c.View.Layouts = true
	if c.Clock == nil {
		c.Clock = &lockstep.Monotone{}
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func (e Election) withDefaults() Election {
	e.Lease.Namespace = cmp.Or(e.Lease.Namespace, "kube-system")
	e.Lease.Name = cmp.Or(e.Lease.Name, "lockstep-scheduler")
	e.Term = cmp.Or(e.Term, 15*time.Second)
	e.Renew = cmp.Or(e.Renew, e.Term/3*2)
	e.Retry = cmp.Or(e.Retry, e.Term/8)
	return e
}

// limits reports whether q limits anybody.
func limits(q *quota.Config) bool { return len(q.Queues) > 0 || len(q.Tenants) > 0 }

// validQuota reports the faults of q. Where it has no capacity, that is the devices.
func validQuota(q quota.Config) error {
	if q.Capacity == nil {
		q.Capacity = lockstep.Resources{lockstep.ResourceGPU: 0}
	}
	return q.Validate()
}
