package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Finding is one place where a rule is broken.
type Finding struct {
	Pos  token.Position // Pos.Filename is relative to the module's root
	Rule string         // one of the names in the package documentation
	Text string         // what is wrong and what to do
}

// String returns "file:line: rule: text".
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.Pos.Filename, f.Pos.Line, f.Rule, f.Text)
}

// Check applies the rules to the module whose root directory fsys is.
func (h House) Check(fsys fs.FS) ([]Finding, error) {
	c := &checker{house: h, fset: token.NewFileSet()}
	pkgs, err := load(fsys, c.fset)
	if err != nil {
		return nil, fmt.Errorf("lint: load: %w", err)
	}
	t := &typer{house: h, fset: c.fset, pkgs: pkgs, done: make(map[string]*types.Package)}
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		c.pkg(pkgs[dir], t)
	}
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Pos.Filename, b.Pos.Filename),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(c.findings), nil
}

// checker collects the findings of one run.
type checker struct {
	house    House
	fset     *token.FileSet
	findings []Finding

	// What is being checked.
	dir    string
	row    Row
	listed bool // whether row comes from the house
	file   *source
	info   *types.Info
	notes  map[int]string        // comment text by line it ends on, for the current file
	tables map[types.Object]bool // package-level variables marked immutable
}

func (c *checker) report(pos token.Pos, rule, format string, args ...any) {
	if c.file != nil && c.row.waives(path.Base(c.file.path), rule) {
		return
	}
	c.findings = append(c.findings, Finding{c.fset.Position(pos), rule, fmt.Sprintf(format, args...)})
}

func (c *checker) pkg(p *pkg, t *typer) {
	row, ok := c.house.row(p.dir)
	c.dir, c.row, c.file = p.dir, row, nil
	c.listed = ok
	if !ok {
		c.row.Kind = Support // the one finding is enough
		c.report(p.files[0].Package, "unlisted", "package %s has no row in internal/lint/house.go; the set of packages is closed, add a row on purpose", p.dir)
	}
	c.docFile(p)
	c.examples(p)

	inside := p.pick(func(f *source) bool { return !f.external() })
	outside := p.pick((*source).external)
	c.files(inside, t.check(p.dir, inside))
	c.files(outside, t.check(p.dir+"_test", outside))
}

func (c *checker) files(files []*source, info *types.Info) {
	c.info = info
	c.tables = make(map[types.Object]bool)
	for _, f := range files {
		c.file = f
		c.notes = notes(c.fset, f.File)
		c.imports()
		c.rand()
		if f.test {
			c.testClock()
			continue
		}
		c.docs()
		if c.row.Kind == Core {
			c.core()
		}
	}
	for _, f := range files {
		c.file = f
		c.writes()
	}
	c.file = nil
}

// notes returns the text of each comment by the line it ends on.
//
// A comment counts for the line it stands on and, through near, for the line below.
func notes(fset *token.FileSet, f *ast.File) map[int]string {
	out := make(map[int]string)
	for _, g := range f.Comments {
		text := ""
		for _, cm := range g.List {
			text += cm.Text
		}
		out[fset.Position(g.End()).Line] += text
	}
	return out
}

// near says whether a comment on pos's line, or ending on the line above, contains word.
func (c *checker) near(pos token.Pos, word string) bool {
	line := c.fset.Position(pos).Line
	return strings.Contains(strings.ToLower(c.notes[line]+c.notes[line-1]), word)
}
