package lint

import (
	"path"
	"slices"
	"strings"
)

// Kind says which rules hold for a package.
type Kind int

// The kinds of packages.
const (
	Core    Kind = iota // decides from values in values; every rule holds
	Driver              // owns a clock, goroutines or devices
	Support             // for tests only
)

// Row is what a House says about one package.
type Row struct {
	Kind       Kind     // zero is Core
	Imports    []string // packages of the module it may import, as directories; "." is the root
	ThirdParty []string // module or package paths it may import besides those of its Kind; a path covers what is below it
	// Waived maps a pattern (as in path.Match) for the base names of files to the rules that do not hold in them. It is
	// how one file of a core may be a driver.
	Waived map[string][]string
}

// House is the table of a module's packages.
type House struct {
	Module  string         // path of the module
	Rows    map[string]Row // by directory; "." is the root package
	Helpers []string       // internal packages that every package may import
}

// row returns the row of a directory. A conformance package, a child whose name ends in "test", is support for whoever
// implements its parent's interfaces; it has its parent's row and needs none of its own.
func (h House) row(dir string) (Row, bool) {
	if row, ok := h.Rows[dir]; ok {
		return row, true
	}
	parent := path.Dir(dir)
	row, ok := h.Rows[parent]
	if !ok || parent == "." || !strings.HasSuffix(dir, "test") {
		return Row{}, false
	}
	return Row{Kind: Support, Imports: row.Imports, ThirdParty: []string{testify}}, true
}

// waives says whether a rule is waived in the file of this base name.
func (r Row) waives(file, rule string) bool {
	for pattern, rules := range r.Waived { // any match will do, so order cannot matter
		if ok, _ := path.Match(pattern, file); ok && slices.Contains(rules, rule) {
			return true
		}
	}
	return false
}

// asDriver are the rules that a single driver file inside a core is free of.
var asDriver = []string{"clock", "go", "import"}

// realProcesses is for packages whose tests run processes: they wait for what the kernel tells no event of.
var realProcesses = map[string][]string{"gate_test.go": {"clock"}, "tree_test.go": {"clock"}, "helper_test.go": {"clock"}, "example_test.go": {"clock"}}

// Modules that several rows name.
const (
	btree   = "github.com/google/btree"
	testify = "github.com/stretchr/testify"
	zap     = "go.uber.org/zap"
)

// Lockstep returns the table for this module. The floors are listed from the bottom up; a package imports only what is
// below it and named. Families (a package and the packages in its directory) share a floor, and a child may import its
// parent without saying so. Rows may stand for packages that do not exist yet.
func Lockstep() House {
	root := []string{"."}
	rootPerf := []string{".", "perfmodel", "perfmodel/goodput", "perfmodel/profile"}
	rootPerfPipe := []string{".", "perfmodel", "perfmodel/goodput", "perfmodel/profile", "pipeline"}
	readers := []string{".", "topology/internal/source"}
	// cores below the composition, in floor order; scheduler and sim may import them all.
	cores := []string{
		".",
		"topology", "perfmodel", "perfmodel/goodput", "perfmodel/profile", "pipeline", "lifecycle", "lifecycle/dag",
		"sharing",
		"fairness", "fairness/quota", "fairness/drf",
		"lease",
		"policy", "policy/order", "policy/deadline", "policy/elastic", "policy/hetero", "policy/desired",
		"detect", "detect/change", "detect/fit", "detect/signal", "detect/liveness", "detect/health",
		"reconfig", "reconfig/moves", "reconfig/resize", "reconfig/rendezvous",
		"hpo", "hpo/fusion", "hpo/scaling", "hpo/bubble", "hpo/search",
		"checkpoint", "checkpoint/interval", "checkpoint/cudalog",
		"serving", "serving/llm", "serving/fleet", "serving/autoscale",
		"placement",
		"gang",
	}
	return House{
		Module:  "github.com/lockstep-gpu/lockstep",
		Helpers: []string{"internal/ordered", "internal/int128", "internal/invariant", "internal/snapshot", "internal/instant", "internal/errtext"},
		Rows: map[string]Row{
			// Floor 0. clock.go ships the clock types, one of which locks.
			".": {Waived: map[string][]string{
				"clock.go":      {"clock", "import"},
				"clock_test.go": {"clock"},
			}},

			// Floor 1.
			"topology":          {Imports: root},
			"topology/nvml":     {Kind: Driver, Imports: []string{".", "internal/nvml"}},
			"perfmodel":         {Imports: root},
			"perfmodel/goodput": {Imports: root},
			"perfmodel/profile": {Imports: root},
			"pipeline":          {Imports: root},
			"lifecycle":         {Imports: root},
			"lifecycle/dag":     {Imports: []string{".", "lifecycle"}},

			// Readers of what tools print, one package a format, and what they share.
			"topology/smi":             {Imports: readers},
			"topology/slurm":           {Imports: readers},
			"topology/labels":          {Imports: readers},
			"topology/nccl":            {Imports: readers},
			"topology/ibnet":           {Imports: readers},
			"topology/internal/source": {Imports: []string{".", "topology"}},

			// Floor 2.
			"sharing":                {Imports: []string{".", "topology"}},
			"fairness":               {Imports: root},
			"fairness/quota":         {Imports: root},
			"fairness/drf":           {Imports: root},
			"lease":                  {Imports: root},
			"policy":                 {Imports: rootPerf},
			"policy/order":           {Imports: rootPerf},
			"policy/deadline":        {Imports: rootPerf},
			"policy/elastic":         {Imports: rootPerf},
			"policy/desired":         {Imports: rootPerf},
			"policy/hetero":          {Imports: append(rootPerf[:len(rootPerf):len(rootPerf)], "internal/lp", "internal/assign")},
			"detect":                 {Imports: append(rootPerfPipe[:len(rootPerfPipe):len(rootPerfPipe)], "detect/change", "detect/fit", "detect/internal/num")},
			"detect/change":          {Imports: []string{".", "detect/internal/num"}},
			"detect/fit":             {Imports: []string{".", "perfmodel", "detect/internal/num"}},
			"detect/signal":          {Imports: root},
			"detect/internal/num":    {},
			"detect/liveness":        {Imports: rootPerfPipe},
			"detect/health":          {Imports: rootPerfPipe},
			"detect/nvml":            {Kind: Driver, Imports: []string{".", "perfmodel", "pipeline", "detect/health", "internal/nvml"}},
			"reconfig":               {Imports: []string{".", "perfmodel", "pipeline", "topology"}},
			"reconfig/moves":         {Imports: []string{".", "perfmodel", "pipeline", "topology", "reconfig", "reconfig/resize"}},
			"reconfig/resize":        {Imports: []string{".", "perfmodel", "pipeline", "topology", "reconfig"}},
			"reconfig/rendezvous":    {Imports: root},
			"hpo":                    {Imports: rootPerfPipe, ThirdParty: []string{zap}, Waived: map[string][]string{"gate*.go": asDriver}},
			"hpo/gate":               {Kind: Driver, Imports: []string{".", "internal/proctree", "internal/proctree/coop"}, ThirdParty: []string{zap}, Waived: realProcesses},
			"hpo/fusion":             {Imports: rootPerfPipe},
			"hpo/scaling":            {Imports: rootPerfPipe},
			"hpo/bubble":             {Imports: append(rootPerfPipe[:len(rootPerfPipe):len(rootPerfPipe)], "hpo/fusion")},
			"hpo/search":             {Imports: append(rootPerfPipe[:len(rootPerfPipe):len(rootPerfPipe)], "hpo/fusion", "hpo/scaling", "hpo/bubble")},
			"checkpoint":             {Imports: root, ThirdParty: []string{zap}, Waived: map[string][]string{"run*.go": asDriver}},
			"checkpoint/cuda":        {Kind: Driver, Imports: []string{".", "checkpoint", "internal/proctree"}, ThirdParty: []string{"github.com/ebitengine/purego"}, Waived: realProcesses},
			"checkpoint/process":     {Kind: Driver, Imports: []string{".", "checkpoint", "internal/proctree"}, Waived: realProcesses},
			"checkpoint/cooperative": {Kind: Driver, Imports: []string{".", "checkpoint", "internal/proctree", "internal/proctree/coop"}, Waived: realProcesses},
			"checkpoint/imagestore":  {Kind: Driver, Imports: []string{".", "checkpoint"}, ThirdParty: []string{"github.com/klauspost/compress", "lukechampine.com/blake3"}},
			"checkpoint/interval":    {Imports: []string{".", "checkpoint"}},
			"checkpoint/cudalog":     {Imports: []string{".", "checkpoint"}},

			// An autoscaler's wish is steadied by the same decorators as a training job's size.
			"serving":           {Imports: rootPerf},
			"serving/llm":       {Imports: []string{".", "perfmodel", "serving"}},
			"serving/fleet":     {Imports: []string{".", "perfmodel", "serving"}},
			"serving/autoscale": {Imports: []string{".", "perfmodel", "policy", "serving"}},

			// Floors 3 and 4.
			"placement": {Imports: []string{".", "topology", "sharing"}},
			"gang":      {Imports: root},

			// Floors 5 and 6.
			"scheduler": {Imports: cores, ThirdParty: []string{zap}, Waived: map[string][]string{"run*.go": asDriver}},
			"sim":       {Imports: append(cores[:len(cores):len(cores)], "scheduler")},

			"scheduler/meter": {Imports: []string{".", "topology", "lifecycle", "fairness", "placement", "gang", "scheduler"}}, // what a host sees of a scheduler, as measurements

			"sim/trace":   {Imports: root},                                               // readers of public traces, for hosts that replay without sim
			"sim/astraea": {Imports: []string{".", "sim/trace"}},                         // a model of another simulator, for comparisons
			"sim/pollux":  {Imports: append(cores[:len(cores):len(cores)], "sim/trace")}, // a model of another simulator, for comparisons
			"sim/serve":   {Imports: append(cores[:len(cores):len(cores)], "sim/trace")},

			// Helpers.
			"internal/ordered":       {},
			"internal/lp":            {},
			"internal/assign":        {},
			"internal/int128":        {},
			"internal/invariant":     {Imports: root},
			"internal/snapshot":      {Imports: root},
			"internal/instant":       {Imports: root},
			"internal/errtext":       {},
			"internal/nvml":          {Kind: Driver, Imports: root, ThirdParty: []string{"github.com/NVIDIA/go-nvml"}},
			"internal/proctree":      {Kind: Driver, Imports: root, Waived: realProcesses},
			"internal/proctree/coop": {Kind: Driver, Imports: root},
			"internal/golden":        {Kind: Support},
			"internal/lint":          {Kind: Support},
			"internal/apicheck":      {Kind: Support, ThirdParty: []string{"golang.org/x/exp/apidiff"}},
		},
	}
}
