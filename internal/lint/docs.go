package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// docFile applies the rule package-doc.
func (c *checker) docFile(p *pkg) {
	own := p.pick(func(f *source) bool { return !f.test })
	if len(own) == 0 {
		return
	}
	name := own[0].Name.Name
	for _, f := range own {
		if path.Base(f.path) == "doc.go" {
			if !startsWith(f.Doc.Text(), "Package "+name) {
				c.report(f.Package, "package-doc", "doc.go has no package comment that starts with %q", "Package "+name)
			}
			return
		}
	}
	c.report(own[0].Package, "package-doc", "package %s has no doc.go; it is the specification, write it first", name)
}

var output = regexp.MustCompile(`(?i)^\s*(unordered )?output:`)

// examples applies the rule example.
func (c *checker) examples(p *pkg) {
	if c.row.Kind == Support || strings.HasPrefix(p.dir, "internal/") {
		return // a conformance test wants a *testing.T, which an Example has not
	}
	found, runs := false, false
	for _, f := range p.pick(func(f *source) bool { return f.test }) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || fn.Body == nil || fn.Type.Params.NumFields() > 0 || !strings.HasPrefix(fn.Name.Name, "Example") {
				continue
			}
			found = true
			for _, g := range f.Comments {
				if g.Pos() > fn.Body.Lbrace && g.End() < fn.Body.Rbrace && output.MatchString(g.Text()) {
					runs = true
				}
			}
		}
	}
	switch {
	case !found:
		c.report(p.files[0].Package, "example", "package %s has no Example; write the shortest real use in example_test.go", p.dir)
	case !runs && c.row.Kind == Core:
		c.report(p.files[0].Package, "example", "no Example of package %s has an Output comment, so none is run", p.dir)
	}
}

// docs applies the rule doc to the current file.
func (c *checker) docs() {
	for _, d := range c.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				c.named(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					c.typeDocs(d, s)
				case *ast.ValueSpec:
					c.valueDocs(d, s)
				}
			}
		}
	}
}

// named demands a doc that starts with the name.
func (c *checker) named(name *ast.Ident, doc *ast.CommentGroup) {
	switch {
	case doc == nil:
		c.report(name.Pos(), "doc", "exported %s has no comment", name.Name)
	case !startsWith(doc.Text(), name.Name):
		c.report(name.Pos(), "doc", "the comment of %s does not start with its name", name.Name)
	}
}

func (c *checker) typeDocs(d *ast.GenDecl, s *ast.TypeSpec) {
	if !s.Name.IsExported() {
		return
	}
	doc := s.Doc
	if doc == nil && !d.Lparen.IsValid() {
		doc = d.Doc
	}
	c.named(s.Name, doc)
	ast.Inspect(s.Type, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			return false // its parameters are fields to the parser
		case *ast.StructType:
			for _, f := range n.Fields.List {
				c.member(s.Name.Name, f)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				if len(f.Names) > 0 {
					c.member(s.Name.Name, f)
				}
			}
		}
		return true
	})
}

// member demands a comment above or behind a struct field or an interface method.
func (c *checker) member(owner string, f *ast.Field) {
	if f.Doc != nil || f.Comment != nil {
		return
	}
	names := f.Names
	if len(names) == 0 {
		if id := typeName(f.Type); id != nil {
			names = []*ast.Ident{id}
		}
	}
	for _, name := range names {
		if name.IsExported() {
			c.report(name.Pos(), "doc", "exported %s.%s has no comment; state unit, range and what zero means", owner, name.Name)
		}
	}
}

func (c *checker) valueDocs(d *ast.GenDecl, s *ast.ValueSpec) {
	for _, name := range s.Names {
		switch {
		case !name.IsExported():
			continue
		case !d.Lparen.IsValid():
			c.named(name, d.Doc)
		case s.Doc == nil && s.Comment == nil:
			c.report(name.Pos(), "doc", "exported %s has no comment above it or behind it", name.Name)
		}
		return // one comment serves the names of one line
	}
}

// receiver returns the name of a method's base type.
func receiver(d *ast.FuncDecl) string {
	if len(d.Recv.List) == 0 {
		return ""
	}
	if id := typeName(d.Recv.List[0].Type); id != nil {
		return id.Name
	}
	return ""
}

// typeName returns the identifier of a type such as *p.T[X].
func typeName(x ast.Expr) *ast.Ident {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			return e
		case *ast.SelectorExpr:
			return e.Sel
		case *ast.StarExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.IndexListExpr:
			x = e.X
		default:
			return nil
		}
	}
}

// startsWith says whether text begins with the words of name, ending where name ends.
func startsWith(text, name string) bool {
	rest, ok := strings.CutPrefix(text, name)
	r, _ := utf8.DecodeRuneInString(rest)
	return ok && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}
