package elastic_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// free are the flags of a job that may be resized and stopped.
var free = lockstep.Capabilities{Resizable: true, Preemptible: true}

// sizes are 1, 2, 3.. GPUs with these seconds for a unit of work.
func sizes(seconds ...float64) (out []elastic.Size) {
	for i, s := range seconds {
		out = append(out, elastic.Size{GPUs: i + 1, Time: time.Duration(s * 1e9)})
	}
	return out
}

func allocate(t testing.TB, cfg elastic.Config, gpus int, jobs ...elastic.Job) []elastic.Share {
	t.Helper()
	a, err := elastic.New(cfg)
	require.NoError(t, err)
	shares, err := a.Append(nil, gpus, jobs)
	require.NoError(t, err)
	return shares
}

func gpusOf(shares []elastic.Share) (out []int) {
	for _, s := range shares {
		out = append(out, s.GPUs)
	}
	return out
}

// Two jobs by hand: with 4 GPUs J1 gains (10-6)×100 by its second and then (6-5)×100, J2 gains (8-4.4)×50 by its
// second. So it is 2+2, and a fifth GPU goes to J1, by 100 against 60.
func TestOptimusByHand(t *testing.T) {
	j1 := elastic.Job{ID: "J1", Sizes: sizes(10, 6, 5, 4.6), Work: 100, Capabilities: free}
	j2 := elastic.Job{ID: "J2", Sizes: sizes(8, 4.4, 3.2, 2.6), Work: 50, Capabilities: free}
	for gpus, want := range map[int][]int{0: {0, 0}, 1: {1, 0}, 2: {1, 1}, 3: {2, 1}, 4: {2, 2}, 5: {3, 2}, 6: {3, 3}, 8: {4, 4}, 9: {4, 4}} {
		require.Equal(t, want, gpusOf(allocate(t, elastic.Config{}, gpus, j1, j2)), "%d GPUs", gpus)
	}
}

// Rates of 1, 1.8 and 3 a second on 1, 2 and 4 GPUs. X has 1000 to do and needs 2 GPUs: 1111 GPU-seconds; with 4 it
// would take 1333, 111 more for each of the two. Y, which scales better, loses less by growing and comes first.
func TestMarginalReturnByHand(t *testing.T) {
	second := float64(time.Second)
	slow := []elastic.Size{{2, time.Duration(second / 1.8)}, {4, time.Duration(second / 3)}}
	better := []elastic.Size{{2, time.Duration(second / 1.8)}, {4, time.Duration(second / 3.4)}}
	x := elastic.Job{ID: "X", Sizes: slow, Work: 1000, Capabilities: free}
	y := elastic.Job{ID: "Y", Sizes: better, Work: 1000, Capabilities: free}
	cfg := elastic.Config{Rule: elastic.Service}
	require.Equal(t, []int{2, 2}, gpusOf(allocate(t, cfg, 5, x, y)))
	require.Equal(t, []int{2, 4}, gpusOf(allocate(t, cfg, 6, x, y)))
	require.Equal(t, []int{4, 4}, gpusOf(allocate(t, cfg, 8, x, y)))
	// By the time until the end, X would gain (555.6-333.3)/2 for each GPU, Y more still; with less left to do it
	// is X. The GPU time that X loses is then more than what Y does.
	y.Work = 700
	require.Equal(t, []int{4, 2}, gpusOf(allocate(t, elastic.Config{}, 6, x, y)))
	require.Equal(t, []int{2, 4}, gpusOf(allocate(t, cfg, 6, x, y)))
}

// A job that is slower on more GPUs keeps what it has, though GPUs are idle.
func TestNobodyGrowsToBecomeSlower(t *testing.T) {
	for _, rule := range []elastic.Rule{elastic.Finish, elastic.Service} {
		got := allocate(t, elastic.Config{Rule: rule}, 9, elastic.Job{ID: "a", Sizes: sizes(2, 1, 1, .5), Work: 5, Capabilities: free})
		require.Equal(t, []int{2}, gpusOf(got))
	}
}

func TestTiesGoByRankAndID(t *testing.T) {
	job := func(id string, rank int64) elastic.Job {
		return elastic.Job{ID: lockstep.JobID(id), Rank: rank, Sizes: sizes(4, 2, 1), Work: 10, Capabilities: free}
	}
	require.Equal(t, []int{1, 1, 0}, gpusOf(allocate(t, elastic.Config{}, 2, job("c", 0), job("a", 0), job("b", 0))))
	require.Equal(t, []int{1, 0, 1}, gpusOf(allocate(t, elastic.Config{}, 2, job("c", -1), job("a", 0), job("b", 0))))
	require.Equal(t, []int{1, 1, 2}, gpusOf(allocate(t, elastic.Config{}, 4, job("c", -1), job("a", 0), job("b", 0))))
}

// A job that runs is not resized unless its flag allows it, and one that cannot be stopped comes before all others.
func TestFlagsHold(t *testing.T) {
	s := sizes(8, 4, 2, 1)
	fixed := elastic.Job{ID: "f", Rank: 9, Sizes: s, Work: 100, Held: 3}
	other := elastic.Job{ID: "o", Sizes: s, Work: 100, Capabilities: free}
	got := allocate(t, elastic.Config{}, 4, fixed, other)
	require.Equal(t, []elastic.Share{{ID: "f", GPUs: 3, Held: 3, Reason: elastic.Fixed}, {ID: "o", GPUs: 1}}, got)
	got = allocate(t, elastic.Config{}, 3, fixed, other)
	require.Equal(t, []elastic.Share{{ID: "f", GPUs: 3, Held: 3, Reason: elastic.Fixed}, {ID: "o", Reason: elastic.NoRoom}}, got)
	// It may be stopped, but not resized.
	fixed.Capabilities.Preemptible = true
	got = allocate(t, elastic.Config{}, 3, fixed, other)
	require.Equal(t, []elastic.Share{{ID: "f", Held: 3, Reason: elastic.NoRoom}, {ID: "o", GPUs: 3}}, got)
	// While it waits it gets its least size.
	fixed.Held = 0
	got = allocate(t, elastic.Config{}, 9, fixed)
	require.Equal(t, []elastic.Share{{ID: "f", GPUs: 1, Reason: elastic.Fixed}}, got)
	// It holds what is none of its sizes: that is still what it keeps.
	fixed.Held = 7
	require.Equal(t, []int{7}, gpusOf(allocate(t, elastic.Config{}, 9, fixed)))
	// More is held than there is left: nobody gets what is not there.
	require.Equal(t, []int{0}, gpusOf(allocate(t, elastic.Config{}, 6, fixed)))
}

func TestDwellHoldsASizeUnlessItIsBelowTheLeast(t *testing.T) {
	cfg := elastic.Config{Dwell: time.Minute}
	job := elastic.Job{ID: "a", Sizes: sizes(8, 4, 2, 1)[1:], Work: 100, Held: 3, Since: time.Minute - 1, Capabilities: free}
	require.Equal(t, elastic.Share{ID: "a", GPUs: 3, Held: 3, Reason: elastic.Settled}, allocate(t, cfg, 4, job)[0])
	require.Equal(t, elastic.Share{ID: "a", GPUs: 2, Held: 3}, allocate(t, cfg, 2, job)[0], "what is there when nodes were lost")
	job.Since++
	require.Equal(t, elastic.Share{ID: "a", GPUs: 4, Held: 3}, allocate(t, cfg, 4, job)[0])
	job.Since, job.Held = 0, 1
	require.Equal(t, elastic.Share{ID: "a", GPUs: 4, Held: 1}, allocate(t, cfg, 4, job)[0])
}

// Growing from 4 s to 3 s saves a quarter of the horizon: a minute of 4. A resize that costs as much does not pay.
func TestHysteresisWeighsGainAgainstCost(t *testing.T) {
	for _, c := range []struct {
		cost time.Duration
		want int
	}{{time.Minute - 1, 2}, {time.Minute, 1}, {time.Hour, 1}} {
		job := elastic.Job{ID: "a", Sizes: sizes(4, 3), Work: 100, Held: 1, Capabilities: free}
		job.Capabilities.Save, job.Capabilities.Restore = c.cost/2, c.cost-c.cost/2
		s := allocate(t, elastic.Config{Horizon: 4 * time.Minute}, 2, job)[0]
		require.Equal(t, c.want, s.GPUs, c.cost)
		require.Equal(t, c.want == 1, s.Reason == elastic.TooDear)
		require.Equal(t, 2, allocate(t, elastic.Config{}, 2, job)[0].GPUs, "cost does not count without a horizon")
	}
}

// What one job does not take since it would not pay goes to the next.
func TestWhatIsTooDearGoesToOthers(t *testing.T) {
	a := elastic.Job{ID: "a", Sizes: sizes(4, 3), Work: 1000, Held: 1, Capabilities: free}
	a.Capabilities.Restore = time.Hour
	b := elastic.Job{ID: "b", Sizes: sizes(4, 3), Work: 1, Capabilities: free}
	got := allocate(t, elastic.Config{Horizon: time.Hour}, 3, a, b)
	require.Equal(t, []elastic.Share{{ID: "a", GPUs: 1, Held: 1, Reason: elastic.TooDear}, {ID: "b", GPUs: 2}}, got)
}

// concave returns times that fall ever less steeply.
func concave(rng *rand.Rand, n int) (out []elastic.Size) {
	drops := make([]int64, n)
	for i := range drops {
		drops[i] = rng.Int64N(1000)
	}
	slices.Sort(drops)
	t := int64(1)
	for i := range n {
		out = append(out, elastic.Size{GPUs: n - i, Time: time.Duration(t)})
		t += drops[i]
	}
	slices.Reverse(out)
	return out
}

// Where each next GPU saves less than the one before, giving them one by one is best of all: the least sum of the
// times until jobs end, as far as everyone has one.
func TestOptimusIsBestWhereCurvesAreConcave(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range scaled(t, 400) {
		jobs := make([]elastic.Job, 1+rng.IntN(4))
		for i := range jobs {
			jobs[i] = elastic.Job{ID: lockstep.JobID(fmt.Sprint(i)), Sizes: concave(rng, 1+rng.IntN(6)), Work: rng.Int64N(50), Capabilities: free}
		}
		gpus := len(jobs) + rng.IntN(12)
		got := int64(0)
		for i, s := range allocate(t, elastic.Config{}, gpus, jobs...) {
			got += int64(jobs[i].Sizes[s.GPUs-1].Time) * jobs[i].Work
		}
		require.Equal(t, exhaustive(jobs, gpus), got)
	}
}

// exhaustive returns the least sum of times until the end when every job has one of its sizes.
func exhaustive(jobs []elastic.Job, gpus int) int64 {
	if len(jobs) == 0 {
		return 0
	}
	best := int64(math.MaxInt64)
	for _, s := range jobs[0].Sizes {
		if s.GPUs+len(jobs)-1 > gpus {
			break
		}
		best = min(best, int64(s.Time)*jobs[0].Work+exhaustive(jobs[1:], gpus-s.GPUs))
	}
	return best
}

// plain gives GPUs by the rule in the simplest way: it looks at every job for every step, with numbers of any size.
func plain(rule elastic.Rule, gpus int, jobs []elastic.Job) map[lockstep.JobID]int {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b elastic.Job) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.ID, b.ID)) })
	at, out := make([]int, len(jobs)), map[lockstep.JobID]int{}
	for i, j := range jobs {
		if at[i] = -1; j.Sizes[0].GPUs <= gpus {
			at[i] = 0
			gpus -= j.Sizes[0].GPUs
		}
	}
	for {
		best, gain := -1, new(big.Rat)
		for i, j := range jobs {
			if at[i] < 0 || at[i]+1 == len(j.Sizes) || j.Work == 0 {
				continue
			}
			now, then := j.Sizes[at[i]], j.Sizes[at[i]+1]
			if then.Time >= now.Time || then.GPUs-now.GPUs > gpus {
				continue
			}
			saved := new(big.Int).Sub(big.NewInt(int64(now.Time)), big.NewInt(int64(then.Time)))
			if rule == elastic.Service {
				saved.Sub(new(big.Int).Mul(big.NewInt(int64(now.Time)), big.NewInt(int64(now.GPUs))), new(big.Int).Mul(big.NewInt(int64(then.Time)), big.NewInt(int64(then.GPUs))))
			}
			each := new(big.Rat).SetFrac(saved.Mul(saved, big.NewInt(j.Work)), big.NewInt(int64(then.GPUs-now.GPUs)))
			if best < 0 || each.Cmp(gain) > 0 {
				best, gain = i, each
			}
		}
		if best < 0 {
			break
		}
		gpus -= jobs[best].Sizes[at[best]+1].GPUs - jobs[best].Sizes[at[best]].GPUs
		at[best]++
	}
	for i, j := range jobs {
		if out[j.ID] = 0; at[i] >= 0 {
			out[j.ID] = j.Sizes[at[i]].GPUs
		}
	}
	return out
}

func TestTheHeapGivesWhatLookingAtAllGives(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range scaled(t, 2000) {
		jobs, gpus := random(rng, rng.IntN(12)), rng.IntN(80)
		for i := range jobs {
			jobs[i].Held, jobs[i].Capabilities = 0, free
			if rng.IntN(4) == 0 && i > 0 {
				jobs[i].Sizes, jobs[i].Work = jobs[i-1].Sizes, jobs[i-1].Work // ties
			}
			if rng.IntN(4) == 0 { // figures beyond 64 bits
				jobs[i].Work = elastic.MaxWork - rng.Int64N(5)
			}
		}
		for _, rule := range []elastic.Rule{elastic.Finish, elastic.Service} {
			got := map[lockstep.JobID]int{}
			for _, s := range allocate(t, elastic.Config{Rule: rule}, gpus, jobs...) {
				got[s.ID] = s.GPUs
			}
			require.Equal(t, plain(rule, gpus, jobs), got)
		}
	}
}

func scaled(t testing.TB, n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// random returns jobs of all kinds.
func random(rng *rand.Rand, n int) []elastic.Job {
	jobs := make([]elastic.Job, n)
	for i := range jobs {
		j := elastic.Job{ID: lockstep.JobID(fmt.Sprintf("j%03d", rng.IntN(1000)*1000+i)), Rank: rng.Int64N(3), Work: rng.Int64N(100), Since: time.Duration(rng.IntN(100)) * time.Second}
		for g := 1 + rng.IntN(3); len(j.Sizes) < 1+rng.IntN(5); g += 1 + rng.IntN(3) {
			j.Sizes = append(j.Sizes, elastic.Size{GPUs: g, Time: time.Duration(1 + rng.Int64N(1e10))})
		}
		if rng.IntN(2) == 0 {
			j.Held = 1 + rng.IntN(12)
		}
		j.Capabilities = lockstep.Capabilities{Resizable: rng.IntN(4) > 0, Preemptible: rng.IntN(4) > 0, Restore: time.Duration(rng.IntN(200)) * time.Second}
		jobs[i] = j
	}
	return jobs
}

// Kueue issue 6969 asks that growth goes through the same admission as a start: no decision gives more than there is,
// whoever grows, is kept or is protected. And no job is resized against its flag, or before its time.
func TestSharesNeverExceedCapacityNorFlags(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range scaled(t, 3000) {
		cfg := elastic.Config{Dwell: time.Duration(rng.IntN(2)) * time.Minute, Horizon: time.Duration(rng.IntN(3)) * time.Minute}
		if rng.IntN(2) == 0 {
			cfg.Rule = elastic.Service
		}
		jobs, gpus := random(rng, rng.IntN(12)), rng.IntN(60)
		byID := map[lockstep.JobID]elastic.Job{}
		held, wanted := 0, 0 // wanted is what suffices for all to keep what they hold, or have their least
		for _, j := range jobs {
			byID[j.ID] = j
			held += j.Held
			wanted += max(j.Held, j.Sizes[0].GPUs)
		}
		sum := 0
		shares := allocate(t, cfg, gpus, jobs...)
		require.Len(t, shares, len(jobs))
		for _, s := range shares {
			j := byID[s.ID]
			sum += s.GPUs
			require.Equal(t, j.Held, s.Held)
			k := slices.IndexFunc(j.Sizes, func(x elastic.Size) bool { return x.GPUs == s.GPUs })
			require.True(t, s.GPUs == 0 || k >= 0 || s.GPUs == j.Held)
			require.Equal(t, s.GPUs == 0, s.Reason == elastic.NoRoom)
			if s.GPUs > 0 && s.GPUs != j.Held && j.Held > 0 {
				require.True(t, j.Capabilities.Resizable)
				if j.Since < cfg.Dwell && j.Held >= j.Sizes[0].GPUs { // others must have their least
					require.Greater(t, wanted, gpus)
					require.Less(t, s.GPUs, j.Held)
				}
			}
			if j.Held > 0 && !j.Capabilities.Preemptible && held <= gpus && j.Held >= j.Sizes[0].GPUs {
				require.Positive(t, s.GPUs)
			}
		}
		require.LessOrEqual(t, sum, gpus)
	}
}

func TestTheOrderOfJobsDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	cfg := elastic.Config{Dwell: time.Minute, Horizon: time.Minute}
	for range scaled(t, 300) {
		jobs, gpus := random(rng, rng.IntN(12)), rng.IntN(60)
		want := allocate(t, cfg, gpus, jobs...)
		rng.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
		require.Equal(t, want, allocate(t, cfg, gpus, jobs...))
	}
}

// Under a constant load a decision that was carried out is left alone.
func TestConstantLoadDoesNotFlap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range scaled(t, 500) {
		cfg := elastic.Config{Horizon: time.Duration(rng.IntN(3)) * time.Minute}
		jobs, gpus := random(rng, 1+rng.IntN(10)), rng.IntN(60)
		for i := range jobs {
			jobs[i].Held, jobs[i].Capabilities.Resizable = 0, true
		}
		shares := allocate(t, cfg, gpus, jobs...)
		slices.SortFunc(jobs, func(a, b elastic.Job) int { return cmp.Compare(a.ID, b.ID) })
		for i := range jobs {
			jobs[i].Held, jobs[i].Capabilities.Preemptible = shares[i].GPUs, true
		}
		require.Equal(t, gpusOf(shares), gpusOf(allocate(t, cfg, gpus, jobs...)))
	}
}

// Products at the bounds stay exact: the greater gain wins by one nanosecond.
func TestGainsAreExactAtTheBounds(t *testing.T) {
	big := lockstep.MaxWalltime
	for _, rule := range []elastic.Rule{elastic.Finish, elastic.Service} {
		a := elastic.Job{ID: "a", Sizes: []elastic.Size{{elastic.MaxGPUs / 4, big}, {elastic.MaxGPUs / 2, 2}}, Work: elastic.MaxWork, Capabilities: free}
		b := a
		b.ID, b.Sizes = "b", []elastic.Size{{elastic.MaxGPUs / 4, big}, {elastic.MaxGPUs / 2, 1}}
		require.Equal(t, []int{elastic.MaxGPUs / 4, elastic.MaxGPUs / 2}, gpusOf(allocate(t, elastic.Config{Rule: rule}, elastic.MaxGPUs*3/4, a, b)))
	}
}

func TestBadJobsAreNamedAndNothingIsGiven(t *testing.T) {
	a, err := elastic.New(elastic.Config{})
	require.NoError(t, err)
	good := func() elastic.Job {
		return elastic.Job{ID: "a", Sizes: sizes(2, 1), Work: 1, Capabilities: free}
	}
	for field, edit := range map[string]func(*elastic.Job){
		"jobs[0].ID":            func(j *elastic.Job) { j.ID = "" },
		"jobs[0].Work":          func(j *elastic.Job) { j.Work = elastic.MaxWork + 1 },
		"jobs[0].Held":          func(j *elastic.Job) { j.Held = -1 },
		"jobs[0].Since":         func(j *elastic.Job) { j.Since = -1 },
		"jobs[0].Capabilities":  func(j *elastic.Job) { j.Capabilities.Save = math.MaxInt64 },
		"jobs[0].Sizes":         func(j *elastic.Job) { j.Sizes = nil },
		"jobs[0].Sizes[0].GPUs": func(j *elastic.Job) { j.Sizes[0].GPUs = 0 },
		"jobs[0].Sizes[1].GPUs": func(j *elastic.Job) { j.Sizes[1].GPUs = 1 },
		"jobs[0].Sizes[1].Time": func(j *elastic.Job) { j.Sizes[1].Time = 0 },
	} {
		j := good()
		edit(&j)
		got, err := a.Append(make([]elastic.Share, 0, 4), 1, []elastic.Job{j})
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, field, e.Field)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Empty(t, got)
	}
	_, err = a.Append(nil, -1, nil)
	require.ErrorContains(t, err, "gpus = -1")
	_, err = a.Append(nil, 1, []elastic.Job{good(), good()})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = elastic.New(elastic.Config{Rule: "x", Dwell: -1, Horizon: math.MaxInt64})
	for _, field := range []string{"Rule", "Dwell", "Horizon"} {
		require.ErrorContains(t, err, field)
	}
	require.Equal(t, "reason 9", elastic.Reason(9).String())
	require.Equal(t, "too dear", elastic.TooDear.String())
}

func TestAppendAllocatesNothing(t *testing.T) {
	a, jobs, dst := large(t, 500)
	require.Zero(t, testing.AllocsPerRun(20, func() { dst, _ = a.Append(dst[:0], 1000, jobs) }))
}

// large are n jobs of six kinds, half of which run.
func large(t testing.TB, n int) (*elastic.Allocator, []elastic.Job, []elastic.Share) {
	a, err := elastic.New(elastic.Config{Dwell: time.Minute, Horizon: time.Hour})
	require.NoError(t, err)
	var kinds [][]elastic.Size
	for k := range 6 {
		var s []elastic.Size
		for g := 1; g <= 64; g++ {
			s = append(s, elastic.Size{GPUs: g, Time: time.Duration(1e9/float64(g) + 1e7*float64(k+1)*math.Log2(float64(g)+1))})
		}
		kinds = append(kinds, s)
	}
	jobs := make([]elastic.Job, n)
	for i := range jobs {
		jobs[i] = elastic.Job{ID: lockstep.JobID(fmt.Sprintf("job-%06d", (i*7919)%n)), Sizes: kinds[i%6], Work: int64(1000 + i), Held: i % 2, Since: time.Hour, Capabilities: free}
		jobs[i].Capabilities.Restore = 30 * time.Second
	}
	dst, err := a.Append(nil, 2*n, jobs)
	require.NoError(t, err)
	return a, jobs, dst
}

func BenchmarkAllocate(b *testing.B) {
	for _, n := range []int{50, 500, 5000, 50000} {
		b.Run(fmt.Sprintf("gpus=%d/jobs=%d", 2*n, n), func(b *testing.B) {
			a, jobs, dst := large(b, n)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = a.Append(dst[:0], 2*n, jobs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Nodes were lost. A job within its dwell does not keep more than its least at the cost of one that must not be stopped.
func TestDwellStopsNobodyWhoMustNotBeStopped(t *testing.T) {
	must := lockstep.Capabilities{Resizable: true}
	a := elastic.Job{ID: "a", Sizes: sizes(8, 4, 3, 2, 2, 2, 2, 1)[1:], Work: 5, Held: 6, Capabilities: must}
	b := elastic.Job{ID: "b", Sizes: sizes(8, 4, 3, 2, 2, 2, 2, 1)[3:], Work: 5, Held: 6, Capabilities: must}
	require.Equal(t, []int{2, 6}, gpusOf(allocate(t, elastic.Config{Dwell: time.Hour}, 8, a, b)))
	require.Equal(t, []int{6, 6}, gpusOf(allocate(t, elastic.Config{Dwell: time.Hour}, 12, a, b)))

	rng := rand.New(rand.NewPCG(3, 5))
	for range scaled(t, 6000) {
		cfg := elastic.Config{Dwell: time.Duration(rng.IntN(2)) * time.Minute, Horizon: time.Duration(rng.IntN(3)) * time.Minute}
		jobs, gpus, need := random(rng, 1+rng.IntN(8)), rng.IntN(60), 0
		stays := map[lockstep.JobID]bool{}
		for _, j := range jobs {
			if j.Held > 0 && !j.Capabilities.Preemptible {
				stays[j.ID] = true
				if need += j.Sizes[0].GPUs; !j.Capabilities.Resizable {
					need += j.Held - j.Sizes[0].GPUs
				}
			}
		}
		if need > gpus {
			continue
		}
		for _, s := range allocate(t, cfg, gpus, jobs...) {
			require.True(t, s.GPUs > 0 || !stays[s.ID], s)
		}
	}
}

// Minimum shares that fit together are given to all, as package deadline promises them, whatever the horizon.
func TestLeastSizesThatFitAreGivenWithoutDwell(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 5))
	grown := 0
	for range scaled(t, 6000) {
		cfg := elastic.Config{Rule: []elastic.Rule{elastic.Finish, elastic.Service}[rng.IntN(2)], Horizon: time.Duration(rng.IntN(3)) * time.Minute}
		jobs, need := random(rng, 1+rng.IntN(8)), 0
		for i := range jobs {
			jobs[i].Capabilities.Resizable, jobs[i].Capabilities.Preemptible = true, true
			need += jobs[i].Sizes[0].GPUs
		}
		for i, s := range allocate(t, cfg, need+rng.IntN(20), jobs...) {
			at := slices.IndexFunc(jobs, func(j elastic.Job) bool { return j.ID == s.ID })
			require.GreaterOrEqual(t, s.GPUs, jobs[at].Sizes[0].GPUs, "%d: %+v", i, s)
			if s.GPUs > jobs[at].Sizes[0].GPUs {
				grown++
			}
		}
	}
	require.NotZero(t, grown)
}
