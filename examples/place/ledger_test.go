package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

func TestLedgerFindsWhatIsWrong(t *testing.T) {
	zero := time.Unix(0, 0).UTC()
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	two := job{ID: "two", GPUs: 2, Duration: 5 * time.Second}
	gang := &lockstep.Gang{ID: "two", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 2}}}}
	plan := func(node lockstep.NodeID, devices lockstep.DeviceSet) *lockstep.Plan {
		return &lockstep.Plan{Job: "two", Gang: gang, Members: []lockstep.Member{{Node: node, Devices: devices}}}
	}
	for _, tc := range []struct {
		name string
		run  func(l *ledger)
		want string // part of the first fault; empty when there is none
	}{
		{"all well", func(l *ledger) { l.start(at(1), two, at(0), plan("a", 3)); l.finish(at(6), "two") }, ""},
		{"never started", func(*ledger) {}, "0 started"},
		{"never ended", func(l *ledger) { l.start(at(1), two, at(0), plan("a", 3)) }, "0 ended"},
		{"held twice", func(l *ledger) {
			l.start(at(1), two, at(0), plan("a", 3))
			l.start(at(1), job{ID: "other", GPUs: 2}, at(0), plan("a", 6))
		}, "other holds devices 1 of a, which are held already"},
		{"not there", func(l *ledger) { l.start(at(1), two, at(0), plan("b", 3)) }, "none such"},
		{"too few", func(l *ledger) { l.start(at(1), two, at(0), plan("a", 1)) }, "asked for 2 devices and holds 1"},
		{"before submit", func(l *ledger) { l.start(at(1), two, at(2), plan("a", 3)) }, "1s before it was submitted"},
		{"too short", func(l *ledger) { l.start(at(1), two, at(0), plan("a", 3)); l.finish(at(5), "two") }, "ran 4s, not 5s"},
		{"twice", func(l *ledger) { l.start(at(1), two, at(0), plan("a", 3)); l.start(at(1), two, at(0), plan("a", 12)) }, "started twice"},
		{"unknown end", func(l *ledger) { l.finish(at(1), "two") }, "without having started"},
		{"back in time", func(l *ledger) { l.advance(at(2)); l.advance(at(1)) }, "time went back"},
		{"members", func(l *ledger) {
			p := plan("a", 1)
			p.Members = append(p.Members, lockstep.Member{Node: "a", Devices: 2})
			l.start(at(1), two, at(0), p)
		}, `has 2 members, not 1 to 1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(map[lockstep.NodeID]lockstep.DeviceSet{"a": 0xf}, zero)
			tc.run(l)
			require.Equal(t, tc.want == "", l.close(1, 0), "%v", l.faults)
			require.Contains(t, strings.Join(l.faults, "\n"), tc.want)
		})
	}
}

func TestAmountHoldsMoreThan64Bits(t *testing.T) {
	var a amount
	for range 4 {
		a.add(1<<20, lockstep.MaxWalltime)
	}
	require.Equal(t, 4*float64(1<<20)*lockstep.MaxWalltime.Seconds(), a.seconds())
	require.NotZero(t, a.hi)
}
