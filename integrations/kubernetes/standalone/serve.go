package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
)

// stuck is how long the loop may take for one turn before the process counts as
// not healthy.
const stuck = time.Minute

// serve starts the endpoints, where there is an address for them. Stop ends them.
func (s *Scheduler) serve(all *sync.WaitGroup) (stop func(), err error) {
	if s.cfg.Listen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("standalone: %w", err)
	}
	at := l.Addr().String()
	s.listens.Store(&at)
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second}
	all.Go(func() { _ = server.Serve(l) }) // ends with Close
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}, nil
}

// Addr returns where the endpoints are, with the port where Config.Listen leaves
// that open; "" before Run, or where there are none.
func (s *Scheduler) Addr() string {
	if at := s.listens.Load(); at != nil {
		return *at
	}
	return ""
}

// Leading reports whether this process is the one that acts.
func (s *Scheduler) Leading() bool {
	return s.leading.Load() || s.cfg.Election.Disable && s.synced.Load()
}

// Handler returns the endpoints: /healthz is 200 while the loop goes round,
// /readyz once everything was listed or while somebody else leads, and
// /metrics is Config.Metrics.
func (s *Scheduler) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.healthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.ready()) })
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.cfg.Metrics)
	}
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Scheduler) healthy() error {
	if beat := s.beat.Load(); s.Leading() && beat != 0 && time.Since(s.start)-time.Duration(beat) > stuck {
		return errors.New("standalone: no decision for a minute")
	}
	return nil
}

func (s *Scheduler) ready() error {
	for _, i := range s.informer {
		if i != nil && !i.HasSynced() {
			return errors.New("standalone: not everything is listed yet")
		}
	}
	if s.informer[pods] == nil {
		return errors.New("standalone: not started")
	}
	return nil
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// onlyNamed has informers see one object.
func onlyNamed(name string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	})
}
