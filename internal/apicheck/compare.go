package apicheck

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/exp/apidiff"
)

// Changes are the differences between two versions of a package, in apidiff's words.
type Changes struct {
	Incompatible []string // Incompatible changes break some caller; nil if none.
	Compatible   []string // Compatible changes break none; nil if none.
}

// String lists the changes, those that break callers first; it is empty if there are none.
func (c Changes) String() string {
	var b strings.Builder
	for _, s := range c.Incompatible {
		b.WriteString("incompatible: " + s + "\n")
	}
	for _, s := range c.Compatible {
		b.WriteString("compatible: " + s + "\n")
	}
	return b.String()
}

// Compare judges the changes from one version of a package to another.
func Compare(old, updated *types.Package) Changes {
	var out Changes
	for _, c := range apidiff.Changes(old, updated).Changes {
		if c.Compatible {
			out.Compatible = append(out.Compatible, c.Message)
		} else {
			out.Incompatible = append(out.Incompatible, c.Message)
		}
	}
	return out
}

// Parse reads back what Render wrote. imports provides the packages that the text mentions.
func Parse(path, text string, imports types.Importer) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("apicheck: parse API of %s: %w", path, err)
	}
	var errs []error
	conf := types.Config{
		Importer:         imports,
		IgnoreFuncBodies: true,
		Error: func(err error) {
			// A generic function without a body is a soft error.
			if te := (types.Error{}); !errors.As(err, &te) || !te.Soft {
				errs = append(errs, err)
			}
		},
	}
	p, _ := conf.Check(path, fset, []*ast.File{f}, nil)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("apicheck: check API of %s: %w", path, err)
	}
	return p, nil
}

// Stored imports the module's packages from their stored API, and others as they are compiled now. It is the world in
// which an old API is read.
type Stored struct {
	Module *Module                           // Module names the packages that are stored.
	Read   func(file string) (string, error) // Read returns the text of an API file.

	done map[string]*types.Package
}

// Import implements types.Importer.
func (s *Stored) Import(path string) (*types.Package, error) {
	if path != s.Module.Path && !strings.HasPrefix(path, s.Module.Path+"/") {
		return s.Module.Import(path)
	}
	if p := s.done[path]; p != nil {
		return p, nil
	}
	text, err := s.Read(s.Module.File(path))
	if err != nil {
		return nil, fmt.Errorf("apicheck: stored API of %s: %w", path, err)
	}
	p, err := Parse(path, text, s)
	if err != nil {
		return nil, err
	}
	if s.done == nil {
		s.done = make(map[string]*types.Package)
	}
	s.done[path] = p
	return p, nil
}

// Lines lists the lines that only one of two API texts has, '-' for old and '+' for new, in order.
func Lines(old, updated string) string {
	a, b := strings.Split(old, "\n"), strings.Split(updated, "\n")
	has := func(lines []string) map[string]bool {
		m := make(map[string]bool, len(lines))
		for _, l := range lines {
			m[l] = true
		}
		return m
	}
	inA, inB := has(a), has(b)
	var out strings.Builder
	for _, l := range a {
		if !inB[l] {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range b {
		if !inA[l] {
			out.WriteString("+ " + l + "\n")
		}
	}
	return out.String()
}
