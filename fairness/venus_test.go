package fairness

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// quotas reads the devices that each virtual cluster of Helios' Venus owned on each
// of 181 days (Hu et al., SC 2021; CC BY 4.0), if the trace is at hand.
func quotas(t *testing.T) (days []map[lockstep.TenantID]int64, tenants []lockstep.TenantID) {
	path := filepath.Join("..", "..", "shared", "traces", "helios_venus_vc_gpus_daily.csv.gz")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the trace of Venus' quotas is not at hand: " + filepath.ToSlash(path))
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	seen := map[lockstep.TenantID]bool{}
	last := ""
	for _, row := range rows[1:] {
		if row[0] != last {
			last = row[0]
			days = append(days, map[lockstep.TenantID]int64{})
		}
		n, err := strconv.ParseInt(row[2], 10, 64)
		require.NoError(t, err)
		days[len(days)-1][lockstep.TenantID(row[1])] = n
		seen[lockstep.TenantID(row[1])] = true
	}
	return days, ids(seen)
}

// TestEntitlementsFollowTheQuotasOfVenus gives every virtual cluster more work than
// it can have, and its quota of the day as weight; those without a quota leave, or
// stay with weight 0. After 181 days each is entitled to the sum of its quotas, to
// the last bit.
func TestEntitlementsFollowTheQuotasOfVenus(t *testing.T) {
	days, tenants := quotas(t)
	require.Len(t, days, 181)
	require.Len(t, tenants, 25)
	for _, leave := range []bool{true, false} {
		l := start(t, Config{Basis: Fixed})
		want := map[lockstep.TenantID]*big.Int{}
		now, changes := epoch, 0
		for day, quota := range days {
			total := int64(0)
			for _, id := range tenants {
				total += quota[id]
				changes += follow(t, l, now, day, id, quota[id], leave)
				if want[id] == nil {
					want[id] = &big.Int{}
				}
				want[id].Add(want[id], mul(quota[id], 1000, int64(24*time.Hour)))
			}
			require.NoError(t, l.SetCapacity(now, lockstep.MilliGPU(total*1000)))
			now = now.Add(24 * time.Hour)
		}
		for _, id := range tenants {
			s, err := l.Statement(now, id)
			if l.tenants[id] == nil { // never had a quota
				require.Zero(t, want[id].Sign())
				continue
			}
			require.NoError(t, err)
			require.Zero(t, want[id].Cmp(s.Entitlement.Big()), "%s: %s, want %s", id, s.Entitlement, want[id])
			require.Zero(t, want[id].Cmp(s.Nominal.Big()), "%s: nominal %s, want %s", id, s.Nominal, want[id])
		}
		t.Logf("leave %v: %d changes of quota", leave, changes)
	}
}

// follow gives a tenant its quota of a day, and returns 1 if that is another one.
func follow(t *testing.T, l *Ledger, now time.Time, day int, id lockstep.TenantID, quota int64, leave bool) int {
	tn := l.tenants[id]
	job := lockstep.JobID(string(id) + "-" + strconv.Itoa(day))
	switch {
	case tn == nil || !tn.joined:
		if quota == 0 && (leave || tn == nil) {
			return 0
		}
		require.NoError(t, l.Join(now, id, quota))
		require.NoError(t, l.Submit(now, job, id, 1_000_000_000))
	case quota == 0 && leave:
		for _, j := range suits(l, EventFinish) {
			if l.jobs[j].tenant == tn {
				require.NoError(t, l.Finish(now, j))
			}
		}
		_, err := l.Leave(now, id)
		require.NoError(t, err)
	case tn.weight != quota:
		require.NoError(t, l.SetWeight(now, id, quota))
	default:
		return 0
	}
	return 1
}
