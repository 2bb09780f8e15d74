package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/etcd"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// These examples run against the etcd that the package's tests start in their own
// process. Elsewhere connect is clientv3.New with the endpoints of a cluster.
func connect() *clientv3.Client { return etcd.ClientForExamples() }

// A scheduler that survives its process. What one reign decides and commits is the
// state that the next one begins with.
func Example() {
	client := connect()
	defer client.Close()
	space, err := etcd.New(etcd.Config{Client: client, Prefix: "/example/scheduler", TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	lead := func(id lockstep.JobID) func(ctx context.Context, l *etcd.Leader) error {
		return func(ctx context.Context, l *etcd.Leader) error {
			journal, err := space.Journal("scheduler", l)
			if err != nil {
				return err
			}
			s, err := journal.Scheduler(ctx, scheduler.Config{Tree: tree, StartAtOnce: true})
			if err != nil {
				return err
			}
			fmt.Println("begins with", s.Len(), "jobs")
			now = now.Add(time.Minute)
			g := &lockstep.Gang{ID: id, Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 4}}}}
			if err := s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g}); err != nil {
				return err
			}
			actions, err := s.Step(now)
			if err != nil {
				return err
			}
			// First it is written down, then it is done.
			if err := journal.Commit(ctx, s); err != nil {
				return err
			}
			for _, a := range actions {
				if err := l.Check(); err != nil {
					return err
				}
				fmt.Println(a.Kind, a.Job, "on devices", a.Plan.Members[0].Devices) // and tell the node l.Token()
			}
			return nil
		}
	}
	// Run resigns when lead returns; a host's would go on until its context ends.
	for _, id := range []lockstep.JobID{"job-1", "job-2"} {
		if err := space.Run(context.Background(), lead(id)); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// begins with 0 jobs
	// start job-1 on devices 0-3
	// begins with 1 jobs
	// start job-2 on devices 4-7
}

// A lease table in etcd. Whoever has been succeeded cannot save it any more, even
// where nobody else has written it since.
func ExampleStore() {
	client := connect()
	defer client.Close()
	ctx := context.Background()
	space, err := etcd.New(etcd.Config{Client: client, Prefix: "/example/store", TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := space.Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	table, _ := lease.New(lease.Config{})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, _ = table.Grant(now, "job-1", 8*lockstep.WholeGPU, 0)
	rev, err := table.Save(ctx, space.Store(first), "leases", 0)
	fmt.Println("saved:", err == nil)

	_ = first.Resign(ctx)
	second, _ := space.Campaign(ctx)
	defer second.Resign(ctx)
	_, err = table.Save(ctx, space.Store(first), "leases", rev)
	fmt.Println("deposed:", errors.Is(err, etcd.ErrDeposed))

	table, rev, _ = lease.Load(ctx, space.Store(second), "leases")
	fmt.Println("leases:", table.Len(), "saved:", rev != 0)
	fmt.Println("later token:", second.Token() > first.Token())
	// Output:
	// saved: true
	// deposed: true
	// leases: 1 saved: true
	// later token: true
}

// A host's own keys, written only while it leads.
func ExampleLeader_Commit() {
	client := connect()
	defer client.Close()
	ctx := context.Background()
	space, err := etcd.New(etcd.Config{Client: client, Prefix: "/example/commit", TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := space.Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	const key = "/example/commit/replicas"
	_, _ = client.Delete(ctx, key)
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", 0)}
	for range 2 {
		resp, err := l.Commit(ctx, absent, clientv3.OpPut(key, "3"))
		fmt.Println(err == nil && resp.Succeeded)
	}
	_ = l.Resign(ctx)
	_, err = l.Commit(ctx, nil, clientv3.OpPut(key, "0"))
	fmt.Println(errors.Is(err, etcd.ErrDeposed))
	// Output:
	// true
	// false
	// true
}
