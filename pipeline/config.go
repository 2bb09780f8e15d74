package pipeline

import (
	"errors"
	"strconv"
)

// maxOps is how many ops a Line may have, so that indices fit in 32 bits everywhere.
const maxOps = 1 << 24

// Config configures a Line. Stages and Micros have no default that could be right; everything else may be zero.
type Config struct {
	Schedule Schedule // the order of ops where Orders is nil; zero is OneFOneB
	Stages   int      // pipeline stages, at least 1; 0 with Orders means as many as they have rows for
	Micros   int      // micro-batches of one iteration, of all replicas, at least 1; 0 with Split means their sum
	Chunks   int      // model chunks a stage, for Interleaved, which with one is OneFOneB; 0 means 1, and with Orders as many as they name
	// Orders are the ops of each stage in the order it runs them, in place of a Schedule; New copies them. A stage may be
	// empty. A chunk of a stage that no op names holds no layers: micro-batches pass it by.
	Orders [][]Op
	// Replicas is how many replicas of the pipeline there are; 0 means 1. Stage s of replica r is number r*Stages+s, in
	// Orders and wherever a stage is asked for. Every op of a stage is in the order of one of its replicas, and all ops
	// of a micro-batch in one chunk of it are in the same one: a replica may so run micro-batches of another one.
	Replicas int
	// Split is how many micro-batches each replica has in a Schedule; those of replica 0 come first. Nil means equal
	// shares, the first ones one larger where that does not come out.
	Split []int
}

// withDefaults fills in what zero means.
func (c Config) withDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Micros == 0 {
		for _, n := range c.Split {
			c.Micros += min(max(n, 0), maxOps)
		}
	}
	if c.Orders != nil && c.Stages == 0 && c.Replicas > 0 {
		c.Stages = len(c.Orders) / c.Replicas
	}
	if c.Orders != nil && c.Chunks == 0 {
		for _, ops := range c.Orders {
			for _, op := range ops {
				c.Chunks = max(c.Chunks, min(int(op.Chunk), maxOps)+1)
			}
		}
	}
	if c.Chunks == 0 {
		c.Chunks = 1
	}
	return c
}

// share returns the first of the micro-batches of a replica, and how many it has.
func (c *Config) share(replica int) (first, n int) {
	if c.Split == nil {
		base, more := c.Micros/c.Replicas, c.Micros%c.Replicas
		first, n = replica*base+min(replica, more), base
		if replica < more {
			n++
		}
		return first, n
	}
	for _, n := range c.Split[:replica] {
		first += n
	}
	return first, c.Split[replica]
}

// Validate reports all faults of c's fields, joined. What is wrong with the ops of Orders, New reports.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"Stages", c.Stages}, {"Micros", c.Micros}, {"Chunks", c.Chunks}, {"Replicas", c.Replicas}} {
		if f.value < 1 || f.value > maxOps {
			errs = append(errs, badField(f.name, f.value, "must be from 1 to "+strconv.Itoa(maxOps)))
		}
	}
	if c.Schedule > ZBH2 {
		errs = append(errs, badField("Schedule", int(c.Schedule), "is not a schedule"))
	}
	if len(errs) == 0 { // what follows multiplies them
		errs = append(c.validateSize(), c.validateSplit()...)
	}
	return errors.Join(errs...)
}

// badField is the error about a number in a Config.
func badField(name string, value int, reason string) error {
	return invalid("config", name, strconv.Itoa(value), reason)
}

// validateSize reports too many ops, and orders and chunks that do not go with the rest.
func (c *Config) validateSize() (errs []error) {
	rows, virtual := int64(c.Stages)*int64(c.Replicas), int64(c.Stages)*int64(c.Chunks)
	switch {
	case rows > maxOps || virtual > maxOps/hopKinds || virtual*int64(c.Micros) > maxOps/kinds || tooMany(c.Orders):
		errs = append(errs, badField("Micros", c.Micros, "makes more than "+strconv.Itoa(maxOps)+" ops with that many stages, chunks and orders"))
	case c.Orders != nil && int64(len(c.Orders)) != rows:
		errs = append(errs, badField("Orders", len(c.Orders), "must have one row for each stage and replica"))
	case c.Orders == nil && c.Schedule != Interleaved && c.Chunks > 1:
		errs = append(errs, badField("Chunks", c.Chunks, "only the interleaved schedule has more than one"))
	}
	return errs
}

// tooMany says whether orders have more than maxOps ops.
func tooMany(orders [][]Op) bool {
	n := 0
	for _, ops := range orders {
		if len(ops) > maxOps-n {
			return true
		}
		n += len(ops)
	}
	return false
}

// validateSplit reports the faults of the replicas' shares.
func (c *Config) validateSplit() (errs []error) {
	if c.Split != nil && len(c.Split) != c.Replicas {
		return []error{badField("Split", len(c.Split), "must have one entry for each replica")}
	}
	sum := int64(0)
	for i, n := range c.Split {
		if n < 0 || n > maxOps {
			errs = append(errs, badField("Split["+strconv.Itoa(i)+"]", n, "must be from 0 to "+strconv.Itoa(maxOps)))
		}
		sum += int64(n)
	}
	if c.Split != nil && len(errs) == 0 && sum != int64(c.Micros) {
		errs = append(errs, badField("Split", c.Micros, "must add up to Micros"))
	}
	if len(errs) > 0 || c.Orders != nil || c.Chunks < 2 {
		return errs
	}
	for replica := range c.Replicas {
		if _, n := c.share(replica); n%c.Stages != 0 {
			return append(errs, badField("Micros", n, "those of a replica must be a multiple of Stages in an interleaved schedule"))
		}
	}
	return errs
}
