package lockstep

import (
	"sync"
	"time"
)

// Clock tells the time to drivers. Cores take the time as an argument instead.
type Clock interface {
	// Now returns the present time; it may go backwards.
	Now() time.Time
}

// Monotone is a Clock that never goes backwards: where its source does, it
// repeats the latest time it gave. It is safe for concurrent use. The zero
// Monotone reads the system clock.
type Monotone struct {
	Source func() time.Time // Source is what it reads; nil means time.Now. It is called under a lock and must not call Now. Set it before the first call.

	mu   sync.Mutex
	last time.Time
}

// Now returns the later of the source's time and the latest time given before,
// in UTC and without a monotonic reading, so that a replay can store it.
func (c *Monotone) Now() time.Time {
	source := c.Source
	if source == nil {
		source = time.Now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := source().Round(0).UTC(); now.After(c.last) {
		c.last = now
	}
	return c.last
}

// Nanos returns t as nanoseconds since 1970, which is how cores keep time.
// It refuses the times that int64 cannot hold, which are those before September
// 1677 and after April 2262; so it refuses the zero time.Time.
func Nanos(t time.Time) (int64, error) {
	ns := t.UnixNano()
	if !time.Unix(0, ns).Equal(t) {
		return 0, invalid("time", "time", t.String(), "must lie between 1677-09-21 and 2262-04-11")
	}
	return ns, nil
}

// FromNanos returns the time of ns nanoseconds since 1970, in UTC.
func FromNanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }
