// Package checkpointtest checks that a checkpoint.Driver and a
// checkpoint.Ledger keep their promises, and has one of each in memory that can
// be made to fail.
//
// # Usage
//
//	func TestDriver(t *testing.T) {
//		checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
//			return checkpointtest.Subject{Driver: d, Target: startProcess(t), Kill: kill}
//		})
//	}
//
//	func TestLedger(t *testing.T) {
//		checkpointtest.TestLedger(t, func(t *testing.T) checkpoint.Ledger { return open(t) })
//	}
//
// A test of what uses drivers plans faults by the number of the call:
//
//	f := checkpointtest.NewFake()
//	f.Add(target)
//	f.Plan(2, checkpointtest.Fault{Kind: checkpoint.ErrMemory, Then: checkpoint.Failed})
//
// # Concurrency
//
// Fake and Ledger may be used from many goroutines.
//
// # Limits
//
// TestDriver goes by what Probe says can be done: of the rest it only checks
// that it is refused and changes nothing. It never makes a driver hang, since
// only the driver's own tests can.
package checkpointtest
