package lockstep_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// valid returns a gang in which every field of every struct is set.
func valid() *lockstep.Gang {
	constraints := func(zone string) lockstep.Constraints {
		return lockstep.Constraints{
			Selector: []lockstep.Requirement{
				{Key: "zone", Operator: lockstep.In, Values: []string{zone, "NVIDIA H100 80GB"}},
				{Key: "example.com/spot", Operator: lockstep.DoesNotExist},
			},
			Tolerations: []lockstep.Toleration{{Key: "maintenance", Value: "soon"}, {}},
			Affinity:    []lockstep.Affinity{{Match: map[string]string{"app": "cache", "tier": ""}, Level: "rack", Anti: true}},
		}
	}
	return &lockstep.Gang{
		ID: "ns/job-1", Tenant: "团队:a", Queue: "research.high", Priority: -5,
		Roles: []lockstep.Role{
			{
				Name: "worker", Min: 4, Max: 8, Inner: lockstep.Inner{Size: 2, Level: "node"}, Constraints: constraints("a"), Spares: 2,
				Demand: lockstep.Demand{GPUs: 8, Share: 500, GPUMemory: 80 * lockstep.GiB, Classes: []lockstep.DeviceClass{"h100", "1g.5gb+me"}, CPU: 16 * lockstep.WholeCPU, Memory: 256 * lockstep.GiB, RDMA: 8},
			},
			{Name: "launcher", Min: 1, Demand: lockstep.Demand{CPU: 500}},
		},
		Required: "block", Preferred: "rack", Strategy: lockstep.Spread, Preemption: lockstep.PreemptNever, Canary: 2, Walltime: 4 * time.Hour, Hold: time.Minute,
		Labels:      map[string]string{"app": "train", "empty": "", "team.example/name": "x y"},
		Constraints: constraints("b"),
		Capabilities: lockstep.Capabilities{
			Preemptible: true, Resizable: true, Shareable: true, BatchMutable: true, Replaceable: true,
			Save: 30 * time.Second, Restore: time.Minute, Grace: time.Second,
		},
	}
}

// faults returns every *Error that err joins, in order.
func faults(t *testing.T, err error) []*lockstep.Error {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "Validate joins its faults")
	var list []*lockstep.Error
	for _, err := range joined.Unwrap() {
		e, ok := err.(*lockstep.Error)
		require.True(t, ok, "%T", err)
		list = append(list, e)
	}
	return list
}

func TestValidGangs(t *testing.T) {
	require.NoError(t, valid().Validate())
	for name, g := range map[string]lockstep.Gang{ // the order does not matter: each case stands alone
		"least":    {ID: "j", Roles: []lockstep.Role{{Min: 1}}},
		"most":     {ID: lockstep.JobID(strings.Repeat("x", lockstep.MaxIDLength)), Roles: []lockstep.Role{{Min: 1, Max: lockstep.MaxMembers}}, Walltime: lockstep.MaxWalltime},
		"huge":     {ID: "j", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 64, Share: 1000, Memory: 1024 * lockstep.TiB, CPU: 1e12, RDMA: 1024}}}},
		"memory":   {ID: "j", Roles: []lockstep.Role{{Min: lockstep.MaxMembers, Demand: lockstep.Demand{Memory: 4 * lockstep.TiB}}}},
		"priority": {ID: "j", Priority: math.MinInt32, Roles: []lockstep.Role{{Min: 3, Inner: lockstep.Inner{Size: 1}}}},
	} {
		require.NoError(t, g.Validate(), name)
	}
}

func TestGangValidateNamesEachFault(t *testing.T) {
	long := strings.Repeat("x", lockstep.MaxIDLength+1)
	type fault struct {
		field, value string
		kind         error
	}
	inv := func(field, value string) fault { return fault{field, value, lockstep.ErrInvalid} }
	dup := func(field, value string) fault { return fault{field, value, lockstep.ErrDuplicate} }
	worker := func(g *lockstep.Gang) *lockstep.Role { return &g.Roles[0] }
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		spoil func(g *lockstep.Gang)
		want  []fault
	}{
		"no ID":               {func(g *lockstep.Gang) { g.ID = "" }, []fault{inv("ID", `""`)}},
		"ID with a space":     {func(g *lockstep.Gang) { g.ID = "a b" }, []fault{inv("ID", `"a b"`)}},
		"ID with a line":      {func(g *lockstep.Gang) { g.ID = "a\nRANK=0" }, []fault{inv("ID", `"a\nRANK=0"`)}},
		"ID too long":         {func(g *lockstep.Gang) { g.ID = lockstep.JobID(long) }, []fault{inv("ID", `"`+long[:40]+`"...`)}},
		"tenant":              {func(g *lockstep.Gang) { g.Tenant = "a\xff" }, []fault{inv("Tenant", `"a\xff"`)}},
		"queue":               {func(g *lockstep.Gang) { g.Queue = "a,b" }, []fault{inv("Queue", `"a,b"`)}},
		"required":            {func(g *lockstep.Gang) { g.Required = "NVLink domain" }, []fault{inv("Required", `"NVLink domain"`)}},
		"preferred":           {func(g *lockstep.Gang) { g.Preferred = "=" }, []fault{inv("Preferred", `"="`)}},
		"strategy":            {func(g *lockstep.Gang) { g.Strategy = "tight" }, []fault{inv("Strategy", `"tight"`)}},
		"walltime":            {func(g *lockstep.Gang) { g.Walltime = -1 }, []fault{inv("Walltime", "-1ns")}},
		"walltime too long":   {func(g *lockstep.Gang) { g.Walltime = lockstep.MaxWalltime + 1 }, []fault{inv("Walltime", "87600h0m0.000000001s")}},
		"hold":                {func(g *lockstep.Gang) { g.Hold = math.MinInt64 }, []fault{inv("Hold", time.Duration(math.MinInt64).String())}},
		"save":                {func(g *lockstep.Gang) { g.Capabilities.Save = -time.Second }, []fault{inv("Capabilities.Save", "-1s")}},
		"restore":             {func(g *lockstep.Gang) { g.Capabilities.Restore = -time.Second }, []fault{inv("Capabilities.Restore", "-1s")}},
		"grace":               {func(g *lockstep.Gang) { g.Capabilities.Grace = -time.Second }, []fault{inv("Capabilities.Grace", "-1s")}},
		"label keys":          {func(g *lockstep.Gang) { g.Labels = map[string]string{"b c": "", "": "", "ok": "x"} }, []fault{inv("Labels", `""`), inv("Labels", `"b c"`)}},
		"label value":         {func(g *lockstep.Gang) { g.Labels = map[string]string{"b": "x\ny", "a": "\xff", "c": long} }, []fault{inv("Labels.a", `"\xff"`), inv("Labels.b", `"x\ny"`), inv("Labels.c", `"`+long[:40]+`"...`)}},
		"selector key":        {func(g *lockstep.Gang) { g.Constraints.Selector[0].Key = "" }, []fault{inv("Constraints.Selector[0].Key", `""`)}},
		"selector operator":   {func(g *lockstep.Gang) { g.Constraints.Selector[1].Operator = "Gt" }, []fault{inv("Constraints.Selector[1].Operator", `"Gt"`)}},
		"selector no values":  {func(g *lockstep.Gang) { g.Constraints.Selector[0].Values = nil }, []fault{inv("Constraints.Selector[0].Values", "[]")}},
		"selector values":     {func(g *lockstep.Gang) { g.Constraints.Selector[1].Values = []string{"a b"} }, []fault{inv("Constraints.Selector[1].Values", `["a b"]`)}},
		"selector value":      {func(g *lockstep.Gang) { g.Constraints.Selector[0].Values[1] = "a\tb" }, []fault{inv("Constraints.Selector[0].Values[1]", `"a\tb"`)}},
		"toleration":          {func(g *lockstep.Gang) { worker(g).Constraints.Tolerations[0].Key = "" }, []fault{inv("Roles[0].Constraints.Tolerations[0].Key", `""`)}},
		"toleration value":    {func(g *lockstep.Gang) { worker(g).Constraints.Tolerations[0].Value = "\r" }, []fault{inv("Roles[0].Constraints.Tolerations[0].Value", `"\r"`)}},
		"affinity without":    {func(g *lockstep.Gang) { worker(g).Constraints.Affinity[0].Match = nil }, []fault{inv("Roles[0].Constraints.Affinity[0].Match", "{}")}},
		"affinity level":      {func(g *lockstep.Gang) { g.Constraints.Affinity[0].Level = " " }, []fault{inv("Constraints.Affinity[0].Level", `" "`)}},
		"affinity label":      {func(g *lockstep.Gang) { g.Constraints.Affinity[0].Match["$"] = "" }, []fault{inv("Constraints.Affinity[0].Match", `"$"`)}},
		"no roles":            {func(g *lockstep.Gang) { g.Roles = nil }, []fault{inv("Roles", "0")}},
		"too many roles":      {func(g *lockstep.Gang) { g.Roles = make([]lockstep.Role, 65) }, []fault{inv("Roles", "65")}},
		"role name":           {func(g *lockstep.Gang) { worker(g).Name = "work er" }, []fault{inv("Roles[0].Name", `"work er"`)}},
		"role unnamed":        {func(g *lockstep.Gang) { worker(g).Name = "" }, []fault{inv("Roles[0].Name", `""`)}},
		"role twice":          {func(g *lockstep.Gang) { worker(g).Name = "launcher" }, []fault{dup("Roles[1].Name", `"launcher"`)}},
		"min":                 {func(g *lockstep.Gang) { worker(g).Min = 0 }, []fault{inv("Roles[0].Min", "0")}},
		"min below":           {func(g *lockstep.Gang) { worker(g).Min = -2 }, []fault{inv("Roles[0].Min", "-2")}},
		"min above":           {func(g *lockstep.Gang) { worker(g).Min, worker(g).Max = 1<<20+2, 0 }, []fault{inv("Roles[0].Min", "1048578"), inv("Roles", "1048581")}},
		"max below min":       {func(g *lockstep.Gang) { worker(g).Max = 2 }, []fault{inv("Roles[0].Max", "2")}},
		"max above":           {func(g *lockstep.Gang) { worker(g).Max = 1<<20 + 2 }, []fault{inv("Roles[0].Max", "1048578"), inv("Roles", "1048581")}},
		"together":            {func(g *lockstep.Gang) { worker(g).Max = 1 << 20 }, []fault{inv("Roles", "1048579")}},
		"inner size":          {func(g *lockstep.Gang) { worker(g).Inner.Size = -1 }, []fault{inv("Roles[0].Inner.Size", "-1")}},
		"inner size above":    {func(g *lockstep.Gang) { worker(g).Inner.Size = 1<<20 + 1 }, []fault{inv("Roles[0].Inner.Size", "1048577")}},
		"inner not whole":     {func(g *lockstep.Gang) { worker(g).Inner.Size = 3 }, []fault{inv("Roles[0].Inner.Size", "3")}},
		"inner max not whole": {func(g *lockstep.Gang) { worker(g).Max = 7 }, []fault{inv("Roles[0].Inner.Size", "2")}},
		"inner level":         {func(g *lockstep.Gang) { worker(g).Inner.Level = "-n" }, []fault{inv("Roles[0].Inner.Level", `"-n"`)}},
		"gpus":                {func(g *lockstep.Gang) { worker(g).Demand.GPUs = 65 }, []fault{inv("Roles[0].Demand.GPUs", "65")}},
		"gpus below":          {func(g *lockstep.Gang) { worker(g).Demand.GPUs = -1 }, []fault{inv("Roles[0].Demand.GPUs", "-1")}},
		"gpus missing":        {func(g *lockstep.Gang) { worker(g).Demand.GPUs = 0 }, []fault{inv("Roles[0].Demand.GPUs", "0")}},
		"share":               {func(g *lockstep.Gang) { worker(g).Demand.Share = 1001 }, []fault{inv("Roles[0].Demand.Share", "1001m")}},
		"share below":         {func(g *lockstep.Gang) { worker(g).Demand.Share = -1 }, []fault{inv("Roles[0].Demand.Share", "-1m")}},
		"gpu memory":          {func(g *lockstep.Gang) { worker(g).Demand.GPUMemory = -1 }, []fault{inv("Roles[0].Demand.GPUMemory", "-1")}},
		"cpu":                 {func(g *lockstep.Gang) { worker(g).Demand.CPU = -1 }, []fault{inv("Roles[0].Demand.CPU", "-1m")}},
		"cpu above":           {func(g *lockstep.Gang) { worker(g).Demand.CPU = 1e12 + 1 }, []fault{inv("Roles[0].Demand.CPU", "1000000000001m")}},
		"memory":              {func(g *lockstep.Gang) { worker(g).Demand.Memory = math.MinInt64 }, []fault{inv("Roles[0].Demand.Memory", "-8Ei")}},
		"memory above":        {func(g *lockstep.Gang) { worker(g).Demand.Memory = 2048 * lockstep.TiB }, []fault{inv("Roles[0].Demand.Memory", "2Pi")}},
		"spares":              {func(g *lockstep.Gang) { worker(g).Spares = -1 }, []fault{inv("Roles[0].Spares", "-1")}},
		"spares together":     {func(g *lockstep.Gang) { worker(g).Spares = 1 << 20 }, []fault{inv("Roles", "1048585")}},
		"preemption":          {func(g *lockstep.Gang) { g.Preemption = "Never" }, []fault{inv("Preemption", `"Never"`)}},
		"canary":              {func(g *lockstep.Gang) { g.Canary = -1 }, []fault{inv("Canary", "-1")}},
		"profile":             {func(g *lockstep.Gang) { worker(g).Demand = lockstep.Demand{GPUs: 1, Profile: "1g 5gb"} }, []fault{inv("Roles[0].Demand.Profile", `"1g 5gb"`)}},
		"profile of two":      {func(g *lockstep.Gang) { worker(g).Demand = lockstep.Demand{GPUs: 2, Profile: "1g.5gb"} }, []fault{inv("Roles[0].Demand.Profile", `"1g.5gb"`)}},
		"profile with share":  {func(g *lockstep.Gang) { worker(g).Demand = lockstep.Demand{GPUs: 1, Share: 1, Profile: "1g.5gb"} }, []fault{inv("Roles[0].Demand.Profile", `"1g.5gb"`)}},
		"profile without":     {func(g *lockstep.Gang) { worker(g).Demand = lockstep.Demand{Profile: "1g.5gb"} }, []fault{inv("Roles[0].Demand.GPUs", "0")}},
		"memory together":     {func(g *lockstep.Gang) { worker(g).Max = 1 << 13; worker(g).Demand.Memory = 1024 * lockstep.TiB }, []fault{inv("Roles", "8Ei")}},
		"rdma":                {func(g *lockstep.Gang) { worker(g).Demand.RDMA = -1 }, []fault{inv("Roles[0].Demand.RDMA", "-1")}},
		"rdma above":          {func(g *lockstep.Gang) { worker(g).Demand.RDMA = 1025 }, []fault{inv("Roles[0].Demand.RDMA", "1025")}},
		"class":               {func(g *lockstep.Gang) { worker(g).Demand.Classes[0] = "" }, []fault{inv("Roles[0].Demand.Classes[0]", `""`)}},
		"class text":          {func(g *lockstep.Gang) { worker(g).Demand.Classes[1] = "NVIDIA H100" }, []fault{inv("Roles[0].Demand.Classes[1]", `"NVIDIA H100"`)}},
		"class twice":         {func(g *lockstep.Gang) { worker(g).Demand.Classes[1] = "h100" }, []fault{dup("Roles[0].Demand.Classes[1]", `"h100"`)}},
		"all at once": {func(g *lockstep.Gang) {
			g.ID, g.Tenant, g.Walltime, g.Roles[1].Min, g.Roles[1].Name = "", " ", -1, 0, "worker"
		}, []fault{inv("ID", `""`), inv("Tenant", `" "`), inv("Walltime", "-1ns"), dup("Roles[1].Name", `"worker"`), inv("Roles[1].Min", "0")}},
	} {
		t.Run(name, func(t *testing.T) {
			g := valid()
			c.spoil(g)
			before := g.Clone()
			err := g.Validate()
			var got []fault
			for _, e := range faults(t, err) {
				require.NotEmpty(t, e.Reason)
				require.Equal(t, "lockstep: gang", e.Op)
				require.NotContains(t, e.Error(), "\n", "a fault is one line")
				got = append(got, fault{e.Field, e.Value, e.Kind})
				require.ErrorIs(t, err, e.Kind)
			}
			want := c.want
			if name == "memory together" { // 8Ei does not fit int64, so the sum is held at the end
				want[0].value = lockstep.Bytes(math.MaxInt64).String()
			}
			require.Equal(t, want, got)
			require.Equal(t, before, g, "Validate changes nothing")
		})
	}
	require.ErrorIs(t, (*lockstep.Gang)(nil).Validate(), lockstep.ErrInvalid)
}

func TestMemberSumDoesNotWrapOn32Bits(t *testing.T) {
	g := lockstep.Gang{ID: "j"}
	for i := range 4 { // 4 × (1<<30) is 0 in 32 bits
		g.Roles = append(g.Roles, lockstep.Role{Name: lockstep.RoleName(fmt.Sprint("r", i)), Min: 1, Max: 1 << 30})
	}
	list := faults(t, g.Validate())
	last := list[len(list)-1]
	require.Equal(t, "Roles", last.Field)
	require.Equal(t, "4294967296", last.Value)
}

func TestIDs(t *testing.T) {
	validators := map[string]func(string) error{
		"JobID":       func(s string) error { return lockstep.JobID(s).Validate() },
		"NodeID":      func(s string) error { return lockstep.NodeID(s).Validate() },
		"DeviceID":    func(s string) error { return lockstep.DeviceID(s).Validate() },
		"TenantID":    func(s string) error { return lockstep.TenantID(s).Validate() },
		"QueueID":     func(s string) error { return lockstep.QueueID(s).Validate() },
		"RoleName":    func(s string) error { return lockstep.RoleName(s).Validate() },
		"Level":       func(s string) error { return lockstep.Level(s).Validate() },
		"DeviceClass": func(s string) error { return lockstep.DeviceClass(s).Validate() },
	}
	good := []string{
		"a", "0", "team-a/job_1", "1234_5.batch", "123+0", "node-7.rack2.example.com", "a@b.example", "system:serviceaccount:ns:x", "fe80::1%eth0",
		"MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/1/0", "1g.5gb+me", "Größe", "नमस्ते", "任务", strings.Repeat("x", lockstep.MaxIDLength),
	}
	bad := []string{
		"", " ", "a b", "a\n", "a\x00", "a=b", "a,b", "a;b", "#a", "$a", "`a`", "a\"", "a'", `a\b`, "a|b", "a&b", "a<b", "(a)", "a*", "a?", "a[0]", "{a}", "~a", "!a", "-a",
		"a\u00a0b", "a\u2028b", "a\u200bb", "a\u202eb", "\ufeffa", "a\xff", "🚀", strings.Repeat("x", lockstep.MaxIDLength+1), strings.Repeat("é", lockstep.MaxIDLength),
	}
	for kind, validate := range validators { // the order does not matter: each case stands alone
		for _, s := range good {
			require.NoError(t, validate(s), "%s %q", kind, s)
		}
		for _, s := range bad {
			err := validate(s)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e, "%s %q", kind, s)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.Equal(t, kind, e.Field)
			require.LessOrEqual(t, len(err.Error()), 300)
		}
	}
}

func TestErrorText(t *testing.T) {
	e := &lockstep.Error{Kind: lockstep.ErrStale, Op: "placement: apply", Field: "Plan.Version", Value: "7", Reason: "want 9"}
	require.EqualError(t, e, "placement: apply: Plan.Version = 7: want 9")
	require.ErrorIs(t, fmt.Errorf("host: %w", e), lockstep.ErrStale)
	require.NotErrorIs(t, e, lockstep.ErrInvalid)
	require.EqualError(t, &lockstep.Error{Kind: lockstep.ErrPast, Op: "gang: step"}, "gang: step: time went backwards")
	require.EqualError(t, &lockstep.Error{Op: "gang: step", Field: "Job", Reason: "gone"}, "gang: step: Job: gone")
	require.NoError(t, errors.Unwrap(&lockstep.Error{}))
}

func TestGangCounts(t *testing.T) {
	g := valid()
	require.Equal(t, 5, g.MinMembers())
	require.Equal(t, 9, g.MaxMembers())
	require.EqualValues(t, 4*8*500, g.GPUs(nil))
	require.EqualValues(t, 8*8*500, g.GPUs([]int{8, 1}))
	require.Zero(t, g.GPUs([]int{0, 100}))
	require.Panics(t, func() { g.GPUs([]int{1}) }, "a count is missing")
}

// scramble changes everything that v holds in memory shared by reference.
func scramble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scramble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			scramble(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.ValueOf("scrambled"))
		}
		v.SetMapIndex(reflect.ValueOf("added"), reflect.ValueOf("scrambled"))
	case reflect.String:
		v.SetString("scrambled")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	default:
		panic("no way to scramble " + v.Type().String())
	}
}

// requireFull fails where a field of v, at any depth, is left at its zero.
func requireFull(t *testing.T, v reflect.Value, at string, mayBeZero ...string) {
	t.Helper()
	for _, suffix := range mayBeZero {
		if strings.HasSuffix(at, suffix) {
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			requireFull(t, v.Field(i), at+"."+v.Type().Field(i).Name, mayBeZero...)
		}
	case reflect.Slice:
		require.Positive(t, v.Len(), at)
		requireFull(t, v.Index(0), at+"[0]", mayBeZero...)
	default:
		require.False(t, v.IsZero(), at)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	g := valid()
	requireFull(t, reflect.ValueOf(*g), "Gang", ".Profile")
	c := g.Clone()
	require.Equal(t, g, c)
	scramble(reflect.ValueOf(c))
	require.NotEqual(t, valid(), c)
	require.Equal(t, valid(), g, "the original is as it was")

	cs := g.Constraints.Clone()
	scramble(reflect.ValueOf(&cs))
	require.Equal(t, valid(), g)

	require.Nil(t, (*lockstep.Gang)(nil).Clone())
	empty := &lockstep.Gang{}
	require.Equal(t, empty, empty.Clone())
}

func TestRequirementMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": ""}
	for _, c := range []struct {
		r    lockstep.Requirement
		want bool
	}{
		{lockstep.Requirement{Key: "zone", Operator: lockstep.In, Values: []string{"b", "a"}}, true},
		{lockstep.Requirement{Key: "zone", Operator: lockstep.In, Values: []string{"b"}}, false},
		{lockstep.Requirement{Key: "none", Operator: lockstep.In, Values: []string{""}}, false},
		{lockstep.Requirement{Key: "empty", Operator: lockstep.In, Values: []string{""}}, true},
		{lockstep.Requirement{Key: "zone", Operator: lockstep.NotIn, Values: []string{"a"}}, false},
		{lockstep.Requirement{Key: "zone", Operator: lockstep.NotIn, Values: []string{"b"}}, true},
		{lockstep.Requirement{Key: "none", Operator: lockstep.NotIn, Values: []string{"", "a"}}, true},
		{lockstep.Requirement{Key: "empty", Operator: lockstep.Exists}, true},
		{lockstep.Requirement{Key: "none", Operator: lockstep.Exists}, false},
		{lockstep.Requirement{Key: "none", Operator: lockstep.DoesNotExist}, true},
		{lockstep.Requirement{Key: "empty", Operator: lockstep.DoesNotExist}, false},
		{lockstep.Requirement{Key: "zone", Operator: "Gt", Values: []string{"1"}}, false},
		{lockstep.Requirement{}, false},
	} {
		require.Equal(t, c.want, c.r.Matches(labels), "%+v", c.r)
	}
	require.True(t, (&lockstep.Requirement{Key: "a", Operator: lockstep.DoesNotExist}).Matches(nil))
}

func TestTolerates(t *testing.T) {
	taint := lockstep.Taint{Key: "maintenance", Value: "soon"}
	for _, c := range []struct {
		t    lockstep.Toleration
		want bool
	}{
		{lockstep.Toleration{}, true},
		{lockstep.Toleration{Key: "maintenance"}, true},
		{lockstep.Toleration{Key: "maintenance", Value: "soon"}, true},
		{lockstep.Toleration{Key: "maintenance", Value: "late"}, false},
		{lockstep.Toleration{Key: "spot"}, false},
		{lockstep.Toleration{Key: "spot", Value: "soon"}, false},
	} {
		require.Equal(t, c.want, c.t.Tolerates(taint), "%+v", c.t)
	}
	require.False(t, lockstep.Toleration{Key: "a", Value: "x"}.Tolerates(lockstep.Taint{Key: "a"}))
}

func FuzzGangJSON(f *testing.F) {
	full, err := json.Marshal(valid())
	require.NoError(f, err)
	f.Add(full)
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"id":"j","roles":[{"min":1}]}`, `{"id":"j","roles":null,"labels":{}}`, `{"roles":[{"min":-1,"max":4294967296}]}`,
		`{"id":"\ud800","strategy":"pack","roles":[{"min":2,"inner":{"size":3},"demand":{"gpus":1,"share":0.5,"memory":"1.5Gi"}}]}`,
		`{"constraints":{"affinity":[{"match":{"a":"b"}}],"selector":[{"operator":"In"}],"tolerations":[{}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var g lockstep.Gang
		if json.Unmarshal(data, &g) != nil {
			return
		}
		before := g.Clone()
		verdict := g.Validate()
		require.Equal(t, before, &g)
		for _, e := range faults(t, verdict) {
			require.NotEmpty(t, e.Field)
			require.NotEmpty(t, e.Reason)
			require.NotContains(t, e.Field, "\n")
		}
		once, err := json.Marshal(&g)
		require.NoError(t, err)
		var back lockstep.Gang
		require.NoError(t, json.Unmarshal(once, &back))
		twice, err := json.Marshal(&back)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
		require.Equal(t, fmt.Sprint(verdict), fmt.Sprint(back.Validate()))
		if verdict == nil {
			sum := g.GPUs(nil)
			require.GreaterOrEqual(t, sum, lockstep.MilliGPU(0))
			require.Less(t, sum, lockstep.MilliGPU(math.MaxInt64), "a valid gang saturates nothing")
		}
	})
}

func TestAnInstanceCountsAsSevenths(t *testing.T) {
	for profile, want := range map[lockstep.Profile]lockstep.MilliGPU{ // the order does not matter: each case stands alone
		"": 1000, "1g.10gb": 143, "1g.10gb+me": 143, "3g.40gb": 429, "4g.40gb": 572, "7g.80gb": 1000, "8g.x": 1000, "g": 1000, "1": 1000, "0g": 1000,
	} {
		d := lockstep.Demand{GPUs: 1, Profile: profile}
		require.Equal(t, want, d.DeviceShare(), profile)
		require.Equal(t, int64(want), d.Resources()[lockstep.ResourceGPU], profile)
	}
}
