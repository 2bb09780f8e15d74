// Package assign solves the assignment problem: which row takes which column so that the sum of whole costs is least.
//
// # Model
//
// Costs are a rectangle of int64. Each row takes at most one column, each column goes to at most one row, and as many
// pairs are made as there can be; of all ways to do so, one with the least cost. A pair may be [Forbidden].
//
// The answer proves itself by potentials: U[i] + V[j] is at most the cost of every pair, and equal to it for those that
// are made; potentials of what is left over are the largest of their side, at most 0. [Problem.Verify] checks that with
// no other arithmetic than sums.
//
// # Usage
//
//	s, err := assign.Solve(assign.Problem{Rows: 2, Cols: 3, Cost: []int64{4, 1, 3, 2, 0, 5}})
//	col := s.ColOf[0] // -1 if row 0 has none
//
// # Method
//
// Rows are entered one after the other along the shortest augmenting path under reduced costs (Jonker and Volgenant,
// Computing 38, 1987, without their heuristics for a start; the method is Kuhn's and Munkres'). A forbidden pair costs
// more than everything else together.
//
// # Order of decision
//
// Rows enter by index; among columns equally near the first is taken. The same costs give the same pairs.
//
// # Errors
//
// ErrInvalid for a size that does not match, or costs so large that sums of them could overflow: with n the longer side,
// 2n²·max|cost| has to stay below 2^61.
//
// # Concurrency
//
// Solve keeps nothing; safe for concurrent use.
//
// # Cost
//
// O(r²·c) time for the shorter side r and the longer c, and memory for one copy of the costs.
//
// # Limits
//
// No capacities above one: give a column as often as it may be taken.
package assign
