package cooperative

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// Bounds of what a Host waits for.
const (
	greetTime = 2 * time.Second        // for the first line
	takeTime  = 250 * time.Millisecond // for the connection before to be seen to end
	sendTime  = time.Second            // a hook that takes no message for so long counts as gone
	slack     = 100 * time.Millisecond // how long after its deadline an answer may be under way
	retryTime = 20 * time.Millisecond  // after Accept has failed, such as for want of descriptors
	lookTime  = 500 * time.Millisecond // between two looks whether the hooks' processes are there
	greeters  = 16                     // connections that may be at their first line
)

// Config says which ranks a Host serves. Socket and Ranks are required.
type Config struct {
	Socket     string              `json:"socket"`               // Socket is the absolute path of the socket, at most 107 bytes. Jobs find it in EnvSocket.
	Ranks      []checkpoint.Target `json:"ranks"`                // Ranks are those of the job on this node, each Rank once. Where PID is not 0 the hook has to be that process or one of its tree; 0 admits any process of UIDs.
	UIDs       []int               `json:"uids,omitempty"`       // UIDs are the users whose processes may be hooks; none means that of this process. With another user's the socket is one that all can connect to, and those of no user among them are refused at once.
	Hold       time.Duration       `json:"hold,omitempty"`       // Hold is for how long a hook that hears nothing stands still before it goes on by itself; 0 means 30s. The Host tells it four times as often.
	SkipDigest bool                `json:"skipDigest,omitempty"` // SkipDigest takes a hook's word for the sum of what it saved, and checks only the length; by default it is read again.

	Notice func(rank, signal int) `json:"-"` // Notice is told that a rank was sent a signal and asks to be saved; nil means nobody. It must not block or call back.
	Fault  func(err error)        `json:"-"` // Fault is told of hooks that were refused or lost, and why; nil means nobody. It must not block or call back.
}

// Host speaks with the hooks of a job: it is a checkpoint.Driver, and has the ranks save.
// Make one with New. It is safe for concurrent use.
type Host struct {
	cfg    Config
	mu     sync.Mutex
	serial uint64
	ranks  []*rank // sorted by their number
	ran    bool
}

var (
	_ checkpoint.Driver    = (*Host)(nil)
	_ checkpoint.Inspector = (*Host)(nil)
	_ checkpoint.Stepper   = (*Host)(nil)
)

// rank is what a Host knows of one. Host.mu guards it.
type rank struct {
	target  checkpoint.Target // as configured
	peer    checkpoint.Target // the process that is or was the hook; PID 0 before there was one
	owner   *coop.Conn        // the connection that has the place of the hook, from before it was greeted; nil for none
	conn    *coop.Conn        // owner once it was greeted, so that nothing is said to it before; nil while there is no hook
	turn    chan struct{}     // held by a call that changes something
	held    bool              // it has said that it stands still
	wanted  bool              // it is being asked to
	flight  uint64            // the save that nobody waits for any more; 0 for none
	waits   map[uint64]*wait
	changed chan struct{} // closed when a hook comes or goes
}

// wait is a request that has not been answered.
type wait struct {
	answer   chan answer // holds one
	progress func(done, total lockstep.Bytes)
	lost     chan struct{} // closed when the hook goes
}

// New returns a Host, or all faults of cfg.
func New(cfg Config) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Hold == 0 {
		cfg.Hold = 30 * time.Second
	}
	if len(cfg.UIDs) == 0 {
		cfg.UIDs = []int{os.Geteuid()}
	}
	cfg.Ranks, cfg.UIDs = slices.Clone(cfg.Ranks), slices.Clone(cfg.UIDs)
	slices.SortFunc(cfg.Ranks, func(a, b checkpoint.Target) int { return a.Rank - b.Rank })
	h := &Host{cfg: cfg}
	for _, t := range cfg.Ranks {
		h.ranks = append(h.ranks, &rank{target: t, turn: make(chan struct{}, 1), waits: make(map[uint64]*wait), changed: make(chan struct{})})
	}
	return h, nil
}

// Validate says all that is wrong with c, or nil.
func (c Config) Validate() error {
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if len(c.Socket) > 107 || !filepath.IsAbs(c.Socket) {
		bad("Socket", c.Socket, "want an absolute path of at most 107 bytes")
	}
	if len(c.Ranks) == 0 || len(c.Ranks) > checkpoint.MaxRanks {
		bad("Ranks", strconv.Itoa(len(c.Ranks)), "want 1 to "+strconv.Itoa(checkpoint.MaxRanks))
	}
	seen := make(map[int]bool)
	for i, t := range c.Ranks {
		field := "Ranks[" + strconv.Itoa(i) + "]"
		if t.Rank < 0 || t.Rank >= checkpoint.MaxRanks || seen[t.Rank] {
			bad(field+".Rank", strconv.Itoa(t.Rank), "want each rank once, from 0")
		}
		seen[t.Rank] = true
		if t.PID < 0 || t.PID == 1 || t.PID == 0 && t.Start != 0 {
			bad(field+".PID", strconv.Itoa(t.PID), "want a process, or 0 for any")
		}
	}
	for _, uid := range c.UIDs {
		if uid < 0 {
			bad("UIDs", strconv.Itoa(uid), "want 0 or more")
		}
	}
	if c.Hold < 0 || c.Hold > lockstep.MaxWalltime {
		bad("Hold", c.Hold.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	return errors.Join(list...)
}

// Run makes the socket and serves hooks until ctx ends, which is no error. It runs once.
// When it returns no goroutine and no connection is left: hooks that stand still see that,
// and go on.
func (h *Host) Run(ctx context.Context) error {
	h.mu.Lock()
	ran := h.ran
	h.ran = true
	h.mu.Unlock()
	if ran {
		return fault(lockstep.ErrConflict, "run", "", "", "it has run already")
	}
	l, err := h.listen()
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { h.accept(inner, l, &wg) })
	wg.Go(func() { h.renew(inner) })
	wg.Go(func() { h.watch(inner) })
	<-ctx.Done()
	err = l.Close()
	wg.Wait()
	return err
}

// listen makes the socket, for other users to connect to as well if the hook may be one's: the kernel tells who it is.
func (h *Host) listen() (*coop.Listener, error) {
	l, err := coop.Listen(h.cfg.Socket)
	if err != nil || !slices.ContainsFunc(h.cfg.UIDs, func(uid int) bool { return uid != os.Geteuid() }) {
		return l, err
	}
	if err := os.Chmod(h.cfg.Socket, 0o666); err != nil {
		return nil, errors.Join(fault(checkpoint.ErrPermission, "run", "Socket", h.cfg.Socket, err.Error()), l.Close())
	}
	return l, nil
}

// accept greets those who connect, a few at a time.
func (h *Host) accept(ctx context.Context, l *coop.Listener, wg *sync.WaitGroup) {
	slots := make(chan struct{}, greeters)
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = c.Close()
			}
			return
		case err != nil:
			h.report(err)
			pause(ctx, retryTime)
			continue
		}
		if !slices.Contains(h.cfg.UIDs, c.Peer().UID) { // who may hold no place among those that are greeted
			h.report(fault(ErrRefused, "accept", "uid", strconv.Itoa(c.Peer().UID), "is none of the job's"))
			_ = c.Send(coop.Message{Verb: "refuse", Args: []string{"user"}}, retryTime)
			_ = c.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			_ = c.Close()
			return
		}
		wg.Go(func() { h.serve(ctx, c, func() { <-slots }) })
	}
}

// serve greets one who has connected and hears it out.
func (h *Host) serve(ctx context.Context, c *coop.Conn, greeted func()) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var r *rank
	_, err := c.Greet(service, greetTime, func(name string, p coop.Peer) (why string) {
		r, why = h.admit(ctx, name, p, c)
		return why
	})
	greeted()
	if err == nil {
		err = h.hear(r, c)
	}
	_ = c.Close()
	if r != nil {
		h.lose(r, c)
	}
	if ctx.Err() == nil {
		h.report(err)
	}
}

// admit says which rank a hook is, or why it is not taken. One that is taken has its place.
func (h *Host) admit(ctx context.Context, name string, p coop.Peer, c *coop.Conn) (*rank, string) {
	n, err := strconv.Atoi(name)
	at := slices.IndexFunc(h.ranks, func(r *rank) bool { return r.target.Rank == n })
	if err != nil || at < 0 || strconv.Itoa(n) != name {
		return nil, "name"
	}
	r := h.ranks[at]
	id, err := proctree.Identify(p.PID)
	if err != nil || !within(ctx, r.target, id) {
		return nil, "process"
	}
	deadline := time.NewTimer(takeTime)
	defer deadline.Stop()
	for {
		h.mu.Lock()
		if r.owner == nil {
			r.owner = c
			r.peer = checkpoint.Target{PID: id.PID, Start: id.Start, Job: r.target.Job, Rank: n}
			h.mu.Unlock()
			return r, ""
		}
		evictLocked(r)
		changed := r.changed
		h.mu.Unlock()
		select { // it may have connected anew, before its old connection was seen to end
		case <-changed:
		case <-deadline.C:
			return nil, "taken"
		case <-ctx.Done():
			return nil, "taken"
		}
	}
}

// within says whether a process is the target or below it.
func within(ctx context.Context, t checkpoint.Target, id proctree.Identity) bool {
	want := proctree.Identity{PID: t.PID, Start: t.Start}
	if t.PID == 0 || want == id {
		return true
	}
	tree, err := proctree.Adopt(t.PID, proctree.Config{})
	if err != nil {
		return false
	}
	in, err := tree.Contains(ctx, id.PID)
	_ = tree.Close() // it was adopted, so there is nothing to reap or remove
	return err == nil && in && tree.Root() == want
}

// hear takes in what a hook says until it says no more.
func (h *Host) hear(r *rank, c *coop.Conn) error {
	h.mu.Lock()
	r.conn, r.held, r.wanted, r.flight = c, false, false, 0
	close(r.changed)
	r.changed = make(chan struct{})
	h.mu.Unlock()
	for {
		m, err := c.Receive()
		if err != nil {
			return err
		}
		a, ok := parseAnswer(m)
		if !ok {
			return fault(ErrProtocol, "hear", m.Verb, "", "is malformed")
		}
		if a.verb == "notice" {
			if h.cfg.Notice != nil {
				h.cfg.Notice(r.target.Rank, int(min(a.serial, 1<<16))) // no system has so many signals
			}
			continue
		}
		h.take(r, a)
	}
}

// take takes in an answer. What it says of the hook holds, whether or not somebody waits
// for it.
func (h *Host) take(r *rank, a answer) {
	h.mu.Lock()
	w := r.waits[a.serial]
	switch a.verb {
	case "":
		w = nil
	case "ready":
		r.held = true
	case "resumed", "leaving":
		r.held = false
	}
	if a.serial != 0 && a.serial == r.flight && a.verb != "progress" {
		r.flight = 0
	}
	if w != nil && a.verb != "progress" {
		delete(r.waits, a.serial) // the first answer counts
		w.answer <- a
	}
	h.mu.Unlock()
	if w != nil && a.verb == "progress" && w.progress != nil {
		w.progress(lockstep.Bytes(a.list[0]), lockstep.Bytes(a.list[1]))
	}
}

// lose notes that a hook has gone. It goes on by itself if its process lives.
func (h *Host) lose(r *rank, c *coop.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.owner != c {
		return
	}
	r.owner, r.conn, r.held, r.wanted, r.flight = nil, nil, false, false, 0
	for serial, w := range r.waits { // all are told, in any order
		close(w.lost)
		delete(r.waits, serial)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// renew tells those who stand still that their host is there.
func (h *Host) renew(ctx context.Context) {
	every := time.NewTicker(max(h.cfg.Hold/4, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		h.mu.Lock()
		now, err := coop.Monotonic()
		for _, r := range h.ranks {
			if err == nil && r.conn != nil && (r.held || r.wanted) {
				h.sendLocked(r, coop.Numbers("hold", 0, uint64(now+h.cfg.Hold)))
			}
		}
		h.mu.Unlock()
	}
}

// watch gives up hooks whose process has ended. Mostly the kernel ends the connection, but
// not while a child that was forked, such as a data loader, lives on with a copy of it.
func (h *Host) watch(ctx context.Context) {
	every := time.NewTicker(lookTime)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		h.mu.Lock()
		for _, r := range h.ranks {
			evictLocked(r)
		}
		h.mu.Unlock()
	}
}

// evictLocked ends the connection of a hook whose process has ended, behind its last word.
func evictLocked(r *rank) {
	if r.owner != nil && !alive(r.peer) {
		r.owner.Drain()
	}
}

// sendLocked sends a message to a hook that is there, and gives up one that takes none. A
// hook reads at each step; what it has not read then fits the buffer of a socket many times.
func (h *Host) sendLocked(r *rank, m coop.Message) {
	if err := r.conn.Send(m, sendTime); err != nil {
		_ = r.conn.Close() // who hears it notices
	}
}

func (h *Host) report(err error) {
	if h.cfg.Fault != nil && err != nil {
		h.cfg.Fault(err)
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
