package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

// notice is something that people are to be told about a pod.
type notice struct {
	key       string // its namespace and name
	uid       types.UID
	warning   bool
	reason    string
	action    string
	text      string
	silent    bool                 // no event, only the condition
	condition *corev1.PodCondition // nil means none
}

// look once a second at who waits, and at no more gangs each time than can be told.
const reportEvery = time.Second

// report notes for gangs that wait why they do: one event for each, and the
// condition of its pods, when the cause is another than the last that was told.
func (d *desk) report() {
	if d.cfg.Reports < 0 || d.now.Before(d.reported.Add(reportEvery)) {
		return
	}
	d.reported = d.now
	var waiting []*job
	for _, id := range slices.Sorted(maps.Keys(d.jobs)) {
		if j := d.jobs[id]; d.waits(j) && !d.now.Before(j.since.Add(d.cfg.Patience)) && !d.now.Before(j.again) {
			waiting = append(waiting, j)
		}
	}
	// Who was looked at least recently goes first, so that everybody has a turn.
	slices.SortStableFunc(waiting, func(a, b *job) int { return a.again.Compare(b.again) })
	budget := d.cfg.Reports
	for _, j := range waiting {
		if budget <= 0 {
			break
		}
		j.again = d.now.Add(d.cfg.Repeat)
		st, ok := d.asm.State(j.id)
		if !ok {
			continue
		}
		budget -= d.tell(j, st)
	}
}

func (d *desk) waits(j *job) bool { return j.phase == queued || j.phase == idle }

// nextReport returns when somebody is to be told why; false means nobody.
func (d *desk) nextReport() (at time.Time, ok bool) {
	if d.cfg.Reports < 0 {
		return at, false
	}
	for _, j := range d.jobs { // a minimum, so order cannot matter
		if !d.waits(j) {
			continue
		}
		t := j.since.Add(d.cfg.Patience)
		if j.again.After(t) {
			t = j.again
		}
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if ok && at.Before(d.reported.Add(reportEvery)) {
		at = d.reported.Add(reportEvery)
	}
	return at, ok
}

// tell tells why a gang waits, if that is news. It returns how many writes it takes.
func (d *desk) tell(j *job, st *view.State) int {
	var why *lockstep.Explanation
	if j.phase == queued {
		if e, ok := d.core.Explain(j.id); ok {
			why = &e
		}
	} else if st.Phase == view.Over || st.Phase == view.Placed {
		return 0
	}
	// The condition says more than the cause, such as how much is free; it is
	// written when the cause changes, not whenever it does.
	cause := st.Detail
	if why != nil {
		cause = view.Message(why)
	}
	if cause == j.told {
		return 0
	}
	j.told = cause
	c := view.Condition(st, why)
	d.cfg.Logger.Info("waits", zap.String("job", string(j.id)), zap.String("why", c.Message))
	return d.notify(st, c, cause)
}

// refused tells at once that a gang is not taken.
func (d *desk) refused(j *job, st *view.State, err error) {
	d.cfg.Logger.Warn("gang refused", zap.String("job", string(j.id)), zap.Error(err))
	if st == nil || d.cfg.Reports < 0 || j.told == err.Error() {
		return
	}
	j.told = err.Error()
	d.notify(st, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError, Message: err.Error()}, err.Error())
}

// notify has the pods of a gang that are not bound told a condition, and the first
// of them an event.
func (d *desk) notify(st *view.State, c corev1.PodCondition, text string) int {
	const most = 1000 // bytes; an event's note may have 1024
	text = strings.ToValidUTF8(text[:min(len(text), most)], "")
	n := 0
	add := func(p *corev1.Pod) {
		if p == nil || p.Spec.NodeName != "" {
			return
		}
		d.notices = append(d.notices, notice{
			key: p.Namespace + "/" + p.Name, uid: p.UID, warning: true, reason: "FailedScheduling", action: "Scheduling",
			text: text, silent: n > 0, condition: &c,
		})
		n++
	}
	for i := range st.Pods {
		add(d.pods[podKey(&st.Pods[i])])
	}
	for _, f := range st.Faults {
		if f.Kind == "Pod" && n == 0 {
			add(d.pods[f.Namespace+"/"+f.Name])
		}
	}
	return n + 1
}

// reporter writes notices, one after another and no more a second than it may. It
// is apart from the writer, so that no binding ever waits for one.
type reporter struct {
	client  kubernetes.Interface
	fence   *fence
	name    string // who reports
	process string
	every   time.Duration
	now     func() time.Time
	in      chan notice
	log     *zap.Logger
}

// offer takes a notice, or drops it where too many wait already: what is still so
// will be told again.
func (r *reporter) offer(n notice) {
	select {
	case r.in <- n:
	default:
	}
}

// run writes until ctx ends.
func (r *reporter) run(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-r.in:
			for _, write := range r.writes(n) {
				err := r.fence.guard(ctx, callLimit, write)
				if err != nil && !stale(err) && ctx.Err() == nil {
					r.log.Warn("report", zap.String("pod", n.key), zap.Error(err))
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		}
	}
}

// stale reports whether there is nobody to tell any more, or it was said already. A
// patch for a pod that has another's name is invalid, since it names the UID.
func stale(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

func (r *reporter) writes(n notice) (list []func(context.Context) error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(n.key)
	if err != nil {
		return nil
	}
	if !n.silent {
		e := r.event(n, namespace, name)
		list = append(list, func(ctx context.Context) error {
			_, err := r.client.EventsV1().Events(namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		})
	}
	if n.condition != nil {
		list = append(list, func(ctx context.Context) error {
			return patchCondition(ctx, r.client, namespace, name, n.uid, *n.condition, r.now())
		})
	}
	return list
}

// event returns the event for a notice. Its name is made of what it says, so that
// the same thing said twice within an hour, also by another process, is one event.
func (r *reporter) event(n notice, namespace, name string) *eventsv1.Event {
	now := r.now()
	h := fnv.New64a()
	fmt.Fprint(h, n.uid, n.reason, n.text, now.Truncate(time.Hour).Unix()) // never fails
	kind := corev1.EventTypeNormal
	if n.warning {
		kind = corev1.EventTypeWarning
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%.200s.%016x", name, h.Sum64())},
		EventTime:  metav1.NewMicroTime(now), ReportingController: r.name, ReportingInstance: r.process,
		Action: n.action, Reason: n.reason, Type: kind, Note: n.text,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: n.uid},
	}
}

// patchCondition sets one condition of a pod, if it is still that pod.
func patchCondition(ctx context.Context, client kubernetes.Interface, namespace, name string, uid types.UID, c corev1.PodCondition, now time.Time) error {
	c.LastTransitionTime = metav1.NewTime(now)
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
