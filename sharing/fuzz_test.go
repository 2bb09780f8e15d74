package sharing

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// FuzzTenants drives a ledger and lanes with one list of events, four bytes each, and checks what they promise after
// every one.
func FuzzTenants(f *testing.F) {
	f.Add([]byte{0, 0, 50, 20, 0, 1, 40, 10, 1, 0, 90, 1, 1, 1, 90, 0, 2, 0, 0, 3})
	f.Add([]byte{0, 0, 60, 0, 0, 1, 60, 0, 0, 2, 60, 0, 3, 0, 0, 1, 2, 0, 0, 0, 4, 0, 0, 1, 5, 1, 0, 0})
	f.Fuzz(func(t *testing.T, events []byte) {
		l := ledger(t, LedgerConfig{Capacity: 1000 * mib, Factor: 1500, High: 500, Low: 300, Patience: time.Second, Cooldown: 3 * time.Second})
		n := lanes(t, LaneConfig{Capacity: 1000 * mib, Lanes: 3})
		now := 0
		for ; len(events) >= 4; events = events[4:] {
			kind, id, x, y := events[0], lockstep.JobID([]byte{'a' + events[1]%8}), lockstep.Bytes(events[2]), lockstep.Bytes(events[3])
			now += int(events[3]) % 3
			switch kind % 6 {
			case 0:
				_, _ = l.Admit(Tenant{ID: id, Request: x * 4 * mib, HardCap: y * mib, Opportunistic: events[1]&8 != 0, Priority: lockstep.Priority(events[1] >> 4)})
				_, _ = n.Join(Session{ID: id, Persistent: x * mib, Ephemeral: y * 4 * mib, Opportunistic: events[1]&8 != 0})
			case 1:
				_ = l.Report(at(now), id, x*4*mib, y%2 == 0)
				_ = n.Ready(at(now), id)
			case 2:
				before := l.image()
				reliefs, lacking, err := l.Relieve(at(now), nil)
				require.NoError(t, err)
				if len(reliefs) > 0 {
					checkReliefs(t, before, l, at(now).UnixNano(), reliefs, lacking)
				}
				_, err = n.Next(at(now), nil)
				require.NoError(t, err)
			case 3:
				_ = n.Pause(at(now), id)
			case 4:
				_ = l.Remove(at(now), id)
				_ = n.Leave(at(now), id)
			default:
				l, n = reloadLedger(t, l), reloadLanes(t, n)
			}
			checkLedger(t, l)
			checkLanes(t, n)
		}
	})
}

// FuzzGeometry builds geometries from bytes: whatever is accepted answers as counting by hand does.
func FuzzGeometry(f *testing.F) {
	f.Add(uint8(8), uint8(7), []byte{1, 1, 0x7f, 0, 1, 2, 0x55, 0, 3, 4, 0x11, 1}, uint16(3))
	f.Add(uint8(4), uint8(4), []byte{1, 1, 0x0f, 1, 2, 2, 0x05, 1}, uint16(0x101))
	f.Fuzz(func(t *testing.T, slots, compute uint8, rows []byte, o uint16) {
		cfg := GeometryConfig{Slices: int(slots), Compute: int(compute)}
		for ; len(rows) >= 4 && len(cfg.Profiles) < 20; rows = rows[4:] {
			cfg.Profiles = append(cfg.Profiles, Profile{
				Name: lockstep.Profile([]byte{'a' + byte(len(cfg.Profiles))}), Compute: int(rows[0]), Slices: int(int8(rows[1])),
				Starts: Starts(rows[2]), Media: rows[3]&1 != 0, Weight: int64(rows[3] >> 1), Memory: 1,
			})
		}
		g, err := NewGeometry(cfg)
		if err != nil {
			return
		}
		at := Occupancy(o)
		for p := range g.cfg.Profiles {
			if g.knows(at) {
				checkStarts(t, g, at, p)
			} else {
				require.Zero(t, g.Starts(at, p))
			}
		}
		most := 0
		for set := range g.Layouts(at) {
			used := 0
			for _, in := range set {
				used += g.cfg.Profiles[in.Profile].Compute
			}
			require.LessOrEqual(t, used, g.cfg.Compute)
			require.True(t, legal(g, at, slices.Clone(set)))
			if most++; most == 1000 {
				break
			}
		}
	})
}
