package leasetest_test

import (
	"testing"

	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lease/leasetest"
)

func TestMemoryIsAStore(t *testing.T) {
	leasetest.TestStore(t, func(*testing.T) lease.Store { return &lease.Memory{} })
}

func ExampleTestStore() {
	// In a test of the implementation:
	_ = func(t *testing.T) {
		leasetest.TestStore(t, func(*testing.T) lease.Store { return &lease.Memory{} })
	}
	// Output:
}
