// Package snapshottest tests that a core keeps to the rules for saved state: bytes
// that were damaged or forged are refused, and what a reader or a writer returns
// is passed on.
//
// # Model
//
// A core saves itself with a Snapshot method and comes back by a Restore function,
// in the form of package snapshot. Tests give both as functions of a writer and of
// a reader, with the configuration bound.
//
// # Usage
//
//	restore := func(r io.Reader) error { _, err := Restore(cfg, r); return err }
//	snapshottest.RefusesDamage(t, snapshottest.Save(t, table.Snapshot), restore)
//
// # Errors
//
// What does not hold fails the test.
package snapshottest
