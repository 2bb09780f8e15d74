package llm

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/serving"
)

// ReplicaID names a replica of a model.
type ReplicaID string

// RouterConfig configures a Router. The zero value is valid.
type RouterConfig struct {
	BlockTokens int `json:"blockTokens,omitempty"` // tokens of a block; 0 means 16
	CacheBlocks int `json:"cacheBlocks,omitempty"` // blocks of prefixes that a replica is taken to keep; 0 means 4096
	// ImbalanceFraction is how much above the mean the requests of a replica may be, up to 1000; 0 means 0.25.
	ImbalanceFraction float64       `json:"imbalanceFraction,omitempty"`
	DecodeTokens      int           `json:"decodeTokens,omitempty"` // what a request whose prompt is computed weighs, in tokens of a prompt; 0 means 64
	Expire            time.Duration `json:"expire,omitempty"`       // when a request of which nothing was heard counts no longer; 0 means 10 min
}

// withDefaults fills in what zero means.
func (c RouterConfig) withDefaults() RouterConfig {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.BlockTokens, 16}, {&c.CacheBlocks, 4096}, {&c.DecodeTokens, 64}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.ImbalanceFraction == 0 {
		c.ImbalanceFraction = 0.25
	}
	if c.Expire == 0 {
		c.Expire = 10 * time.Minute
	}
	return c
}

// Validate reports all faults of c, joined.
func (c RouterConfig) Validate() error {
	return errors.Join(
		checkInt("config", "BlockTokens", c.BlockTokens, 0, 1<<16),
		checkInt("config", "CacheBlocks", c.CacheBlocks, 0, maxBlocks),
		checkFraction("config", "ImbalanceFraction", c.ImbalanceFraction, 1000),
		checkInt("config", "DecodeTokens", c.DecodeTokens, 0, maxTokens),
		checkSpan("config", "Expire", c.Expire),
	)
}

// Route is where a request goes.
type Route struct {
	Replica ReplicaID      // which replica
	Reused  int            // tokens of the prompt that it is taken to have cached
	Waits   int64          // tokens that it has to compute before, as far as the router knows
	Ticket  serving.Ticket // for Started and Done
}

// target is a replica that requests may go to.
type target struct {
	id       ReplicaID
	prefixes prefixes
	requests int
	tokens   int64 // what they weigh
}

// flight is a request on its way, in a list by when it was last heard of.
type flight struct {
	target     *target // nil in a free place
	gen        uint32
	started    bool
	tokens     int64
	expires    int64
	prev, next int32
}

// Router chooses replicas for requests: where most of the prompt is cached, weighed against what waits there. Not safe for
// concurrent use; the caller serializes calls.
type Router struct {
	config   RouterConfig
	slack    int64     // 1 + ImbalanceFraction, in parts per million
	targets  []*target // by ID
	flights  []flight  // place 0 is the list's ends
	free     int32     // list by next
	requests int
	now      int64
}

// NewRouter returns a Router without replicas.
func NewRouter(c RouterConfig) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Router{config: c, slack: 1_000_000 + int64(math.Round(float64(c.ImbalanceFraction*1e6))), flights: make([]flight, 1)}, nil
}

// locate finds a replica, or where it belongs.
func (r *Router) locate(id ReplicaID) (int, bool) {
	return slices.BinarySearchFunc(r.targets, id, func(t *target, id ReplicaID) int { return strings.Compare(string(t.id), string(id)) })
}

// Add takes a replica in, with nothing cached.
func (r *Router) Add(id ReplicaID) error {
	if id == "" {
		return invalid("add", "id", `""`, "must not be empty")
	}
	k, ok := r.locate(id)
	if ok {
		return fault(lockstep.ErrDuplicate, "add", "id", errtext.Quote(id), "is there already")
	}
	r.targets = slices.Insert(r.targets, k, &target{id: id, prefixes: newPrefixes()})
	return nil
}

// Remove takes a replica out. What was on its way to it counts no longer.
func (r *Router) Remove(id ReplicaID) error {
	k, ok := r.locate(id)
	if !ok {
		return fault(lockstep.ErrUnknown, "remove", "id", errtext.Quote(id), "is not there")
	}
	t := r.targets[k]
	for i := r.flights[0].next; i != 0; {
		next := r.flights[i].next
		if r.flights[i].target == t {
			r.land(i)
		}
		i = next
	}
	r.targets = slices.Delete(r.targets, k, k+1)
	return nil
}

// clock reads now, refuses to go backwards, and forgets what expired.
func (r *Router) clock(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, r.now)
	}
	if err != nil {
		return 0, err
	}
	r.now = ns
	for i := r.flights[0].next; i != 0 && r.flights[i].expires <= ns; i = r.flights[0].next {
		r.land(i)
	}
	return ns, nil
}

// Route chooses a replica for a prompt of so many tokens, whose full blocks have these hashes, and counts the request there
// until Done. It returns false if there is no replica.
func (r *Router) Route(now time.Time, prompt int, blocks []BlockHash) (Route, bool, error) {
	if err := checkInt("route", "prompt", prompt, 1, maxTokens); err != nil {
		return Route{}, false, err
	}
	ns, err := r.clock("route", now)
	if err != nil || len(r.targets) == 0 {
		return Route{}, false, err
	}
	blocks = blocks[:min(len(blocks), (prompt-1)/r.config.BlockTokens, r.config.CacheBlocks)]
	best, found, tail := r.choose(prompt, blocks)
	best.keep(blocks, found, tail, r.config.CacheBlocks)
	out := Route{Replica: best.id, Reused: found * r.config.BlockTokens, Waits: best.tokens}
	i := r.take(flight{target: best, tokens: int64(prompt - out.Reused), expires: instant.Add(ns, r.config.Expire)})
	best.requests++
	best.tokens += r.flights[i].tokens
	r.requests++
	out.Ticket = serving.Ticket(uint64(r.flights[i].gen)<<32 | uint64(i))
	return out, true, nil
}

// choose returns the replica with the fewest tokens to compute before the prompt is done, those of the prompt among them; of
// equal ones that with the fewest requests, then the lowest ID. One with too many requests is passed over.
func (r *Router) choose(prompt int, blocks []BlockHash) (best *target, found int, tail int32) {
	// Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018: not above (1+ε) times the mean,
	// rounded up; so there is always one that is not.
	of := int64(len(r.targets)) * 1_000_000
	most := int((int64(r.requests+1)*r.slack + of - 1) / of)
	cost := int64(0)
	for _, t := range r.targets {
		if t.requests >= most {
			continue
		}
		n, end := t.prefixes.find(blocks)
		c := t.tokens + int64(prompt-n*r.config.BlockTokens)
		if best == nil || c < cost || c == cost && t.requests < best.requests {
			best, found, tail, cost = t, n, end, c
		}
	}
	return best, found, tail
}

// keep notes that t has blocks cached from now on, of which it had the path of found to tail, and forgets what it has not
// used the longest beyond most.
func (t *target) keep(blocks []BlockHash, found int, tail int32, most int) {
	t.prefixes.acquire(tail)
	for _, h := range blocks[found:] {
		i, _, ok := t.prefixes.insert(h, tail)
		if !ok {
			break // no chain
		}
		tail = i
	}
	t.prefixes.release(tail)
	for t.prefixes.count > most {
		t.prefixes.evict()
	}
}

// Started tells that the prompt of a request is computed. It returns false if the request is not on its way any more.
func (r *Router) Started(now time.Time, t serving.Ticket) (bool, error) {
	i, ns, err := r.find("started", now, t)
	if i == 0 || err != nil {
		return false, err
	}
	f := &r.flights[i]
	if !f.started {
		f.started = true
		f.target.tokens += int64(r.config.DecodeTokens) - f.tokens
		f.tokens = int64(r.config.DecodeTokens)
	}
	r.unlink(i)
	f.expires = instant.Add(ns, r.config.Expire)
	r.link(i)
	return true, nil
}

// Done tells that a request is over, in whatever way. It returns false if it is not on its way any more: told before,
// expired, or its replica removed.
func (r *Router) Done(now time.Time, t serving.Ticket) (bool, error) {
	i, _, err := r.find("done", now, t)
	if i == 0 || err != nil {
		return false, err
	}
	r.land(i)
	return true, nil
}

// Requests is how many requests are on their way to a replica at now; false if it is not there, or now is before a time
// already seen.
func (r *Router) Requests(now time.Time, id ReplicaID) (int, bool) {
	k, ok := r.locate(id)
	if !ok {
		return 0, false
	}
	if _, err := r.clock("requests", now); err != nil {
		return 0, false
	}
	return r.targets[k].requests, true
}

// find returns the place of a flight, 0 if it is over.
func (r *Router) find(op string, now time.Time, t serving.Ticket) (int32, int64, error) {
	ns, err := r.clock(op, now)
	if err != nil {
		return 0, 0, err
	}
	i := uint64(t) & (1<<32 - 1)
	if i >= uint64(len(r.flights)) || r.flights[i].target == nil || r.flights[i].gen != uint32(t>>32) {
		return 0, ns, nil
	}
	return int32(i), ns, nil
}

// take keeps f in a place of its own.
func (r *Router) take(f flight) int32 {
	i := r.free
	if i != 0 {
		r.free = r.flights[i].next
	} else {
		r.flights = append(r.flights, flight{})
		i = int32(len(r.flights) - 1)
	}
	f.gen = r.flights[i].gen + 1
	r.flights[i] = f
	r.link(i)
	return i
}

// land forgets flight i.
func (r *Router) land(i int32) {
	f := &r.flights[i]
	f.target.requests--
	f.target.tokens -= f.tokens
	r.requests--
	r.unlink(i)
	r.flights[i] = flight{gen: f.gen, next: r.free}
	r.free = i
}

func (r *Router) link(i int32) {
	last := r.flights[0].prev
	r.flights[i].prev, r.flights[i].next = last, 0
	r.flights[last].next, r.flights[0].prev = i, i
}

func (r *Router) unlink(i int32) {
	f := &r.flights[i]
	r.flights[f.prev].next, r.flights[f.next].prev = f.next, f.prev
}
