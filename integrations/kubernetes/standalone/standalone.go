package standalone

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// Scheduler is the scheduler. Make one with New.
type Scheduler struct {
	cfg      Config
	feed     *feed
	leading  atomic.Bool
	synced   atomic.Bool
	beat     atomic.Int64 // when the loop last came round, in nanoseconds since start
	start    time.Time
	listens  atomic.Pointer[string]
	informer [kinds]cache.SharedIndexInformer // nil where there is nothing to watch
}

// New returns a Scheduler that does nothing yet. It reports every fault of cfg.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Election.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		cfg.Election.Identity = host + "_" + rand.Text()
	}
	return &Scheduler{cfg: cfg, feed: newFeed(), start: time.Now()}, nil
}

// Run schedules until ctx ends: as soon as this process leads, and again whenever it
// does. When ctx ends no gang is begun any more, the bindings that are under way
// are finished, the lease is given back, and Run returns nil. It returns an error
// where it cannot begin, or where it cannot go on. No goroutine is left behind.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	stop, err := s.serve(&all)
	if err != nil {
		return err
	}
	defer stop()
	// Watches outlast ctx, so that what is under way at its end is seen through.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	stopWatching, err := s.watch(watching)
	if err != nil {
		return err
	}
	defer stopWatching()
	defer unwatch()
	return s.lead(ctx, s.act)
}

// watch starts the informers. They keep what is there from then on, also while
// somebody else leads, so that this process can take over at once.
func (s *Scheduler) watch(ctx context.Context) (stop func(), err error) {
	f := informers.NewSharedInformerFactoryWithOptions(s.cfg.Client, 0, informers.WithTransform(strip))
	s.informer[pods] = f.Core().V1().Pods().Informer()
	s.informer[nodes] = f.Core().V1().Nodes().Informer()
	if s.servesGroups() {
		s.informer[groups] = f.Scheduling().V1beta1().PodGroups().Informer()
	}
	if s.cfg.Claims {
		s.informer[published] = f.Resource().V1().ResourceSlices().Informer()
		s.informer[classes] = f.Resource().V1().DeviceClasses().Informer()
		s.informer[claims] = f.Resource().V1().ResourceClaims().Informer()
	}
	factories := []informers.SharedInformerFactory{f}
	if q := s.cfg.Queues; q.Name != "" {
		one := informers.NewSharedInformerFactoryWithOptions(s.cfg.Client, 0, informers.WithNamespace(q.Namespace), onlyNamed(q.Name), informers.WithTransform(strip))
		s.informer[queues] = one.Core().V1().ConfigMaps().Informer()
		factories = append(factories, one)
	}
	for k, i := range s.informer {
		if i == nil {
			continue
		}
		if _, err := i.AddEventHandler(s.feed.handler(kind(k))); err != nil {
			return nil, fmt.Errorf("standalone: %w", err)
		}
	}
	for _, f := range factories {
		f.StartWithContext(ctx)
	}
	return func() {
		for _, f := range factories {
			f.Shutdown()
		}
	}, nil
}

// servesGroups reports whether the API server has pod groups: before they are
// switched on, annotations do. A server that does not answer is taken to have them;
// then their informer asks again until it does.
func (s *Scheduler) servesGroups() bool {
	list, err := s.cfg.Client.Discovery().ServerResourcesForGroupVersion(schedulingv1beta1.SchemeGroupVersion.String())
	if err != nil {
		return !isNotFound(err)
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == "podgroups" {
			return true
		}
	}
	return false
}

// act schedules while this process leads.
func (s *Scheduler) act(ctx context.Context, f *fence) error {
	var synced []cache.InformerSynced
	for _, i := range s.informer {
		if i != nil {
			synced = append(synced, i.HasSynced)
		}
	}
	s.cfg.Logger.Debug("waiting for lists")
	if !listed(ctx, synced) {
		return nil
	}
	s.synced.Store(true)
	s.cfg.Logger.Debug("listed")
	// What is under way when ctx ends is finished, within the lease.
	writing, halt := context.WithCancel(context.WithoutCancel(ctx))
	defer halt()
	w := newWriter(writing, s.cfg.Client, f, s.cfg.Parallel, s.cfg.Evict, s.feed.signal)
	w.binder = s.cfg.Binder
	defer w.close()
	defer halt()
	var all sync.WaitGroup
	defer all.Wait()
	r := s.reporter(f)
	reporting, quiet := context.WithCancel(ctx)
	defer quiet()
	if r != nil {
		all.Go(func() { r.run(reporting) })
	}
	l := &loop{s: s, writer: w, reporter: r, timer: time.NewTimer(time.Hour)}
	defer l.timer.Stop()
	err := l.run(ctx)
	drain, done := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer done()
	w.drain(drain)
	return err
}

// listed waits until everything was listed; false means that ctx ended. The helper of
// client-go looks ten times a second, which is as long as all the rest of a start.
func listed(ctx context.Context, synced []cache.InformerSynced) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for len(synced) > 0 {
		if synced[0]() {
			synced = synced[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

func (s *Scheduler) reporter(f *fence) *reporter {
	if s.cfg.Reports < 0 {
		return nil
	}
	name := s.cfg.View.SchedulerName
	if name == "" {
		name = view.DefaultSchedulerName
	}
	return &reporter{
		client: s.cfg.Client, fence: f, name: name, process: s.cfg.Election.Identity, now: time.Now, log: s.cfg.Logger,
		every: time.Second / time.Duration(s.cfg.Reports), in: make(chan notice, 1024),
	}
}

// loop turns the desk.
type loop struct {
	s        *Scheduler
	desk     *desk
	writer   *writer
	reporter *reporter
	timer    *time.Timer
	made     time.Time // when the desk was
}

// calm is how long the loop waits for more when something changed.
const calm = 2 * time.Millisecond

// run turns the desk whenever something changed or it is time, until ctx ends.
func (l *loop) run(ctx context.Context) error {
	if err := l.renew(); err != nil {
		return err
	}
	for {
		now := l.s.cfg.Clock.Now()
		l.s.beat.Store(int64(time.Since(l.s.start)))
		l.take()
		at, ok := l.desk.turn(now)
		l.writer.add(l.desk.orders)
		l.desk.orders = nil
		l.tell()
		if l.desk.broken != nil {
			if err := l.repair(ctx); err != nil {
				return err
			}
			continue
		}
		wait := 10 * time.Second // so that the beat goes on
		if ok {
			wait = min(wait, max(at.Sub(l.s.cfg.Clock.Now()), 0))
		}
		l.timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-l.timer.C:
		case <-l.s.feed.wake:
			// Answers and events come by the thousand a second while a backlog is
			// bound: a turn for each would take more than they do.
			l.timer.Reset(calm)
			select {
			case <-ctx.Done():
				return nil
			case <-l.timer.C:
			}
		}
	}
}

func (l *loop) tell() {
	for _, n := range l.desk.notices {
		l.reporter.offer(n)
	}
	l.desk.notices = l.desk.notices[:0]
}

// repair makes the desk anew from what the API server says. Bindings that are under
// way end first, so that nothing is decided about pods that are about to be bound.
func (l *loop) repair(ctx context.Context) error {
	l.s.cfg.Logger.Error("starting afresh", zap.Error(l.desk.broken))
	if time.Since(l.made) < time.Second {
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
	l.writer.drain(ctx)
	l.writer.take()
	return l.renew()
}

// renew makes a desk that knows all that the informers do.
func (l *loop) renew() error {
	cfg, err := l.s.configured()
	if err != nil {
		return err
	}
	d, err := newDesk(cfg)
	if err != nil {
		return err
	}
	l.desk, l.made = d, time.Now()
	l.s.feed.take()
	for k, i := range l.s.informer {
		if i == nil {
			continue
		}
		for _, key := range i.GetStore().ListKeys() {
			l.object(kind(k), key)
		}
	}
	d.stir(time.Time{})
	return nil
}

// take tells the desk what has changed.
func (l *loop) take() {
	dirty := l.s.feed.take()
	for k := range dirty {
		for key := range dirty[k] { // each object on its own, so order cannot matter
			l.object(kind(k), key)
		}
	}
	for _, r := range l.writer.take() {
		if r.err != nil {
			l.s.cfg.Logger.Warn("not done", zap.String("pod", r.key), zap.String("job", string(r.job)), zap.Error(r.err))
		}
		l.s.cfg.count(r)
		if r.kind == orderBind {
			l.desk.bound(r)
		} else {
			l.desk.stopped(r)
		}
	}
}

// object tells the desk how an object is now.
func (l *loop) object(k kind, key string) {
	obj, _, err := l.s.informer[k].GetStore().GetByKey(key)
	if err != nil {
		return // a store in memory has none
	}
	switch k {
	case published:
		l.desk.resource(key, as[*resourcev1.ResourceSlice](obj))
	case classes:
		l.desk.resource(key, as[*resourcev1.DeviceClass](obj))
	case claims:
		l.desk.resource(key, as[*resourcev1.ResourceClaim](obj))
	case pods:
		l.desk.pod(key, as[*corev1.Pod](obj))
	case nodes:
		l.desk.node(key, as[*corev1.Node](obj))
	case groups:
		if namespace, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
			l.desk.group(namespace, name, as[*schedulingv1beta1.PodGroup](obj))
		}
	case queues:
		if l.desk.core != nil {
			l.desk.broken = errQueues
		}
	}
}

// as returns obj as a T, nil where there is none.
func as[T any](obj any) (t T) {
	if obj != nil {
		t = obj.(T)
	}
	return t
}

// errQueues is why the desk is made anew.
var errQueues = errors.New("standalone: the queues changed")

// configured returns the configuration with what the ConfigMap of queues says. Where
// that is wrong it says so and goes on without.
func (s *Scheduler) configured() (Config, error) {
	cfg := s.cfg
	if s.informer[queues] == nil {
		return cfg, nil
	}
	obj, ok, err := s.informer[queues].GetStore().GetByKey(cfg.Queues.Namespace + "/" + cfg.Queues.Name)
	if err != nil || !ok {
		return cfg, err
	}
	data := obj.(*corev1.ConfigMap).Data
	q, err := view.ParseQueues(cfg.Queues.Namespace, cfg.Queues.Name, data)
	if err != nil {
		s.cfg.Logger.Error("queues refused", zap.Error(err))
		return cfg, nil
	}
	if _, says := data[view.QueuesKey]; says {
		cfg.Quota = q.Quota
	}
	if _, says := data[view.SchedulerKey]; says {
		lives := cfg.Scheduler.Lifecycle
		cfg.Scheduler, cfg.Rule = q.Scheduler, cmp.Or(q.Scheduler.Rule, cfg.Rule)
		cfg.Scheduler.Lifecycle = lives
	}
	if cfg.Rule == scheduler.Static && limits(&cfg.Quota) {
		s.cfg.Logger.Error("queues refused", zap.String("reason", "the rule static has its own"))
		cfg.Quota = quota.Config{}
	}
	return cfg, nil
}
