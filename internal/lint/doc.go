// Package lint checks the house rules that neither the compiler nor a general linter knows: who may import whom, what a
// deterministic core may not touch, and that everything exported is documented.
//
// # Model
//
// A House is a table with one row per package of the module; House.Check reads every Go file below a module's root,
// whatever its build tags, and returns the Findings in the order of their position. Directories named testdata or
// vendor, those beginning with '.' or '_', nested modules, and files with the build constraint "ignore" are not read.
// Every package has a Kind:
//
//   - a Core decides from values in values: all rules hold;
//   - a Driver owns a clock, goroutines or devices: the rules marked (core) do not hold, and it may log with zap;
//   - Support exists for tests only: the rules marked (core) do not hold, and only test files may import it. A
//     conformance package, a child whose name ends in test, is Support without a row of its own.
//
// The rules:
//
//   - unlisted: a package that has no row. The set of top-level packages is closed; a row is added on purpose.
//   - floor: a package imports of this module only what its row names, its own parent directory's package, and the
//     internal helpers open to all. An external test package (name ending in _test) may import anything; an in-package
//     test keeps to the row plus the Support packages.
//   - third-party: a core imports google/btree at most, a driver zap as well, a row may name more. Tests may add testify.
//   - import (core): no package that brings in the process, the network, the scheduler, a lock, a logger, entropy or
//     another global. No dot import anywhere.
//   - clock (core): nothing that reads the clock, sleeps or starts a timer, called or as a value. It holds in tests as
//     well, unless the file imports testing/synctest, where time is simulated.
//   - rand: no math/rand; of math/rand/v2 only constructors and types, never the global source. It holds in tests too.
//   - go (core): no go statement.
//   - global (core): a package-level variable is blank, or an error sentinel (named err… or Err… and set by errors.New
//     or fmt.Errorf), or a table: set where it is declared, under a comment with the word "immutable", and never the
//     target of an assignment, of &, or of delete or clear in its package.
//   - init (core): no init function.
//   - panic (core): a panic carries a comment with "invariant:" on its line or the line above, or the enclosing
//     function's documentation says when it panics.
//   - map-order (core): a range over a map, and maps.Keys, maps.Values or maps.All outside slices.Sorted and its kin,
//     carries a comment with the word "order" on its line or the line above.
//   - fma (core): a float product that is an operand of + or - is written float64(a*b) + c, because compilers may fuse
//     the two differently on different targets.
//   - doc: every exported identifier, method, struct field and interface method has a comment; that of a function, type,
//     method or ungrouped constant or variable starts with the name.
//   - package-doc: every package has a doc.go with the package comment.
//   - example: every public core and driver has an Example; a core has one with an Output comment, so that it runs.
//
// # Usage
//
//	findings, err := house.Check(os.DirFS(root))
//
// # Order of decision
//
// Findings are sorted by file, line, column and rule. Map ranges are found with go/types on the module's own source;
// imports from outside count as unknown, and what is unknown is not reported.
//
// # Errors
//
// Check returns an error if a file cannot be read or parsed; a type error is none, so unfinished code can be checked.
//
// # Concurrency
//
// A House is read only. Check may be called from several goroutines.
//
// # Cost
//
// Linear in the source; no command is run and nothing outside the given file system is read.
//
// # Limits
//
// A map that comes out of another module's type is not seen. The fma rule sees products inside one expression only; a
// product stored in a variable first needs the conversion as well. The global rule does not see a write through an
// alias of a table.
package lint
