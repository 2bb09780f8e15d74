package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// sample is one round of one scheduler.
type sample struct {
	all    time.Duration // from the start of the process to the last pod bound
	span   time.Duration // from the first pod bound to the last
	usage  plane.Usage   // of the scheduler
	server time.Duration // processor time of etcd and the API server meanwhile
}

// tally counts the pods that a watch says are bound.
type tally struct {
	mu          sync.Mutex
	bound       map[string]bool
	want        int
	first, last time.Time
	done        chan struct{}
}

func (t *tally) see(obj any) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	key := p.Namespace + "/" + p.Name
	if t.bound[key] {
		return
	}
	t.bound[key] = true
	if len(t.bound) == 1 {
		t.first = now
	}
	if t.last = now; len(t.bound) == t.want {
		close(t.done)
	}
}

// measure has one scheduler bind one backlog.
func (b *bench) measure(ctx context.Context, c contender) error {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	b.serial++
	namespace := fmt.Sprintf("round-%d", b.serial)
	if err := b.namespace(ctx, namespace); err != nil {
		return err
	}
	if err := cluster.MakeGangs(ctx, b.client, b.backlog(c, namespace)...); err != nil {
		return err
	}
	t := &tally{bound: make(map[string]bool), want: (b.gangs - b.absent) * b.members, done: make(chan struct{})}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	f := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace(namespace))
	i := f.Core().V1().Pods().Informer()
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: t.see, UpdateFunc: func(_, obj any) { t.see(obj) }}); err != nil {
		return err
	}
	f.StartWithContext(watching)
	defer f.Shutdown()
	defer unwatch()
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		return ctx.Err()
	}
	s, err := b.time(ctx, c, t)
	if err != nil {
		return err
	}
	if err := b.audit(ctx, namespace); err != nil {
		return err
	}
	b.took[c.name] = append(b.took[c.name], s)
	fmt.Printf("  %-11s %6.2f s  %7.1f gangs/s\n", c.name, s.all.Seconds(), float64(b.gangs-b.absent)/s.all.Seconds())
	return b.clear(ctx, namespace)
}

// time runs the scheduler until everything is bound.
func (b *bench) time(ctx context.Context, c contender, t *tally) (s sample, err error) {
	log, err := os.Create(b.logName(c))
	if err != nil {
		return s, err
	}
	defer log.Close()
	before, err := b.plane.Usage()
	if err != nil {
		return s, err
	}
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	})
	defer end()
	select {
	case <-t.done:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return s, fmt.Errorf("%d of %d pods are bound: %w", len(t.bound), t.want, ctx.Err())
	}
	s.all, s.span = t.last.Sub(start), t.last.Sub(t.first)
	after, err := b.plane.Usage()
	end()
	s.usage = plane.UsageAt(cmd.ProcessState)
	s.server = after.CPU - before.CPU
	return s, err
}

// audit checks that the scheduler did what it should: gangs whole or not at all, and
// no node with too much on it.
func (b *bench) audit(ctx context.Context, namespace string) error {
	pods, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return cluster.Audit(pods.Items, nodes.Items)
}

// clear removes what a round made.
func (b *bench) clear(ctx context.Context, namespace string) error {
	now := int64(0)
	opts := metav1.DeleteOptions{GracePeriodSeconds: &now}
	if err := b.client.SchedulingV1beta1().PodGroups(namespace).DeleteCollection(ctx, opts, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, opts, metav1.ListOptions{}); err != nil {
		return err
	}
	for {
		list, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (b *bench) logName(c contender) string {
	dir := b.dir
	if b.keepLogs != "" {
		dir = b.keepLogs
	}
	return filepath.Join(dir, c.name+".log")
}

// log returns the end of a scheduler's log.
func (b *bench) log(c contender) string {
	data, err := os.ReadFile(b.logName(c))
	if err != nil {
		return ""
	}
	return string(data[max(0, len(data)-3000):])
}
