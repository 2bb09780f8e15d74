package serving

import "time"

// Latency says how long a batch takes on one replica. It does not fall as the
// batch grows.
type Latency interface {
	// Batch returns the time of a batch of n, n ≥ 1.
	Batch(n int) time.Duration
}

// Linear is a Latency of a fixed part and a part for each request.
type Linear struct {
	Base time.Duration `json:"base"` // Base is the time of a batch of any size; not negative.
	Each time.Duration `json:"each"` // Each is the time that every request adds; not negative.
}

// Batch returns Base + n × Each.
func (l Linear) Batch(n int) time.Duration { return l.Base + time.Duration(n)*l.Each }
