// Package placertest holds a gang.Placer to its contract, and has a plain one to
// test against.
//
// [TestPlacer] is the conformance test that an implementation runs. [Reference]
// is an exact placer for small clusters of one or two levels: slow, short, and
// right. It is what the tests and examples of package gang place with; a
// cluster is placed with package placement.
//
// A Reference is not safe for concurrent use. A decision costs nodes × members,
// and more where members differ in size, since it then tries all ways.
package placertest
