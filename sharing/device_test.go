package sharing

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const mib = lockstep.MiB

// KAI-Scheduler issue 416: whole MiB are counted, never a share of the device.
func TestTwentyThreeOfTwentyFourFit(t *testing.T) {
	l := Limits{Mode: TimeSlice, Memory: 46068 * mib}
	require.NoError(t, l.Validate())
	d, placed := l.Empty(), 0
	for range 24 {
		after, v := l.Admit(d, Claim{Share: 41, Memory: 2000 * mib})
		if !v.Feasible {
			require.Equal(t, lockstep.Verdict{
				Reason: lockstep.ReasonBusy, Want: 1, Resource: lockstep.ResourceGPUMemory,
				Requested: int64(2000 * mib), Available: int64(68 * mib),
			}, v)
			require.Equal(t, d, after)
			continue
		}
		d = after
		placed++
	}
	require.Equal(t, 23, placed)
}

func TestMemoryIsRoundedAgainstTheTenant(t *testing.T) {
	l := Limits{Mode: MPS, Memory: 10*mib + 5, Reserve: 1, Context: 2*mib - 1}
	require.Equal(t, Device{Share: 1000, Memory: 9 * mib}, l.Empty())
	d, v := l.Admit(l.Empty(), Claim{Share: 1, Memory: 3*mib + 1})
	require.True(t, v.Feasible)
	require.Equal(t, Device{Share: 999, Memory: 3 * mib, Tenants: 1}, d)
	d, v = l.Admit(d, Claim{Share: 1})
	require.True(t, v.Feasible, "its context only")
	require.Equal(t, 1*mib, d.Memory)
	_, v = l.Admit(d, Claim{Share: 1})
	require.Equal(t, lockstep.ResourceGPUMemory, v.Resource)
}

func TestAdmitNamesTheFirstLimitThatBinds(t *testing.T) {
	slice := Limits{Mode: TimeSlice, Memory: 100 * mib}
	mps := Limits{Mode: MPS, Memory: 100 * mib}
	alone := Limits{Memory: 100 * mib}
	full := func(l Limits, n int) Device {
		d := l.Empty()
		for range n {
			var v lockstep.Verdict
			d, v = l.Admit(d, Claim{Share: 1})
			require.True(t, v.Feasible)
		}
		return d
	}
	tests := map[string]struct {
		limits Limits
		device Device
		claim  Claim
		reason lockstep.Reason // empty: it fits
	}{
		"alone, all of it":            {alone, alone.Empty(), Claim{Share: 1000, Memory: 100 * mib}, ""},
		"alone, a part of it":         {alone, alone.Empty(), Claim{Share: 1, Memory: 1, HardCap: 5}, ""},
		"alone beside another":        {alone, full(alone, 1), Claim{Share: 1}, ReasonTenants},
		"no share":                    {mps, mps.Empty(), Claim{}, lockstep.ReasonUnsupported},
		"more than a device":          {mps, mps.Empty(), Claim{Share: 1001}, lockstep.ReasonUnsupported},
		"negative memory":             {mps, mps.Empty(), Claim{Share: 1, Memory: -1}, lockstep.ReasonUnsupported},
		"a hard cap below the memory": {mps, mps.Empty(), Claim{Share: 1, Memory: 2, HardCap: 1}, lockstep.ReasonUnsupported},
		"too large":                   {mps, mps.Empty(), Claim{Share: 1, Memory: 100*mib + 1}, lockstep.ReasonCapacity},
		"too large a hard cap":        {mps, mps.Empty(), Claim{Share: 1, Memory: 1, HardCap: 101 * mib}, lockstep.ReasonCapacity},
		"huge":                        {mps, mps.Empty(), Claim{Share: 1, Memory: math.MaxInt64}, lockstep.ReasonCapacity},
		"a hard cap nobody keeps":     {slice, slice.Empty(), Claim{Share: 1, Memory: 1, HardCap: 1}, ReasonIsolation},
		"a hard cap that MPS keeps":   {mps, mps.Empty(), Claim{Share: 1, Memory: 1, HardCap: 1}, ""},
		"a hard cap the host keeps":   {Limits{Mode: TimeSlice, Memory: 100 * mib, Enforced: true}, slice.Empty(), Claim{Share: 1, HardCap: 1}, ""},
		"the 48th client":             {mps, full(mps, 47), Claim{Share: 1}, ""},
		"the 49th client":             {mps, full(mps, 48), Claim{Share: 1}, ReasonTenants},
		"the 60th client of 60":       {Limits{Mode: MPS, Memory: 100 * mib, Tenants: 60}, full(Limits{Mode: MPS, Memory: 100 * mib, Tenants: 60}, 59), Claim{Share: 1}, ""},
		"no share left":               {slice, Device{Share: 499, Memory: 100 * mib, Tenants: 1}, Claim{Share: 500}, lockstep.ReasonBusy},
		"no memory left":              {slice, Device{Share: 500, Memory: 9 * mib, Tenants: 1}, Claim{Share: 500, Memory: 10 * mib}, lockstep.ReasonBusy},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after, v := tt.limits.Admit(tt.device, tt.claim)
			require.Equal(t, tt.reason, v.Reason)
			require.Equal(t, tt.reason == "", v.Feasible)
			require.Equal(t, 1, v.Want)
			if tt.reason == lockstep.ReasonUnsupported {
				require.ErrorIs(t, tt.claim.Validate(), lockstep.ErrInvalid)
			} else {
				require.NoError(t, tt.claim.Validate())
			}
			if v.Feasible {
				require.Equal(t, 1, v.Fit)
				require.Equal(t, tt.device.Tenants+1, after.Tenants)
				back, ok := tt.limits.Release(after, tt.claim)
				require.True(t, ok)
				require.Equal(t, tt.device, back)
			} else {
				require.Equal(t, tt.device, after)
			}
		})
	}
}

func TestWhatIsClaimedAndWhatIsFreeAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		l := Limits{
			Mode:    []Mode{Exclusive, TimeSlice, MPS}[rng.IntN(3)],
			Memory:  lockstep.Bytes(1+rng.IntN(64)) * mib * 16,
			Context: lockstep.Bytes(rng.IntN(3)) * mib / 2,
			Tenants: rng.IntN(6),
		}
		l.Reserve = lockstep.Bytes(rng.Int64N(int64(l.Memory-mib))) &^ 1023
		require.NoError(t, l.Validate())
		d, held := l.Empty(), []Claim(nil)
		for range 60 {
			if len(held) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(held))
				after, ok := l.Release(d, held[i])
				require.True(t, ok)
				d, held = after, append(held[:i:i], held[i+1:]...)
			} else {
				c := Claim{Share: lockstep.MilliGPU(1 + rng.IntN(600)), Memory: lockstep.Bytes(rng.Int64N(int64(l.Memory)))}
				after, v := l.Admit(d, c)
				if v.Feasible {
					held = append(held, c)
				}
				d = after
			}
			share, memory := lockstep.MilliGPU(0), lockstep.Bytes(0)
			for _, c := range held {
				share += c.Share
				memory += (c.Memory+mib-1)/mib*mib + (l.Context+mib-1)/mib*mib
			}
			require.Equal(t, Device{Share: 1000 - share, Memory: l.Memory/mib*mib - (l.Reserve+mib-1)/mib*mib - memory, Tenants: int32(len(held))}, d)
			require.GreaterOrEqual(t, d.Memory, lockstep.Bytes(0))
			require.GreaterOrEqual(t, d.Share, lockstep.MilliGPU(0))
			if l.Mode == Exclusive {
				require.LessOrEqual(t, len(held), 1)
			} else if l.Tenants > 0 {
				require.LessOrEqual(t, len(held), l.Tenants)
			}
		}
	}
}

func TestReleaseRefusesWhatWasNeverAdmitted(t *testing.T) {
	l := Limits{Mode: MPS, Memory: 100 * mib}
	d, _ := l.Admit(l.Empty(), Claim{Share: 300, Memory: 30 * mib})
	for _, c := range []Claim{{}, {Share: 301}, {Share: 300, Memory: 31 * mib}, {Share: 300, Memory: math.MaxInt64}, {Share: 299, Memory: 30 * mib}, {Share: -1}} {
		after, ok := l.Release(d, c)
		require.False(t, ok, c)
		require.Equal(t, d, after)
	}
	_, ok := l.Release(l.Empty(), Claim{Share: 1})
	require.False(t, ok)
}

func TestMoreRoomNeverTurnsAwayWhoFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		l := Limits{Mode: MPS, Memory: lockstep.Bytes(1+rng.IntN(100)) * mib, Tenants: 1 + rng.IntN(4)}
		d := Device{Share: lockstep.MilliGPU(rng.IntN(1001)), Memory: lockstep.Bytes(rng.IntN(100)) * mib, Tenants: int32(rng.IntN(5))}
		d.Memory = min(d.Memory, l.Memory)
		c := Claim{Share: lockstep.MilliGPU(rng.IntN(500)), Memory: lockstep.Bytes(rng.IntN(60)) * mib}
		_, v := l.Admit(d, c)
		if !v.Feasible {
			continue
		}
		more := Device{Share: min(1000, d.Share+1), Memory: min(l.Memory, d.Memory+mib), Tenants: max(0, d.Tenants-1)}
		_, v = l.Admit(more, c)
		require.True(t, v.Feasible)
	}
}

func TestLimitsRefuseBadFields(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		fields []string
	}{
		"zero":          {Limits{}, []string{"Memory"}},
		"unknown mode":  {Limits{Mode: "mig", Memory: mib}, []string{"Mode"}},
		"all reserved":  {Limits{Memory: mib, Reserve: mib}, []string{"Reserve"}},
		"all but a bit": {Limits{Memory: 2*mib - 1, Reserve: mib + 1}, []string{"Reserve"}},
		"many":          {Limits{Memory: 1 << 51, Context: -1, Reserve: -1, Tenants: 1025}, []string{"Memory", "Reserve", "Context", "Tenants"}},
	} {
		t.Run(name, func(t *testing.T) { requireFields(t, tt.limits.Validate(), tt.fields...) })
	}
	requireFields(t, Claim{Memory: -1, HardCap: -1}.Validate(), "Share", "Memory", "HardCap")
	for _, l := range []Limits{{Memory: -1}, {Memory: math.MinInt64, Reserve: math.MaxInt64}, {Memory: math.MaxInt64, Context: math.MaxInt64, Tenants: -5}, {Mode: "x"}} {
		_, v := l.Admit(l.Empty(), Claim{Share: 1, Memory: math.MaxInt64})
		require.False(t, v.Feasible, "a device nobody validated is safe, too")
	}
}

func TestMPSHoldsTenantsToTheirClaims(t *testing.T) {
	l := Limits{Mode: MPS, Memory: 80 * lockstep.GiB}
	require.Equal(t, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M"}, l.Env(Claim{Share: 250, Memory: 2000 * mib}))
	require.Equal(t, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3M"}, l.Env(Claim{Share: 1, Memory: 1, HardCap: 3*mib - 1}))
	require.Equal(t, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}, l.Env(Claim{Share: 1000}))
	require.Empty(t, Limits{Mode: TimeSlice}.Env(Claim{Share: 250, Memory: 1}))
	require.Empty(t, Limits{}.Env(Claim{Share: 250, Memory: 1}))
}

func TestAdmitAllocatesNothing(t *testing.T) {
	l := Limits{Mode: MPS, Memory: 80 * lockstep.GiB, Context: 300 * mib}
	fits, large := Claim{Share: 250, Memory: 2000 * mib}, Claim{Share: 250, Memory: 81 * lockstep.GiB}
	d := l.Empty()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		after, _ := l.Admit(d, fits)
		_, _ = l.Admit(after, large)
		d, _ = l.Release(after, fits)
	}))
}
