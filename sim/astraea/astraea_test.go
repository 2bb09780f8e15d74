package astraea_test

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim/astraea"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

const traces = "../../../shared/traces"

func load(t *testing.T, name string) []trace.Job {
	t.Helper()
	f, err := os.Open(filepath.Join(traces, name))
	if os.IsNotExist(err) {
		t.Skipf("no traces beside the repository: %v", err)
	}
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	tr, err := trace.ReadCSV(z)
	require.NoError(t, err)
	// Rows of one time stand in the order of their numbers in the source.
	slices.SortStableFunc(tr.Jobs, func(a, b trace.Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(string(a.ID), string(b.ID)))
	})
	return tr.Jobs
}

func table(t *testing.T, name string) (header []string, rows [][]string) {
	f, err := os.Open(filepath.Join(traces, name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	all, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	return all[0], all[1:]
}

// sampleShares are the sample's twenty tenants, who are alike.
func sampleShares() (out []astraea.Share) {
	for i := 1; i <= 20; i++ {
		out = append(out, astraea.Share{Tenant: lockstep.TenantID(fmt.Sprintf("t%02d", i)), Weight: 1})
	}
	return out
}

// phillyShares are the eleven large tenants, in the order of the reference's list.
func phillyShares(t *testing.T) (out []astraea.Share) {
	_, rows := table(t, "philly_weights.csv.gz")
	for _, row := range rows {
		if slices.Contains([]string{"t11", "t13", "t14", "t15"}, row[0]) {
			continue
		}
		n, err := strconv.ParseInt(row[1], 10, 64)
		require.NoError(t, err)
		out = append(out, astraea.Share{Tenant: lockstep.TenantID(row[0]), Weight: n})
	}
	return out
}

// line is a record as the artifact prints it.
func line(t *testing.T, r *astraea.Record) []string {
	s := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	id, err := strconv.Atoi(strings.TrimPrefix(string(r.Job), "p"))
	require.NoError(t, err)
	return []string{
		strconv.Itoa(id), s(r.Seen - r.Submit), fmt.Sprintf("%.4f", r.Fairness), fmt.Sprintf("%.4f", float64(r.Class)),
		strconv.Itoa(r.Kills), strconv.Itoa(r.Expiries), strconv.Itoa(r.Resumes), strconv.Itoa(r.Expiries),
		s(r.Pending), s(r.Life), s(r.Duration), fmt.Sprintf("%.4f", (r.Pending+r.Duration).Seconds()/r.Duration.Seconds()),
		s(r.Seen), s(r.Submit), s(r.End), strconv.Itoa(r.GPUs),
	}
}

// columns are those of the reference tables, which line has in this order.
const columns = "job_id,pending_time,fairness,disc_fairness,preempt_cnt,checkpoint_cnt,resume_cnt,lease_expiry_cnt," +
	"total_pending_time,total_life_time,duration,pending_overhead,first_seen_time,submit_time,end_time,num_gpu"

// TestEveryLineIsTheArtifacts compares whole tables, in their order, with what
// the authors' program printed on the same jobs.
func TestEveryLineIsTheArtifacts(t *testing.T) {
	sample, philly := load(t, "astraea_sample500.csv.gz"), load(t, "philly_sim3d_20171011.csv.gz")
	files, err := filepath.Glob(filepath.Join(traces, "ref", "*.csv.gz"))
	require.NoError(t, err)
	require.Len(t, files, 32)
	for _, f := range files {
		name := filepath.Base(f)
		t.Run(strings.TrimSuffix(name, ".csv.gz"), func(t *testing.T) {
			set, rest, _ := strings.Cut(strings.TrimSuffix(name, ".csv.gz"), "_")
			quota, order, _ := strings.Cut(rest, "_")
			order, term, other := strings.Cut(order, "_L")
			if order == "fairness" {
				order = ""
			}
			cfg, jobs := astraea.Config{Order: astraea.Order(order), Static: quota == "static", Shares: sampleShares()}, sample
			if other {
				n, err := strconv.Atoi(term)
				require.NoError(t, err)
				cfg.Term = time.Duration(n) * time.Second
			}
			if set == "philly3d" {
				if testing.Short() {
					t.Skip("three days of Philly take half a second an order: left out of short tests")
				}
				cfg.Shares, cfg.Nodes, cfg.Tick, cfg.Term = phillyShares(t), 24, time.Minute, 15*time.Minute
				jobs = philly
			}
			r, err := astraea.Run(cfg, jobs)
			require.NoError(t, err)
			header, rows := table(t, "ref/"+name)
			require.Equal(t, columns, strings.Join(header, ","))
			require.Len(t, r.Records, len(rows))
			for i := range rows {
				require.Equal(t, rows[i], line(t, &r.Records[i]))
			}
		})
	}
}

// sums are the figures of one run that were published, or printed beside it.
type sums struct {
	jct                      float64
	least, greatest          float64 // tenants' index over the run
	expiries, resumes, kills int
}

func total(r *astraea.Result) (s sums) {
	s.least = 1e9
	for _, j := range r.Records {
		s.jct += (j.End - j.Submit).Seconds() / float64(len(r.Records))
		s.expiries += j.Expiries
		s.resumes += j.Resumes
		s.kills += j.Kills
	}
	for _, u := range r.Tenants {
		s.least, s.greatest = min(s.least, u.Index()), max(s.greatest, u.Index())
	}
	return s
}

// TestBlockingAndKillingAreTheArtifacts runs the sample with the options of the
// published command, of which only sums are known.
func TestBlockingAndKillingAreTheArtifacts(t *testing.T) {
	jobs := load(t, "astraea_sample500.csv.gz")
	for order, want := range map[astraea.Order]sums{ // the order does not matter: each case stands alone
		astraea.FIFO:     {7536.6, 0.776, 1.580, 1050, 269, 0},
		astraea.Smallest: {5576.7, 0.883, 1.543, 1051, 274, 0},
		astraea.Shortest: {5838.9, 0.783, 1.573, 1050, 336, 0},
		astraea.Attained: {7442.0, 0.794, 1.492, 1052, 497, 0},
		astraea.Finish:   {6770.0, 0.832, 1.681, 1054, 355, 760},
		astraea.Fairness: {7631.1, 0.781, 1.495, 1052, 474, 402},
		astraea.Class:    {7520.0, 0.739, 1.462, 1049, 432, 331},
		astraea.Reward:   {7382.2, 0.812, 1.647, 1049, 443, 356},
	} {
		r, err := astraea.Run(astraea.Config{
			Shares: sampleShares(), Order: order, Block: true, Delay: 5 * time.Minute, Term: 15 * time.Minute, Starvation: 6 * time.Hour,
		}, jobs)
		require.NoError(t, err)
		got := total(r)
		require.InDelta(t, want.jct, got.jct, 0.05, order)
		require.InDelta(t, want.least, got.least, 0.0005, order)
		require.InDelta(t, want.greatest, got.greatest, 0.0005, order)
		require.Equal(t, []int{want.expiries, want.resumes, want.kills}, []int{got.expiries, got.resumes, got.kills}, order)
	}
}

// TestServiceIsConserved holds a tenant's account against its jobs' time: they
// differ by what the tick adds, less than a tick for each time a job ran.
func TestServiceIsConserved(t *testing.T) {
	jobs := load(t, "astraea_sample500.csv.gz")
	r, err := astraea.Run(astraea.Config{Shares: sampleShares()}, jobs)
	require.NoError(t, err)
	require.Len(t, r.Dropped, 83)
	least, most := map[lockstep.TenantID]int64{}, map[lockstep.TenantID]int64{}
	for _, j := range r.Records {
		w := int64(j.GPUs) * int64(j.Duration/time.Second)
		least[j.Tenant] += w
		most[j.Tenant] += w + 30*int64(j.GPUs)*int64(j.Expiries+1) // passed over up to twice, and rounded up
	}
	for _, u := range r.Tenants {
		require.Equal(t, int64(12), u.Quota)
		require.GreaterOrEqual(t, u.Service, least[u.ID])
		require.LessOrEqual(t, u.Service, most[u.ID])
		require.LessOrEqual(t, u.Deserved, u.Weighted)
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	err := astraea.Config{
		Shares: []astraea.Share{{Tenant: "a", Weight: 1}, {Tenant: "a", Weight: 0}, {Tenant: "", Weight: 1}},
		Order:  "other", Nodes: -1, GPUsPerNode: 1 << 30, Tick: time.Millisecond, Term: -1, Starvation: 1, Delay: 1 << 62,
	}.Validate()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Tick", "Term", "Starvation", "Delay", "Nodes", "GPUsPerNode", "Order", "Shares[1].Tenant", "Shares[1].Weight"} {
		require.ErrorContains(t, err, field)
	}
	require.ErrorContains(t, astraea.Config{}.Validate(), "Shares")
	require.ErrorContains(t, astraea.Config{Shares: []astraea.Share{{Tenant: "a", Weight: 1}, {Tenant: "b", Weight: 1000}}}.Validate(), "less than one device")

	one := astraea.Config{Shares: []astraea.Share{{Tenant: "a", Weight: 1}}}
	good := trace.Job{ID: "j", Tenant: "a", GPUs: 1, Duration: time.Second}
	for name, change := range map[string]func(*trace.Job){ // the order does not matter: each case stands alone
		"GPUs": func(j *trace.Job) { j.GPUs = 0 }, "Submit": func(j *trace.Job) { j.Submit = -time.Second },
		"Duration": func(j *trace.Job) { j.Duration = time.Millisecond },
	} {
		j := good
		change(&j)
		_, err := astraea.Run(one, []trace.Job{j})
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}
	_, err = astraea.Run(one, []trace.Job{good, good})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	other := good
	other.Tenant = "b"
	_, err = astraea.Run(one, []trace.Job{other})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = astraea.Run(astraea.Config{}, nil)
	require.Error(t, err)
	r, err := astraea.Run(one, nil)
	require.NoError(t, err)
	require.Empty(t, r.Records)
	require.InDelta(t, 1, r.Tenants[0].Index(), 0)
}
