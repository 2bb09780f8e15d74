package apicheck

import (
	"errors"
	"flag"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "store the exported APIs as they are")

const apiDir = "api"

// TestAPIIsAsStored fails when an exported API differs from its file. The difference is no fault in itself: look at it,
// note it in CHANGELOG.md if it breaks callers, and store it with -update.
func TestAPIIsAsStored(t *testing.T) {
	m, err := Load(filepath.Join("..", ".."))
	require.NoError(t, err)
	stored := &Stored{Module: m, Read: func(file string) (string, error) {
		b, err := os.ReadFile(filepath.Join(apiDir, file))
		return strings.ReplaceAll(string(b), "\r\n", "\n"), err
	}}
	want := make(map[string]bool)
	for _, path := range m.Packages {
		want[m.File(path)] = true
		p, err := m.Import(path)
		if err != nil {
			t.Errorf("%s does not compile: %v", path, err)
			continue
		}
		checkPackage(t, stored, path, p)
	}
	entries, err := os.ReadDir(apiDir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		switch {
		case want[e.Name()]:
		case *update:
			require.NoError(t, os.Remove(filepath.Join(apiDir, e.Name())))
		default:
			t.Errorf("%s/%s stores the API of no package; run: go test ./internal/apicheck -update", apiDir, e.Name())
		}
	}
}

func checkPackage(t *testing.T, stored *Stored, path string, p *types.Package) {
	t.Helper()
	file := filepath.Join(apiDir, stored.Module.File(path))
	now := Render(p)
	if *update {
		// A text that could not be read back would be noticed only when it is needed to judge a change.
		_, err := Parse(path, now, stored.Module)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(apiDir, 0o755))
		require.NoError(t, os.WriteFile(file, []byte(now), 0o644))
		return
	}
	before, err := stored.Read(stored.Module.File(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Errorf("%s has no stored API; run: go test ./internal/apicheck -update", path)
		return
	case err != nil:
		t.Errorf("%s: %v", path, err)
		return
	case before == now:
		return
	}
	verdict := ""
	if old, err := stored.Import(path); err != nil {
		verdict = "cannot be judged: " + err.Error() + "\n"
	} else {
		verdict = Compare(old, p).String()
	}
	t.Errorf("the API of %s is not as stored in %s (- stored, + now); if it should change, run: go test ./internal/apicheck -update\n%s%s",
		path, file, Lines(before, now), verdict)
}

// compile type-checks source text as package example.com/p.
func compile(t *testing.T, src string) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", "package p\n"+src, 0)
	require.NoError(t, err)
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	p, err := conf.Check("example.com/p", fset, []*ast.File{f}, nil)
	require.NoError(t, err)
	return p
}

const everything = `
import (
	"errors"
	"io"
	"time"
)

type ID string

const (
	First ID = "a\nb"
	Wait     = 3 * time.Second
	Half     = 0.5
	Tenth float64 = 0.1
	Third    = 1.0 / 3
	Whole    = 2.0
	Rune     = 'x'
	Big      = 1 << 70
	On       = true
)

var ErrX = errors.New("x")

type Open struct {
	A int ` + "`json:\"a\"`" + `
	B []string
}

type Closed struct {
	A int
	b int
	base
}

type Uncomparable struct{ m map[int]int }

type base struct {
	Promoted time.Time
	hidden   int
}

func (base) Up() error { return nil }
func (base) down()     {}

type State uint8

func (s *State) Next(now time.Time) (next State, ok bool) { return 0, false }

type Source interface {
	io.Reader
	Fetch(ids ...ID) (map[ID]*Open, error)
	sealed(secret)
}

type secret struct{ n int }

type number interface{ ~int | ~float64 }

type Set[K comparable, V number] struct{ m map[K]V }

func (s *Set[Key, Val]) Put(k Key, v Val) {}

func Sum[N number](ns ...N) N { var n N; return n }

type Alias = Set[ID, int]

type Func func(yield func(ID) bool)

func New() *hidden { return nil }

type hidden struct{}

func (*hidden) Visible() {}

type unreachable int
`

const everythingAPI = `// Exported API of example.com/p; "go test ./internal/apicheck -update" rewrites it.
package p

import "io"
import "time"

const Big = 1180591620717411303424
const First ID = "a\nb"
const Half = 0.5
const On = true
const Rune = 'x'
const Tenth float64 = 0.1
const Third = 1.0/3.0
const Wait time.Duration = 3000000000
const Whole = 2.0
func (*Set[Key, Val]) Put(k Key, v Val)
func (*State) Next(now time.Time) (next State, ok bool)
func (*hidden) Visible()
func (base) Up() error
func New() *hidden
func Sum[N number](ns ...N) N
type Alias = Set[ID, int]
type Closed struct{A int; base; _ struct{}}
type Func func(yield func(ID) bool)
type ID string
type Open struct{A int "json:\"a\""; B []string}
type Set[K comparable, V number] struct{_ [0]func()}
type Source interface{Fetch(ids ...ID) (map[ID]*Open, error); sealed(secret); io.Reader}
type State uint8
type Uncomparable struct{_ [0]func()}
type base struct{Promoted time.Time; _ struct{}}
type hidden struct{}
type number interface{~int | ~float64}
type secret struct{_ struct{}}
var ErrX error
`

func TestRenderKeepsWhatCallersSee(t *testing.T) {
	require.Equal(t, everythingAPI, Render(compile(t, everything)))
}

func TestRenderedTextReadsBackTheSame(t *testing.T) {
	p := compile(t, everything)
	back, err := Parse("example.com/p", Render(p), importer.ForCompiler(token.NewFileSet(), "source", nil))
	require.NoError(t, err)
	require.Equal(t, Render(p), Render(back))
	require.Empty(t, Compare(back, p).String(), "the stored API is the same API")
	require.Empty(t, Compare(p, back).String())
}

func TestNamesTheCompilerInventsAreLeftOut(t *testing.T) {
	p := types.NewPackage("example.com/p", "p")
	text := types.NewTuple(types.NewParam(token.NoPos, p, "text", types.Typ[types.String]))
	result := types.NewTuple(types.NewParam(token.NoPos, p, "#rv1", types.Typ[types.Bool]))
	sig := types.NewSignatureType(nil, nil, nil, text, result, false)
	p.Scope().Insert(types.NewFunc(token.NoPos, p, "F", sig))
	require.Contains(t, Render(p), "\nfunc F(text string) bool\n")
}

func TestImportsOfOneNameAreTold(t *testing.T) {
	src := "import (\n\ta \"math/rand\"\n\tb \"math/rand/v2\"\n)\n\nfunc F(*a.Rand, *b.Rand) {}\n"
	text := Render(compile(t, src))
	require.Contains(t, text, "import \"math/rand\"\nimport rand2 \"math/rand/v2\"\n")
	require.Contains(t, text, "func F(*rand.Rand, *rand2.Rand)\n")
	_, err := Parse("example.com/p", text, importer.ForCompiler(token.NewFileSet(), "source", nil))
	require.NoError(t, err)
}

func TestCompareTellsBreakingChanges(t *testing.T) {
	for _, c := range []struct {
		name, old, now string
		breaks         bool
	}{
		{"function added", "", "func F() {}", false},
		{"function removed", "func F() {}", "", true},
		{"parameter renamed", "func F(a int) {}", "func F(b int) {}", false},
		{"parameter changed", "func F(a int) {}", "func F(a int64) {}", true},
		{"constant's value changed", "const C = 1", "const C = 2", true},
		{"field added", "type T struct{ A int }", "type T struct{ A, B int }", false},
		{"field removed", "type T struct{ A, B int }", "type T struct{ A int }", true},
		{"comparable no more", "type T struct{ A, b int }", "type T struct{ A int; b []int }", true},
		{"method added to open interface", "type I interface{ M() }", "type I interface{ M(); N() }", true},
		{"method added to sealed interface", "type I interface{ M(); s() }", "type I interface{ M(); N(); s() }", false},
		{"hidden field's type changed", "type T struct{ A, b int }", "type T struct{ A int; b string }", false},
		{"promoted method removed", "type b struct{}\nfunc (b) M() {}\ntype T struct{ b }", "type b struct{}\ntype T struct{ b }", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The old side is what the stored text gives back, as in the real test.
			old, err := Parse("example.com/p", Render(compile(t, c.old)), nil)
			require.NoError(t, err)
			got := Compare(old, compile(t, c.now))
			require.Equal(t, c.breaks, len(got.Incompatible) > 0, "%v", got)
		})
	}
}

func TestLinesListsOnlyTheDifference(t *testing.T) {
	require.Equal(t, "- b\n+ c\n", Lines("a\nb\n", "a\nc\n"))
	require.Empty(t, Lines("a\n", "a\n"))
}

func TestBadTextIsRefused(t *testing.T) {
	_, err := Parse("p", "package p\nfunc (", nil)
	require.ErrorContains(t, err, "parse")
	_, err = Parse("p", "package p\nvar X Missing\n", nil)
	require.ErrorContains(t, err, "check")
}
