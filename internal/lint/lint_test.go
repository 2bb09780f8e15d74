package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestHouseRules checks this module. What it reports is to be fixed where it is reported, or argued in house.go.
func TestHouseRules(t *testing.T) {
	findings, err := Lockstep().Check(os.DirFS(moduleRoot(t)))
	require.NoError(t, err)
	for _, f := range findings {
		t.Error(f)
	}
}

// moduleRoot returns the nearest directory above with a go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, dir, up, "no go.mod above the test's directory")
		dir = up
	}
}

func TestRowsOnlyLookDown(t *testing.T) {
	h := Lockstep()
	state := map[string]int{} // 1 being visited, 2 done
	var visit func(dir string, path []string)
	visit = func(dir string, path []string) {
		require.NotEqual(t, 1, state[dir], "rows form a cycle: %v", append(path, dir))
		if state[dir] == 2 {
			return
		}
		state[dir] = 1
		row, ok := h.Rows[dir]
		require.True(t, ok, "%v names %s, which has no row", path, dir)
		for _, d := range row.Imports {
			visit(d, append(path, dir))
		}
		state[dir] = 2
	}
	for dir := range h.Rows {
		visit(dir, nil)
	}
	for _, dir := range h.Helpers {
		require.Contains(t, h.Rows, dir)
	}
}

// house is the table of the fixtures: c is a core above b, d a driver, s support.
func house() House {
	return House{
		Module:  "example.com/m",
		Helpers: []string{"internal/help"},
		Rows: map[string]Row{
			".":             {Waived: map[string][]string{"clock*.go": {"clock", "import"}}},
			"b":             {Imports: []string{"."}},
			"c":             {Imports: []string{".", "b"}},
			"c/leaf":        {ThirdParty: []string{"example.org/heavy"}},
			"d":             {Kind: Driver, Imports: []string{"."}},
			"s":             {Kind: Support},
			"internal/help": {},
		},
	}
}

// docGo and the other texts below make a package complete, so that a fixture shows one rule only.
func docGo(name string) string {
	return "// Package " + name + " is a fixture.\npackage " + name + "\n"
}

func example(name string) string {
	return "package " + name + `_test

func Example() {
	// Output:
}
`
}

// check returns "file:line rule" of what the house finds in files, completed to sound packages.
func check(t *testing.T, files map[string]string) []string {
	t.Helper()
	all := fstest.MapFS{"go.mod": {Data: []byte("module example.com/m\n")}}
	names := map[string]string{".": "m", "b": "b", "c": "c", "c/leaf": "leaf", "d": "d", "s": "s", "internal/help": "help"}
	used := map[string]bool{}
	for name := range files {
		used[filepath.ToSlash(filepath.Dir(name))] = true
	}
	for dir, name := range names {
		if used[dir] {
			all[strings.TrimPrefix(dir+"/doc.go", "./")] = &fstest.MapFile{Data: []byte(docGo(name))}
			all[strings.TrimPrefix(dir+"/example_test.go", "./")] = &fstest.MapFile{Data: []byte(example(name))}
		}
	}
	for name, text := range files {
		if text == "" {
			delete(all, name)
			continue
		}
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	findings, err := house().Check(all)
	require.NoError(t, err)
	var out []string
	for _, f := range findings {
		require.NotEmpty(t, f.Text)
		parts := strings.SplitN(f.String(), ": ", 3)
		out = append(out, parts[0]+" "+parts[1])
	}
	return out
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // nil means silent
	}{
		{"sound package", map[string]string{"b/b.go": "package b\n"}, nil},

		{"unlisted", map[string]string{"new/doc.go": docGo("new")}, []string{"new/doc.go:2 unlisted"}},
		{"unlisted below a listed one", map[string]string{"b/x/doc.go": docGo("x")}, []string{"b/x/doc.go:2 unlisted"}},
		{"conformance package is support", map[string]string{"b/btest/doc.go": docGo("btest"), "b/btest/a.go": `package btest

import (
	_ "example.com/m"
	_ "example.com/m/b"
	_ "github.com/stretchr/testify/require"
	_ "testing"
)
`, "b/a_test.go": "package b\n\nimport _ \"example.com/m/b/btest\"\n"}, nil},
		{"nested module is not read", map[string]string{"new/go.mod": "module x\n", "new/a.go": "package a\n"}, nil},
		{"testdata is not read", map[string]string{"b/testdata/a.go": "package a\n", "_x/a.go": "package a\n"}, nil},
		{"ignored file is not read", map[string]string{"b/gen.go": `//go:build ignore

package main

import _ "os"
`}, nil},

		{"floor: down", map[string]string{"c/a.go": `package c

import (
	_ "example.com/m"
	_ "example.com/m/b"
	_ "example.com/m/internal/help"
)
`}, nil},
		{"floor: up", map[string]string{"b/a.go": `package b

import _ "example.com/m/c"
`}, []string{"b/a.go:3 floor"}},
		{"floor: child imports parent", map[string]string{"c/leaf/a.go": `package leaf

import _ "example.com/m/c"
`}, nil},
		{"floor: parent imports child", map[string]string{"c/a.go": `package c

import _ "example.com/m/c/leaf"
`}, []string{"c/a.go:3 floor"}},
		{"floor: support from code", map[string]string{"c/a.go": `package c

import _ "example.com/m/s"
`}, []string{"c/a.go:3 floor"}},
		{"floor: support from test", map[string]string{"c/a_test.go": `package c

import _ "example.com/m/s"
`}, nil},
		{"floor: in-package test up", map[string]string{"b/a_test.go": `package b

import _ "example.com/m/d"
`}, []string{"b/a_test.go:3 floor"}},
		{"floor: external test up", map[string]string{"b/a_test.go": `package b_test

import _ "example.com/m/c"
`}, nil},

		{"third-party: btree", map[string]string{"b/a.go": `package b

import _ "github.com/google/btree"
`}, nil},
		{"third-party: zap in a core", map[string]string{"b/a.go": `package b

import _ "go.uber.org/zap"
`}, []string{"b/a.go:3 third-party"}},
		{"third-party: zap in a driver", map[string]string{"d/a.go": `package d

import _ "go.uber.org/zap/zapcore"
`}, nil},
		{"third-party: row", map[string]string{"c/leaf/a.go": `package leaf

import _ "example.org/heavy/x"
`}, nil},
		{"third-party: other row", map[string]string{"c/a.go": `package c

import _ "example.org/heavy/x"
`}, []string{"c/a.go:3 third-party"}},
		{"third-party: path is no prefix", map[string]string{"c/leaf/a.go": `package leaf

import _ "example.org/heavyweight"
`}, []string{"c/leaf/a.go:3 third-party"}},
		{"third-party: testify in tests", map[string]string{"b/a_test.go": `package b

import _ "github.com/stretchr/testify/require"
`}, nil},
		{"third-party: testify in code", map[string]string{"b/a.go": `package b

import _ "github.com/stretchr/testify/require"
`}, []string{"b/a.go:3 third-party"}},

		{
			"import: impure",
			map[string]string{"b/a.go": `package b

import (
	_ "log/slog"
	_ "net/netip"
	_ "os"
	_ "sync"
	_ "sync/atomic"
	_ "slices"
)
`},
			[]string{"b/a.go:4 import", "b/a.go:5 import", "b/a.go:6 import", "b/a.go:7 import", "b/a.go:8 import"},
		},
		{"import: impure in test and driver", map[string]string{"b/a_test.go": `package b

import _ "os"
`, "d/a.go": `package d

import _ "os"
`}, nil},
		{"import: dot", map[string]string{"d/a.go": `package d

import . "fmt"
`}, []string{"d/a.go:3 import"}},

		{
			"clock: call, value and renamed import",
			map[string]string{"b/a.go": `package b

import tm "time"

var _ = tm.Now

func f() { tm.Sleep(1); <-tm.After(1) }
`},
			[]string{"b/a.go:5 clock", "b/a.go:7 clock", "b/a.go:7 clock"},
		},
		{"clock: context deadline", map[string]string{"b/a.go": `package b

import "context"

var _ = context.WithTimeout
`}, []string{"b/a.go:5 clock"}},
		{"clock: types and arithmetic", map[string]string{"b/a.go": `package b

import "time"

func f(t time.Time) time.Time { return t.Add(time.Second) }
`}, nil},
		{"clock: a variable named time", map[string]string{"b/a.go": `package b

type c struct{ Now int }

func f(time c) int { return time.Now }
`}, nil},
		{"clock: driver", map[string]string{"d/a.go": `package d

import "time"

var _ = time.Now
`}, nil},
		{"clock: waived file", map[string]string{"clock.go": `package m

import (
	_ "sync"
	"time"
)

var _ = time.Now
`}, nil},
		{"clock: other file", map[string]string{"other.go": `package m

import "time"

var _ = time.Now
`}, []string{"other.go:5 clock"}},
		{"clock: test", map[string]string{"d/a_test.go": `package d

import "time"

func f() { time.Sleep(1) }
`}, []string{"d/a_test.go:5 clock"}},
		{"clock: simulated", map[string]string{"d/a_test.go": `package d

import (
	_ "testing/synctest"
	"time"
)

func f() { time.Sleep(1) }
`}, nil},

		{"rand: v1", map[string]string{"d/a_test.go": `package d

import _ "math/rand"
`}, []string{"d/a_test.go:3 rand"}},
		{"rand: global", map[string]string{"b/a.go": `package b

import "math/rand/v2"

func f() int { return rand.IntN(3) }
`}, []string{"b/a.go:5 rand"}},
		{"rand: seeded", map[string]string{"b/a.go": `package b

import "math/rand/v2"

func f() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
`}, nil},

		{"go", map[string]string{"b/a.go": `package b

func f() {
	go f()
}
`}, []string{"b/a.go:4 go"}},
		{"go in driver", map[string]string{"d/a.go": `package d

func f() { go f() }
`}, nil},

		{"global: plain", map[string]string{"b/a.go": `package b

var n int

var m = map[int]int{}
`}, []string{"b/a.go:3 global", "b/a.go:5 global"}},
		{"global: sentinel", map[string]string{"b/a.go": `package b

import "errors"

// ErrX is one.
var ErrX = errors.New("b: x")

var errY = errors.New("b: y")
`}, nil},
		{"global: misnamed sentinel", map[string]string{"b/a.go": `package b

import "errors"

var bad = errors.New("b: x")
`}, []string{"b/a.go:5 global"}},
		{"global: blank", map[string]string{"b/a.go": `package b

var _ interface{} = 1
`}, nil},
		{"global: table", map[string]string{"b/a.go": `package b

// names is immutable.
var names = [...]string{"a"}

func f(i int) string { return names[i] }
`}, nil},
		{"global: table without value", map[string]string{"b/a.go": `package b

// names is immutable.
var names []string
`}, []string{"b/a.go:4 global"}},
		{
			"global: table written",
			map[string]string{"b/a.go": `package b

// t is immutable.
var t = map[int][]int{}

func f() {
	t[1] = nil
	t[1][2]++
	delete(t, 1)
	_ = &t
	t := map[int]int{}
	t[1] = 2
}
`},
			[]string{"b/a.go:7 global", "b/a.go:8 global", "b/a.go:9 global", "b/a.go:10 global"},
		},
		{"global: table written in another file", map[string]string{"b/a.go": `package b

// t is immutable.
var t = []int{1}
`, "b/z.go": `package b

func f() { t[0] = 1 }
`}, []string{"b/z.go:3 global"}},
		{"global: driver", map[string]string{"d/a.go": `package d

var n int
`}, nil},

		{"init", map[string]string{"b/a.go": `package b

func init() {}
`}, []string{"b/a.go:3 init"}},
		{"init method", map[string]string{"b/a.go": `package b

type t int

func (t) init() {}
`}, nil},

		{"panic: bare", map[string]string{"b/a.go": `package b

func f() {
	panic(1)
}
`}, []string{"b/a.go:4 panic"}},
		{"panic: invariant above and behind", map[string]string{"b/a.go": `package b

func f() {
	// invariant: never,
	// really.
	panic(1)
}

func g() {
	panic(1) // invariant: never
}
`}, nil},
		{"panic: documented", map[string]string{"b/a.go": `package b

// f panics if asked.
func f() { panic(1) }
`}, nil},
		{"panic: shadowed", map[string]string{"b/a.go": `package b

func f(panic func(int)) { panic(1) }
`}, nil},

		{
			"map-order: field, local, result, parameter",
			map[string]string{"b/a.go": `package b

type set map[int]bool

type t struct{ m map[int]int }

func (t) all() set { return nil }

func f[M ~map[int]V, V any](x t, s set, m M) {
	for range x.m {
	}
	for k := range x.m {
		_ = k
	}
	for k := range s {
		_ = k
	}
	for k := range x.all() {
		_ = k
	}
	for k := range m {
		_ = k
	}
}
`},
			[]string{"b/a.go:12 map-order", "b/a.go:15 map-order", "b/a.go:18 map-order", "b/a.go:21 map-order"},
		},
		{"map-order: explained", map[string]string{"b/a.go": `package b

func f(m map[int]int) (n int) {
	// Addition is exact, so order cannot matter.
	for _, v := range m {
		n += v
	}
	for _, v := range m { // any order
		n += v
	}
	return n
}
`}, nil},
		{"map-order: slices and functions", map[string]string{"b/a.go": `package b

func f(m []int, g func(func(int) bool)) {
	for i := range m {
		_ = i
	}
	for i := range g {
		_ = i
	}
}
`}, nil},
		{"map-order: type of another package", map[string]string{"b/b.go": `package b

// T is one.
type T struct {
	M map[int]int // M is a map
}
`, "c/a.go": `package c

import "example.com/m/b"

func f(x b.T) {
	for k := range x.M {
		_ = k
	}
}
`}, []string{"c/a.go:6 map-order"}},
		{"map-order: maps.Keys", map[string]string{"b/a.go": `package b

import (
	"maps"
	"slices"
)

func f(m map[int]int) []int {
	_ = slices.Sorted(maps.Keys(m))
	_ = maps.Collect(maps.All(m))
	return slices.Collect(maps.Values(m))
}
`}, []string{"b/a.go:11 map-order"}},

		{
			"fma",
			map[string]string{"b/a.go": `package b

type flops float64

func f(a, b, c float64, g flops) {
	_ = a*b + c
	_ = c - (a * b)
	_ = -(a * b) + c
	c += a * b
	_ = g*g - g
}
`},
			[]string{"b/a.go:6 fma", "b/a.go:7 fma", "b/a.go:8 fma", "b/a.go:9 fma", "b/a.go:10 fma"},
		},
		{"fma: rounded, integer, constant", map[string]string{"b/a.go": `package b

func f(a, b, c float64, i int) {
	_ = float64(a*b) + c
	_ = i*i + i
	_ = 2.0*3.0 + c
	_ = a * b
	_ = (a + b) * c
}
`}, nil},

		{
			"doc: missing",
			map[string]string{"s/a.go": `package s

type T struct {
	A int
	b int
	I
}

type I interface {
	M()
}

func F() {}

func (*T) G() {}

const K = 1

const (
	L = 1
)

type t struct{ X int }

func (t) H() {}
`},
			[]string{"s/a.go:3 doc", "s/a.go:4 doc", "s/a.go:6 doc", "s/a.go:9 doc", "s/a.go:10 doc", "s/a.go:13 doc", "s/a.go:15 doc", "s/a.go:17 doc", "s/a.go:20 doc"},
		},
		{"doc: present", map[string]string{"s/a.go": `package s

// T is one.
type T[K any] struct {
	A, B int // amounts
	// C is documented above.
	C struct {
		D int // nested
	}
}

// G does it.
func (*T[K]) G(x struct{ Y int }) {}

// Kinds.
const (
	L = 1 // one
	// M is two.
	M = 2
)
`}, nil},
		{"doc: wrong name", map[string]string{"s/a.go": `package s

// A type.
type T int

// Foobar does it.
func Foo() {}
`}, []string{"s/a.go:4 doc", "s/a.go:7 doc"}},
		{"doc: nested field", map[string]string{"s/a.go": `package s

// T is one.
type T struct {
	// A are some.
	A []struct {
		B int
	}
}
`}, []string{"s/a.go:7 doc"}},

		{"package-doc: no doc.go", map[string]string{"internal/help/doc.go": "", "internal/help/a.go": "package help\n"}, []string{"internal/help/a.go:1 package-doc"}},
		{"package-doc: no comment", map[string]string{"internal/help/doc.go": "package help\n"}, []string{"internal/help/doc.go:1 package-doc"}},
		{"example: none", map[string]string{"b/example_test.go": "", "b/a.go": "package b\n"}, []string{"b/a.go:1 example"}},
		{"example: does not run", map[string]string{"b/example_test.go": `package b_test

func Example() {}
`}, []string{"b/doc.go:2 example"}},
		{"example: driver need not run", map[string]string{"d/example_test.go": `package d_test

func Example() {}
`}, nil},
		{"example: internal needs none", map[string]string{"internal/help/example_test.go": "", "internal/help/a.go": "package help\n"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, check(t, c.files))
		})
	}
}

func TestUnfinishedCodeIsChecked(t *testing.T) {
	got := check(t, map[string]string{"b/a.go": `package b

func f() {
	undefined.X()
	go f()
}

func f() {}
`})
	require.Equal(t, []string{"b/a.go:5 go"}, got)
}

func TestUnparsedCodeIsAnError(t *testing.T) {
	_, err := house().Check(fstest.MapFS{"b/a.go": {Data: []byte(`package b

func {`)}})
	require.ErrorContains(t, err, "b/a.go:3")
}

func TestFindingsAreSortedAndNameTheRemedy(t *testing.T) {
	findings, err := house().Check(fstest.MapFS{
		"b/z.go": {Data: []byte(`package b

func init() {}
`)},
		"b/a.go": {Data: []byte(`package b

func f() {
	go f()
}
`)},
	})
	require.NoError(t, err)
	require.Equal(t, "b/a.go:4: go: a core starts no goroutine; the caller serializes calls", findings[2].String())
	require.Equal(t, "b/z.go:3: init: a core has no init; compute it in New or declare a table", findings[len(findings)-1].String())
}
