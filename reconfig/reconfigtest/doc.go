// Package reconfigtest checks that a reconfig.Executor keeps its promises, and has a
// Fake that keeps them in memory.
//
// # Usage
//
//	func TestExecutor(t *testing.T) {
//		reconfigtest.TestExecutor(t, func(t *testing.T, b reconfigtest.Bench) reconfigtest.Subject {
//			return newSubject(t, b)
//		})
//	}
//
// # Limits
//
// It calls an executor from one goroutine. It cannot see what an executor does
// between two actions.
package reconfigtest
