// Package lp solves small linear programmes: a revised simplex with bounded variables, for the mixes of device classes
// that package policy/hetero asks for.
//
// # Model
//
// A [Problem] is to minimise Cost·x where each row is at most, at least or equal to its RHS and each x lies between its
// bounds, which may be infinite. Solve returns one of four [Status] and with it what proves it:
//
//	Optimal     X, the price Y of each row and the reduced cost of each column
//	Infeasible  Y, prices at which the rows cannot be met by any x within bounds (Farkas)
//	Unbounded   Ray, a direction along which the cost falls for ever, from the feasible X
//	Limit       nothing: too many steps, or numbers that lost all their digits
//
// The price of a row is what the optimum changes by when the RHS grows by one: at most 0 for a row of kind AtMost, at
// least 0 for AtLeast. Cost = Y·A + Reduced, and Reduced is at least 0 at a lower bound, at most 0 at an upper one, 0 in
// between. [Problem.Verify] works out from a Solution alone how far it is from proving what it claims.
//
// # Usage
//
//	s, err := lp.Solve(problem)
//	if s.Status == lp.Optimal { use(s.X, s.Y) }
//
// # Method
//
// Rows and columns are scaled by powers of two near the geometric mean of their entries, which loses no digit. Every row
// has a slack, and the slacks are the first basis. While a basic variable is out of bounds the sum of what they are out by is
// minimised, then the cost. Columns enter by Devex (Harris, Mathematical Programming 5, 1973), rows leave by his test in
// two passes: of the rows that block within the tolerance, the one with the largest pivot. After a while without
// progress the rule is Bland's (1977), which cannot cycle, until there is progress. The basis is kept as sparse
// triangular factors (Markowitz, 1957, with a threshold of a tenth) and a column for each pivot since; it is factored
// anew when those cost more than that, and before anything is claimed. The last values and prices are refined once by
// their residual.
//
// Tolerances, on scaled figures: 1e-9 for bounds and prices, 1e-9 for pivots. An answer is claimed only with fresh
// factors.
//
// # Order of decision
//
// Of equal columns the first enters; of equal pivots the variable with the lowest index leaves. The same Problem gives
// the same bytes on every platform.
//
// # Errors
//
// ErrInvalid for figures that are not numbers, infinite where they must not be, lengths that do not match, a column
// twice in a row. An infeasible problem is an outcome and no error.
//
// # Concurrency
//
// Solve keeps nothing; safe for concurrent use.
//
// # Cost
//
// With m rows, n columns and z entries a step takes O(z + m + f) where f is the size of the factors, about z for the
// programmes this is for; there are some 2(m+n) steps. Memory is O(z + m + n + f). The benchmark of package policy has
// figures.
//
// # Limits
//
// What is proved is proved within Residual. Where the figures of one problem lie many orders apart, a status or an objective
// can be that of a problem a millionth away: of random ones over twelve orders about five in a thousand, of those within three none.
// No presolve, no integers, no warm start from outside. Dense programmes beyond about 1000 rows want another solver.
package lp
