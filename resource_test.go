package lockstep_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestResourcesWriteTheSameBytesWhateverTheInsertionOrder(t *testing.T) {
	names := []lockstep.ResourceName{"cpu", "memory", "gpu", "gpu/h100", "rdma", "slots", "licence/a", "z", "a"}
	var first string
	for shift := range names {
		r := make(lockstep.Resources)
		for i := range names {
			j := (i*7 + shift) % len(names)
			r[names[j]] = int64(j+1) * 1536
		}
		data, err := json.Marshal(r)
		require.NoError(t, err)
		if shift == 0 {
			first = string(data)
			require.Equal(t, `{"a":"13824","cpu":"1536m","gpu":"4608m","gpu/h100":"6144m","licence/a":"10752","memory":"3Ki","rdma":"7680","slots":"9216","z":"12288"}`, first)
		}
		require.Equal(t, first, string(data))
		var back lockstep.Resources
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, r, back)
	}
}

func TestResourcesReadJSON(t *testing.T) {
	var r lockstep.Resources
	require.NoError(t, json.Unmarshal([]byte(`{"cpu": 2.5, "gpu": "-500m", "memory": "1\u0047i", "slots": 7, "x\/y": "3"}`), &r))
	require.Equal(t, lockstep.Resources{"cpu": 2500, "gpu": -500, "memory": 1 << 30, "slots": 7, "x/y": 3}, r)

	require.NoError(t, json.Unmarshal([]byte(`{"gpu-memory": "46068Mi"}`), &r))
	require.Equal(t, lockstep.Resources{lockstep.ResourceGPUMemory: 46068 << 20}, r)
	require.Equal(t, "gpu-memory=46068Mi", r.String())

	require.NoError(t, json.Unmarshal([]byte(`{}`), &r))
	require.Equal(t, lockstep.Resources{}, r)
	require.NoError(t, json.Unmarshal([]byte(`null`), &r))
	require.Nil(t, r)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.Equal(t, `{}`, string(data))

	for in, field := range map[string]string{ // the order does not matter: each case stands alone
		`[]`: "Resources", `"cpu"`: "Resources", `7`: "Resources", `{"":1}`: "Resources", `{"a b":1}`: "Resources", `{"a=b":1}`: "Resources",
		`{"cpu":null}`: "Resources.cpu", `{"cpu":{}}`: "Resources.cpu", `{"cpu":[1]}`: "Resources.cpu", `{"cpu":true}`: "Resources.cpu",
		`{"cpu":"\"5\""}`: "Resources.cpu", `{"cpu":""}`: "Resources.cpu", `{"cpu":"1Gi"}`: "Resources.cpu", `{"slots":1.5}`: "Resources.slots",
		`{"slots":"1k"}`: "Resources.slots", `{"memory":"-"}`: "Resources.memory", `{"memory":1e9}`: "Resources.memory",
	} {
		r := lockstep.Resources{"kept": 1}
		err := json.Unmarshal([]byte(in), &r)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, in)
		require.ErrorIs(t, err, lockstep.ErrInvalid, in)
		require.Equal(t, field, e.Field, in)
		require.Equal(t, lockstep.Resources{"kept": 1}, r, "a failed read changes nothing")
	}
}

func TestDemandResources(t *testing.T) {
	full := lockstep.Demand{GPUs: 3, Share: 500, Classes: []lockstep.DeviceClass{"h100"}, CPU: 1, Memory: 2, RDMA: 4}
	require.Equal(t, lockstep.Resources{"slots": 1, "gpu": 1500, "gpu/h100": 1500, "cpu": 1, "memory": 2, "rdma": 4}, full.Resources())
	full.Classes = append(full.Classes, "a100")
	require.NotContains(t, full.Resources(), lockstep.ResourceName("gpu/h100"), "of two classes neither is sure")
	require.Equal(t, lockstep.Resources{"slots": 1}, lockstep.Demand{}.Resources())
	require.Equal(t, lockstep.ResourceGPU, lockstep.ResourceGPUClass(""))
	require.Equal(t, lockstep.WholeGPU, lockstep.Demand{}.DeviceShare())
	require.EqualValues(t, 300, lockstep.Demand{Share: 300}.DeviceShare())
}

func TestSchemaMapsNamesBothWays(t *testing.T) {
	s, err := lockstep.NewSchema("gpu", "cpu", "memory")
	require.NoError(t, err)
	require.Equal(t, 3, s.Len())
	for i := range s.Len() {
		j, ok := s.Index(s.Name(i))
		require.True(t, ok)
		require.Equal(t, i, j)
	}
	_, ok := s.Index("rdma")
	require.False(t, ok)

	r := lockstep.Resources{"memory": math.MinInt64, "gpu": 5}
	v, err := s.Vector(r)
	require.NoError(t, err)
	require.Equal(t, lockstep.Vector{0: 5, 2: math.MinInt64}, v)
	require.Equal(t, r, s.Resources(v))
	require.Empty(t, s.Resources(lockstep.Vector{}))
	v, err = s.Vector(nil)
	require.NoError(t, err)
	require.Zero(t, v)

	v, err = s.Vector(lockstep.Resources{"gpu": 1, "rdma": 2})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	require.Zero(t, v)
	require.EqualError(t, err, "lockstep: vector: Resources.rdma = 2: not in the schema")
}

func TestNewSchemaKeepsItsOwnNames(t *testing.T) {
	names := []lockstep.ResourceName{"a", "b"}
	s, err := lockstep.NewSchema(names...)
	require.NoError(t, err)
	names[0] = "b"
	require.EqualValues(t, "a", s.Name(0))
}

func TestNewSchemaRefuses(t *testing.T) {
	var many []lockstep.ResourceName
	for i := range lockstep.VectorWidth {
		many = append(many, lockstep.ResourceName(fmt.Sprint("r", i)))
	}
	_, err := lockstep.NewSchema(many...)
	require.NoError(t, err)
	_, err = lockstep.NewSchema(append(many, "one-more")...)
	require.EqualError(t, err, "lockstep: schema: names = 17: at most 16 resources")
	_, err = lockstep.NewSchema("a", "")
	require.EqualError(t, err, `lockstep: schema: names[1] = "": must not be empty`)
	_, err = lockstep.NewSchema("a b")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = lockstep.NewSchema("a", "b", "a")
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = lockstep.NewSchema()
	require.NoError(t, err)
}

func TestVectorFits(t *testing.T) {
	for _, c := range []struct {
		name    string
		v, free lockstep.Vector
		index   int
		ok      bool
	}{
		{"nothing in nothing", lockstep.Vector{}, lockstep.Vector{}, 0, true},
		{"exactly", lockstep.Vector{1, 2}, lockstep.Vector{1, 2}, 0, true},
		{"first excess is named", lockstep.Vector{1, 3, 9}, lockstep.Vector{1, 2, 2}, 1, false},
		{"last entry counts", lockstep.Vector{lockstep.VectorWidth - 1: 1}, lockstep.Vector{}, lockstep.VectorWidth - 1, false},
		{"nothing asked of what is overdrawn", lockstep.Vector{0, 1}, lockstep.Vector{-5, 1}, 0, true},
		{"something asked of what is overdrawn", lockstep.Vector{1}, lockstep.Vector{math.MinInt64}, 0, false},
		{"giving back", lockstep.Vector{-1}, lockstep.Vector{-5}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			index, ok := c.v.Fits(c.free)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.index, index)
		})
	}
}

func TestVectorArithmeticLeavesItsOperandsAlone(t *testing.T) {
	v, w := lockstep.Vector{1, 2}, lockstep.Vector{3, 4}
	require.Equal(t, lockstep.Vector{4, 6}, v.Add(w))
	require.Equal(t, lockstep.Vector{-2, -2}, v.Sub(w))
	require.Equal(t, lockstep.Vector{7, 14}, v.Mul(7))
	require.Equal(t, lockstep.Vector{1, 2}, v)
	require.Equal(t, lockstep.Vector{3, 4}, w)
}

// counter is a Recorder that counts its calls.
type counter int

func (c *counter) Count(lockstep.Metric, lockstep.MetricLabels, int64)     { *c++ }
func (c *counter) Gauge(lockstep.Metric, lockstep.MetricLabels, float64)   { *c++ }
func (c *counter) Observe(lockstep.Metric, lockstep.MetricLabels, float64) { *c++ }

func TestHotValuesAllocateNothing(t *testing.T) {
	v, w, free := lockstep.Vector{1, 2}, lockstep.Vector{3, 4}, lockstep.Vector{100, 100}
	set, sum := lockstep.DeviceSet(math.MaxUint64), 0
	gang := lockstep.Gang{Roles: []lockstep.Role{{Min: 4, Demand: lockstep.Demand{GPUs: 8}}}}
	plan := lockstep.Plan{Members: make([]lockstep.Member, 64)}
	counts := make([]int, 0, 4)
	labels := map[string]string{"zone": "a"}
	need := lockstep.Requirement{Key: "zone", Operator: lockstep.In, Values: []string{"a"}}
	var out lockstep.Verdict
	var sink counter
	var recorder lockstep.Recorder = &sink
	require.Zero(t, testing.AllocsPerRun(100, func() {
		v = v.Add(w).Sub(w).Mul(1)
		index, ok := v.Fits(free)
		out = lockstep.Verdict{Feasible: ok, Fit: index, Reason: lockstep.ReasonBusy, Resource: lockstep.ResourceGPU, Domain: "rack-1"}
		for i := range set.All {
			sum += i
		}
		sum += set.Len() + gang.MinMembers() + gang.MaxMembers() + int(gang.GPUs(nil)) + plan.MasterPort()
		counts = plan.AppendCounts(counts[:0], 4)
		if need.Matches(labels) {
			sum++
		}
		recorder.Count("gang_admitted_total", lockstep.MetricLabels{Tenant: "a", Reason: out.Reason}, 1)
	}))
	require.Positive(t, sink)
	require.True(t, out.Feasible)
	require.Positive(t, sum)
}

func FuzzResourcesJSON(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"cpu":"8","memory":"64Gi"}`, `{"gpu/h100":2.5}`, `{"slots":-1}`, `{"a":"\"5\""}`, `{"a":1,"a":2}`, `{"\ud800":1}`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r lockstep.Resources
		if json.Unmarshal(data, &r) != nil {
			return
		}
		once, err := json.Marshal(r)
		require.NoError(t, err)
		var back lockstep.Resources
		require.NoError(t, json.Unmarshal(once, &back))
		if r == nil {
			r = lockstep.Resources{}
		}
		require.Equal(t, r, back)
		if strings.Count(r.String(), "=") != len(r) {
			t.Fatalf("not one word each: %q", r)
		}
	})
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "80Gi", "1.5GiB", "-8Ei", "9.3E", "1.0000000001Gi", "900MB", "1e3", "0x10", "0.000000000931322574615478515625Ei"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := lockstep.ParseBytes(s)
		if bw, err2 := lockstep.ParseBandwidth(s + "/s"); (err == nil) != (err2 == nil) || int64(bw) != int64(b) {
			t.Fatalf("%q: %d bytes, %d a second", s, b, bw)
		}
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.Zero(t, b)
			return
		}
		back, err := lockstep.ParseBytes(b.String())
		require.NoError(t, err)
		require.Equal(t, b, back)
	})
}

func FuzzParseMilliGPU(f *testing.F) {
	for _, s := range []string{"", "8", "0.5", "500m", "-9223372036854775.808", "0.0005", "+1", "1.5m", "NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := lockstep.ParseMilliGPU(s)
		if c, err2 := lockstep.ParseMilliCPU(s); (err == nil) != (err2 == nil) || int64(a) != int64(c) {
			t.Fatalf("%q: %d, %d", s, a, c)
		}
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		if number, milli := strings.CutSuffix(s, "m"); len(s) < 100 {
			unit := int64(1000)
			if milli {
				unit = 1
			}
			want, ok := oracle(number, unit)
			require.True(t, ok, s)
			require.EqualValues(t, want, a)
		}
		back, err := lockstep.ParseMilliGPU(a.String())
		require.NoError(t, err)
		require.Equal(t, a, back)
	})
}
