// Package leasetest checks that a lease.Store keeps its promises.
//
// # Usage
//
//	func TestStore(t *testing.T) {
//		leasetest.TestStore(t, func(t *testing.T) lease.Store { return newStore(t) })
//	}
//
// # Limits
//
// It calls a store from one goroutine, as two schedulers that take turns. A
// store that is used from many has to be tested for races besides.
package leasetest
