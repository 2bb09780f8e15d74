// Package golden replays text scripts of commands against a package under test and compares what each command
// answered with what the script says it should answer.
//
// # Model
//
// A script is a file a reviewer reads as prose. Its lines are:
//
//	# a comment, kept where it is
//	> submit job=a gpus=8 "free text"
//	placed job=a on n0[0-7]
//
//	> tick
//
// A line that begins with "> " is a command. The lines below it, up to a blank line, a comment or the next command, are
// its expected output; a command may have none. A token holding an unquoted '=' is a key with a value, any other token
// is a positional argument. A value or an argument may be quoted as a Go string, with double quotes (escapes apply) or
// back quotes (none do). An output line that is blank, or that begins with '#', '>' or '\', is written with one '\' in
// front, so that no answer can be mistaken for script. Spaces at the end of a line never count, and neither does a
// newline at the end of an answer. CRLF files are read as LF files, and rewritten as CRLF.
//
// # Usage
//
//	func TestTraces(t *testing.T) {
//		golden.Run(t, "testdata/*.txt", func(t *testing.T) func(golden.Command) string {
//			table := newTable(t) // fresh for every file
//			return func(c golden.Command) string {
//				switch c.Name {
//				case "grant":
//					c.Allow("job", "ttl")
//					return table.grant(c.Get("job"), c.Duration("ttl", time.Minute))
//				default:
//					return c.Unknown()
//				}
//			}
//		})
//	}
//
// Each file is one subtest. The function given to Run makes the state for one file and returns what executes a command.
// With the flag -update, files are rewritten in place with the answers that were given; everything that is not an
// answer keeps its bytes. Read the difference before committing it: the script is the claim, the update only a draft.
//
// # Order of decision
//
// Files run in lexical order, commands in file order. A mismatch is reported with its file and line and the replay goes
// on, so one run shows every difference.
//
// # Errors
//
// A glob that matches nothing, a malformed line, a key that Allow does not name and a value that does not parse are
// fatal for the test. Keys may not repeat within a command.
//
// # Concurrency
//
// Commands of one file run one after the other on the test's goroutine.
//
// # Cost
//
// Linear in the size of a script, except that the difference of one wrong answer costs the product of its two lengths.
//
// # Limits
//
// Importing this package defines the test flag -update; a test package that imports it must not define that flag again.
// A line of expected output cannot end in spaces.
package golden
