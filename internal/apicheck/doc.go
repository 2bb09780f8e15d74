// Package apicheck keeps the exported API of every public package as text, so that a change of it is seen in review,
// and says which changes break callers.
//
// # Model
//
// The API of a package is a file in api, named after the package's path in the module with dots for slashes. Its lines
// are declarations in Go without bodies, sorted below the imports: one line for each constant with its value, variable,
// function, type and method. The file is thus both a text that diffs well and a source that go/types reads back, which
// is how an old API can be judged against a new one without the old code.
//
// Fields and methods that callers cannot name are left out. A struct that has such fields ends in one blank field, of
// type struct{} if the struct's values can be compared and [0]func() if not. An unexported type is kept where an
// exported declaration mentions it.
//
// # Usage
//
//	go test ./internal/apicheck            # fails, listing the difference, when an API is not as stored
//	go test ./internal/apicheck -update    # stores the APIs as they are
//
// # Order of decision
//
// Lines are sorted bytewise; of two imports with the same name the one with the later path gets a number. Equal APIs
// therefore have equal files.
//
// # Errors
//
// Load fails if the go command does; a package that does not compile fails alone, when it is imported.
//
// # Concurrency
//
// A Module is not safe for concurrent use.
//
// # Cost
//
// One run of "go list -export", which compiles what has changed, then one read of each package's export data.
//
// # Limits
//
// APIs are those of linux/amd64 without cgo. Unexported fields inside a struct type that has no name are kept.
package apicheck
