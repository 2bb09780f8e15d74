package lockstep_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestDeviceSetText(t *testing.T) {
	for _, c := range []struct {
		set  lockstep.DeviceSet
		want string
	}{
		{0, ""},
		{1, "0"},
		{0b11, "0-1"},
		{0b101, "0,2"},
		{0b0100_1111, "0-3,6"},
		{1 << 63, "63"},
		{1<<63 | 1, "0,63"},
		{3 << 62, "62-63"},
		{math.MaxUint64, "0-63"},
		{math.MaxUint64 - 1, "1-63"},
		{math.MaxUint64 >> 1, "0-62"},
		{0xaaaa_0000_0000_0000, "49,51,53,55,57,59,61,63"},
	} {
		require.Equal(t, c.want, c.set.String())
		var back lockstep.DeviceSet
		require.NoError(t, back.UnmarshalText([]byte(c.want)))
		require.Equal(t, c.set, back)
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 10_000 {
		set := lockstep.DeviceSet(r.Uint64())
		for range r.IntN(4) {
			set &= lockstep.DeviceSet(r.Uint64())
		}
		if r.IntN(2) == 0 {
			set = ^set
		}
		var back lockstep.DeviceSet
		require.NoError(t, back.UnmarshalText([]byte(set.String())))
		require.Equal(t, set, back)
		n := 0
		for i := range set.All {
			require.True(t, set.Has(i))
			n++
		}
		require.Equal(t, n, set.Len())
	}
}

func TestDeviceSetReadsAnyOrder(t *testing.T) {
	var s lockstep.DeviceSet
	require.NoError(t, s.UnmarshalText([]byte("6,0-3,2-4,6")))
	require.Equal(t, "0-4,6", s.String())
	for _, in := range []string{",", "1,", ",1", "64", "0-64", "3-1", "-", "1-", "-1", "1--2", "1-2-3", "+1", " 1", "1 ", "0x1", "1_0", "a", "256", "4294967296", "１"} {
		err := s.UnmarshalText([]byte(in))
		require.ErrorIs(t, err, lockstep.ErrInvalid, in)
		require.Equal(t, "0-4,6", s.String(), "a failed read changes nothing")
	}
	require.Error(t, json.Unmarshal([]byte(`{"devices":7}`), &lockstep.Member{}), "a bare number is no set")
}

func TestDeviceSetHasNothingOutside(t *testing.T) {
	full := lockstep.DeviceSet(math.MaxUint64)
	for _, i := range []int{-1, 64, 65, 128, math.MaxInt, math.MinInt} {
		require.False(t, full.Has(i), i)
	}
	stopped := 0
	full.All(func(i int) bool { stopped = i; return i < 5 })
	require.Equal(t, 5, stopped)
}

// inventory names what its maps hold.
type inventory struct {
	addresses map[lockstep.NodeID]string
	devices   map[lockstep.NodeID][]lockstep.DeviceID
}

func (v inventory) Address(node lockstep.NodeID) (string, bool) {
	a, ok := v.addresses[node]
	return a, ok
}

func (v inventory) Device(node lockstep.NodeID, i int) (lockstep.DeviceID, bool) {
	if d := v.devices[node]; i < len(d) {
		return d[i], true
	}
	return "", false
}

// env returns the environment of rank as a map, and checks that each is NAME=value once.
func env(t *testing.T, p *lockstep.Plan, rank int) map[string]string {
	t.Helper()
	lines, err := p.Env(rank)
	require.NoError(t, err)
	out := make(map[string]string)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, "=")
		require.True(t, ok, line)
		require.NotContains(t, out, name)
		require.NotContains(t, value, "\n")
		out[name] = value
	}
	require.Len(t, out, 13)
	return out
}

func TestEnvNumbersRanksAndNodes(t *testing.T) {
	// The members of a node need not follow one another.
	p := &lockstep.Plan{Job: "j", Members: []lockstep.Member{{Node: "b"}, {Node: "a"}, {Node: "b"}, {Node: "c"}, {Node: "a"}, {Node: "b"}}}
	locals, nodes, worlds := []string{"0", "0", "1", "0", "1", "2"}, []string{"0", "1", "0", "2", "1", "0"}, []string{"3", "2", "3", "1", "2", "3"}
	for rank := range p.Members {
		e := env(t, p, rank)
		require.Equal(t, fmt.Sprint(rank), e["RANK"])
		require.Equal(t, locals[rank], e["LOCAL_RANK"])
		require.Equal(t, worlds[rank], e["LOCAL_WORLD_SIZE"])
		require.Equal(t, nodes[rank], e["NODE_RANK"])
		require.Equal(t, "6", e["WORLD_SIZE"])
		require.Equal(t, "3", e["NNODES"])
		require.Equal(t, "b", e["MASTER_ADDR"])
		require.Equal(t, "j", e["LOCKSTEP_JOB"])
	}
	require.Equal(t, 3, p.NodeCount())
	require.Equal(t, "b slots=3\na slots=2\nc slots=1\n", p.Hostfile())
}

func TestEnvNamesDevicesOrNumbersThemAll(t *testing.T) {
	p := &lockstep.Plan{Job: "j", Members: []lockstep.Member{{Node: "a", Devices: 0b101}, {Node: "b", Devices: 0b11}, {Node: "a"}, {Node: "c", Devices: 1 << 63}}}
	p.Inventory = inventory{
		addresses: map[lockstep.NodeID]string{"a": "10.0.0.1", "b": ""},
		devices:   map[lockstep.NodeID][]lockstep.DeviceID{"a": {"GPU-x", "GPU-y", "GPU-z"}, "b": {"GPU-v", ""}},
	}
	for rank, want := range []struct{ cuda, nvidia string }{{"GPU-x,GPU-z", "GPU-x,GPU-z"}, {"0,1", "0,1"}, {"", "void"}, {"63", "63"}} {
		e := env(t, p, rank)
		require.Equal(t, want.cuda, e["CUDA_VISIBLE_DEVICES"])
		require.Equal(t, want.nvidia, e["NVIDIA_VISIBLE_DEVICES"])
		require.Equal(t, "10.0.0.1", e["MASTER_ADDR"])
	}
	require.Equal(t, "10.0.0.1 slots=2\nb slots=1\nc slots=1\n", p.Hostfile())
	p.Inventory = nil
	require.Equal(t, "0,2", env(t, p, 0)["CUDA_VISIBLE_DEVICES"])
}

func TestEnvNamesRoles(t *testing.T) {
	g := valid()
	p := &lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{Role: 0}, {Role: 1}, {Role: 2}, {Role: -1}, {Role: math.MaxInt32}}}
	for rank, want := range []string{"worker", "launcher", "2", "-1", "2147483647"} {
		require.Equal(t, want, env(t, p, rank)["LOCKSTEP_ROLE"])
	}
	p.Gang = nil
	require.Equal(t, "1", env(t, p, 1)["LOCKSTEP_ROLE"])
}

func TestEnvRefusesUnknownRanks(t *testing.T) {
	for _, c := range []struct{ members, rank int }{{0, 0}, {1, 1}, {1, -1}, {4, math.MaxInt}} {
		lines, err := (&lockstep.Plan{Members: make([]lockstep.Member, c.members)}).Env(c.rank)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, lockstep.ErrUnknown)
		require.Equal(t, "rank", e.Field)
		require.Equal(t, fmt.Sprint(c.rank), e.Value)
		require.Nil(t, lines)
	}
	require.Empty(t, (&lockstep.Plan{}).Hostfile())
}

func TestMasterPortLiesBelowTheEphemeralPorts(t *testing.T) {
	seen := make(map[int]bool)
	for i := range 1000 {
		p := lockstep.Plan{Job: lockstep.JobID(fmt.Sprint("job-", i))}
		port := p.MasterPort()
		require.True(t, 20000 <= port && port < 30000, port)
		require.Equal(t, port, p.MasterPort())
		seen[port] = true
	}
	require.Greater(t, len(seen), 900, "ports spread")
	require.Equal(t, 26029, (&lockstep.Plan{Job: "j"}).MasterPort(), "the port of a job is part of the contract between its members")
	require.Equal(t, 29500, (&lockstep.Plan{Job: "j", Port: 29500}).MasterPort())
}

func TestPlanMemory(t *testing.T) {
	g := valid()
	p := &lockstep.Plan{Job: "j", Gang: g, Version: 3, Level: "rack", Members: []lockstep.Member{{Role: 0}, {Role: 1}, {Role: 0}, {Role: 7}, {Role: -1}}}
	c := p.Clone()
	require.Equal(t, p, c)
	c.Members[0].Role = 1
	require.EqualValues(t, 0, p.Members[0].Role)

	require.Equal(t, []int{9, 2, 1}, p.AppendCounts([]int{9}, 2))
	require.Equal(t, []int{2, 1, 0}, p.AppendCounts(nil, 3))
	require.Empty(t, p.AppendCounts(nil, 0))

	room := cap(p.Members)
	p.Reset()
	require.Equal(t, room, cap(p.Members))
	require.Empty(t, p.Members)
	p.Members = nil
	require.Equal(t, &lockstep.Plan{}, p)
}

func FuzzDeviceSet(f *testing.F) {
	for _, s := range []string{"", "0", "63", "0-63", "0-3,6", "6,0-3,2", "64", "-1", "3-1", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set := lockstep.DeviceSet(5)
		if err := set.UnmarshalText([]byte(text)); err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.EqualValues(t, 5, set)
			return
		}
		out, err := set.MarshalText()
		require.NoError(t, err)
		var back lockstep.DeviceSet
		require.NoError(t, back.UnmarshalText(out))
		require.Equal(t, set, back)
	})
}
