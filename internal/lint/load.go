package lint

import (
	"errors"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// source is a parsed file.
type source struct {
	*ast.File
	path string // relative to the module's root
	test bool   // the name ends in _test.go
}

// pkg is a directory's Go files.
type pkg struct {
	dir   string
	files []*source // in order of name
}

// select returns the files that want accepts.
func (p *pkg) pick(want func(*source) bool) []*source {
	var out []*source
	for _, f := range p.files {
		if want(f) {
			out = append(out, f)
		}
	}
	return out
}

// external says whether f belongs to an external test package.
func (f *source) external() bool { return f.test && strings.HasSuffix(f.Name.Name, "_test") }

// load parses the module's files.
func load(fsys fs.FS, fset *token.FileSet) (map[string]*pkg, error) {
	pkgs := make(map[string]*pkg)
	var errs []error
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && skipDir(fsys, name) {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"):
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		if ignored(f) {
			return nil
		}
		dir := path.Dir(name)
		if pkgs[dir] == nil {
			pkgs[dir] = &pkg{dir: dir}
		}
		pkgs[dir].files = append(pkgs[dir].files, &source{f, name, strings.HasSuffix(name, "_test.go")})
		return nil
	})
	return pkgs, errors.Join(append(errs, err)...)
}

func skipDir(fsys fs.FS, name string) bool {
	base := path.Base(name)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := fs.Stat(fsys, name+"/go.mod")
	return err == nil // a nested module has its own rules
}

// ignored says whether a file is set aside by the customary build constraint.
func ignored(f *ast.File) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() > f.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			x, err := constraint.Parse(c.Text)
			if tag, ok := x.(*constraint.TagExpr); err == nil && ok && tag.Tag == "ignore" {
				return true
			}
		}
	}
	return false
}

// typer type-checks packages of the module from source, as far as that goes without any other module: every import from
// outside is an empty package. Only answers about the module's own types come out of it.
type typer struct {
	house House
	fset  *token.FileSet
	pkgs  map[string]*pkg
	done  map[string]*types.Package // by import path; nil while being imported
}

// check type-checks one package's files and returns what is known about their expressions.
func (t *typer) check(dir string, files []*source) *types.Info {
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Uses:  make(map[*ast.Ident]types.Object),
		Defs:  make(map[*ast.Ident]types.Object),
	}
	t.run(dir, files, info)
	return info
}

func (t *typer) run(dir string, files []*source, info *types.Info) *types.Package {
	conf := types.Config{
		Importer:         t,
		Error:            func(error) {}, // the compiler's business
		FakeImportC:      true,
		IgnoreFuncBodies: info == nil,
	}
	asts := make([]*ast.File, len(files))
	for i, f := range files {
		asts[i] = f.File
	}
	p, _ := conf.Check(importPath(t.house.Module, dir), t.fset, asts, info)
	return p
}

// Import implements types.Importer.
func (t *typer) Import(p string) (*types.Package, error) {
	if done, ok := t.done[p]; ok {
		if done == nil {
			return nil, errors.New("lint: import cycle")
		}
		return done, nil
	}
	var out *types.Package
	if dir, ok := directory(t.house.Module, p); ok && t.pkgs[dir] != nil {
		t.done[p] = nil
		out = t.run(dir, t.pkgs[dir].pick(func(f *source) bool { return !f.test }), nil)
	} else {
		out = types.NewPackage(p, guessName(p))
	}
	out.MarkComplete()
	t.done[p] = out
	return out, nil
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// guessName returns the name that a package of this path has by custom.
func guessName(p string) string {
	parts := strings.Split(p, "/")
	if n := len(parts); n > 1 && version.MatchString(parts[n-1]) {
		parts = parts[:n-1]
	}
	return strings.TrimPrefix(parts[len(parts)-1], "go-")
}

func importPath(module, dir string) string {
	if dir == "." {
		return module
	}
	return module + "/" + dir
}

// directory returns the directory of an import path within the module.
func directory(module, p string) (string, bool) {
	if p == module {
		return ".", true
	}
	return strings.CutPrefix(p, module+"/")
}

// covers says whether p is one of paths or below one.
func covers(paths []string, p string) bool {
	return slices.ContainsFunc(paths, func(q string) bool { return p == q || strings.HasPrefix(p, q+"/") })
}
