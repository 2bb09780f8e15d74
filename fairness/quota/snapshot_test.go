package quota

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func restored(r io.Reader) error { _, err := Restore(r); return err }

// sample is a Quota with something of everything.
func sample(t testing.TB) *Quota {
	q, err := New(Config{
		Capacity: lockstep.Resources{"gpu": 16_000, "gpu/h100": 8000, "memory": 1 << 40},
		Tenants:  []Tenant{{"", 2}, {"t", 0}},
		Queues: []Queue{
			{Name: "org", Weight: 3, Tier: 2, Nominal: gpus(8), LendLimit: gpus(2)},
			{Name: "a", Parent: "org", Weight: 1, Guarantee: gpus(2), BorrowLimit: gpus(4), Max: gpus(9), NotReclaimable: true},
			{Name: "b", Parent: "org", Weight: 1, Nominal: lockstep.Resources{"gpu": 0, "memory": 1 << 30}},
		},
	})
	require.NoError(t, err)
	two := &lockstep.Gang{ID: "two", Queue: "a", Priority: -2, Roles: []lockstep.Role{
		{Name: "launcher", Min: 1, Demand: lockstep.Demand{Memory: 1 << 30}},
		{Name: "worker", Min: 2, Max: 8, Spares: 1, Demand: lockstep.Demand{GPUs: 1, Classes: []lockstep.DeviceClass{"h100"}}},
	}}
	two.Capabilities.Preemptible, two.Capabilities.Resizable = true, true
	require.NoError(t, q.Charge(in("b", "later", 1), nil))
	require.NoError(t, q.Demand(two, []int{1, 8}))
	require.NoError(t, q.Charge(two, []int{1, 3}))
	require.NoError(t, q.Charge(in("", "unnamed", 2), nil))
	require.NoError(t, q.Refund("later"))
	require.NoError(t, q.Charge(in("b", "later", 1), nil))
	require.NoError(t, q.Demand(in("b", "waits", 5), nil))
	require.NoError(t, q.Demand(in("b", "asks-nothing", 0), nil))
	return q
}

// TestRestoreIsTheSame is invariant 14: what comes back saves alike and answers alike.
func TestRestoreIsTheSame(t *testing.T) {
	for seed := range rounds(300) {
		w := newWorld(t, uint64(seed)+1<<20)
		for range 60 {
			w.step()
		}
		image := snapshottest.Save(t, w.q.Snapshot)
		again, err := Restore(bytes.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, image, snapshottest.Save(t, again.Snapshot))
		require.Equal(t, statements(w.q), statements(again))
		for id, j := range w.m.jobs { // order does not matter: each is on its own
			var want, got lockstep.Candidates
			w.q.Reclaim(j.gang, nil, &want)
			again.Reclaim(j.gang, nil, &got)
			require.Equal(t, want, got, "%s", id)
		}
		// And goes on alike.
		w.q = again
		for range 60 {
			w.step()
		}
		w.compare()
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	q := sample(t)
	image := snapshottest.Save(t, q.Snapshot)
	snapshottest.RefusesDamage(t, image, restored)
	snapshottest.PassesFaultsOn(t, q.Snapshot, restored)
	snapshottest.RefusesForgeries(t, format, version, image, restored, [][2]string{
		{`"gpu":"16"`, `"gpu":"-16"`},
		{`"gpu":"16"`, `"gpu":"16.0"`},
		{`"gpu":"16",`, ``},
		{`"name":"org"`, `"name":"Org"`},
		{`"parent":"org"`, `"parent":"a"`},
		{`"parent":"org"`, `"parent":"b"`},
		{`"name":"b"`, `"name":"a"`},
		{`"weight":3`, `"weight":-3`},
		{`"weight":3`, `"weight":4294967297`},
		{`"tier":2`, `"tier":0`},
		{`"id":"two"`, `"id":"later"`},
		{`"id":"two"`, `"id":"a b"`},
		{`"queue":"a"`, `"queue":"org"`},
		{`"queue":"a"`, `"queue":"z"`},
		{`"members":3`, `"members":-3`},
		{`"members":3`, `"members":1048577`},
		{`"each":{"gpu":"1","gpu/h100":"1"}`, `"each":{"gpu":"1","gpu/t4":"1"}`},
		{`"memory":"1Gi"`, `"memory":"2Ei"`},
		{`"told":true`, `"told":false`},
		{`"want":{"gpu":"5"}`, `"want":{"gpu":"4000000000000000"}`},
		{`"want":{"gpu":"5"}`, `"want":{"cpu":"5"}`},
		{`"jobs":[`, `"jobs":[{},`},
		{`"spares":1`, `"spares":-1`},
		{`"least":2`, `"least":02`},
		{`"notReclaimable":true`, `"notReclaimable":1`},
	})
	newer := snapshottest.Frame(t, format, version+1, snapshottest.Body(t, image))
	require.ErrorIs(t, restored(bytes.NewReader(newer)), lockstep.ErrInvalid)
	again, err := Restore(bytes.NewReader(image))
	require.NoError(t, err)
	require.NoError(t, again.Refund("later"))
	require.NoError(t, again.Refund("two"))
	require.NoError(t, again.Withdraw("two"))
	s, _ := again.Statement("org")
	require.Empty(t, s.Used)
	require.Equal(t, gpus(5), s.Demand)
}

// FuzzRestore feeds bodies with a right checksum: a Quota that is accepted is
// whole, and saves as it was given.
func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, snapshottest.Save(f, sample(f).Snapshot)))
	q, err := New(Config{})
	require.NoError(f, err)
	f.Add(snapshottest.Body(f, snapshottest.Save(f, q.Snapshot)))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := snapshottest.Frame(t, format, version, body)
		q, err := Restore(bytes.NewReader(image))
		if err != nil {
			require.Nil(t, q)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, image, snapshottest.Save(t, q.Snapshot))
		statements(q)
		for _, id := range (&pool{q: q}).jobs() {
			_ = q.Refund(id)
			_ = q.Withdraw(id)
		}
		require.Empty(t, q.jobs)
		require.Equal(t, lockstep.Vector{}, q.root.used)
		require.Equal(t, lockstep.Vector{}, q.root.demand)
		require.Equal(t, lockstep.Vector{}, q.wanted)
	})
}

// jobs gives all that the Quota knows.
func (p *pool) jobs() (out []lockstep.JobID) {
	for id := range p.q.jobs { // order does not matter: all go
		out = append(out, id)
	}
	return out
}

// FuzzEvents reads bytes as events, and compares all that comes of them with the
// definitions.
func FuzzEvents(f *testing.F) {
	for seed := range 8 {
		f.Add(uint64(seed), []byte(fmt.Sprint("events ", seed)))
	}
	f.Fuzz(func(t *testing.T, seed uint64, events []byte) {
		w := newWorld(t, seed)
		for i, b := range events {
			if i == 200 {
				break
			}
			for range b % 4 {
				w.r.Uint64() // another event than the seed's
			}
			w.step()
		}
		w.compare()
		image := snapshottest.Save(t, w.q.Snapshot)
		again, err := Restore(bytes.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, image, snapshottest.Save(t, again.Snapshot))
	})
}
