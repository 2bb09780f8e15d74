// Package movestest checks that a moves.Executor keeps its promises, and has a Fake
// that keeps them in memory.
//
// # Usage
//
//	func TestExecutor(t *testing.T) {
//		movestest.TestExecutor(t, func(t *testing.T, b movestest.Bench) movestest.Subject {
//			return newSubject(t, b)
//		})
//	}
//
// # Limits
//
// It calls an executor from one goroutine. It cannot see what an executor does
// between two actions.
package movestest
