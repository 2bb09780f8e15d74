package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// core applies the rules that hold in a core's own files to the current one.
func (c *checker) core() {
	for _, d := range c.file.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				c.global(d)
			}
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.report(d.Pos(), "init", "a core has no init; compute it in New or declare a table")
			}
		}
		c.body(d)
	}
}

// body walks one declaration.
func (c *checker) body(d ast.Decl) {
	doc := ""
	if fn, ok := d.(*ast.FuncDecl); ok {
		doc = strings.ToLower(fn.Doc.Text())
	}
	unordered := make(map[ast.Node]bool) // calls whose consumer does not depend on order
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			c.report(n.Pos(), "go", "a core starts no goroutine; the caller serializes calls")
		case *ast.SelectorExpr:
			if p, name := c.qualified(n); slices.Contains(clockFuncs[p], name) {
				c.report(n.Pos(), "clock", "a core uses %s.%s; take now as an argument and return the next wake-up", p, name)
			}
		case *ast.CallExpr:
			c.call(n, doc, unordered)
		case *ast.RangeStmt:
			if n.Key != nil && c.isMap(n.X) && !c.near(n.Pos(), "order") {
				c.report(n.Pos(), "map-order", "range over a map; sort the keys, or say in a comment why order cannot matter")
			}
		case *ast.BinaryExpr:
			if n.Op == token.ADD || n.Op == token.SUB {
				c.fused(n.X)
				c.fused(n.Y)
			}
		case *ast.AssignStmt:
			if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
				c.fused(n.Rhs[0])
			}
		}
		return true
	})
}

func (c *checker) call(n *ast.CallExpr, doc string, unordered map[ast.Node]bool) {
	if c.builtin(n, "panic") && !c.near(n.Pos(), "invariant:") && !strings.Contains(doc, "panic") {
		c.report(n.Pos(), "panic", `panic without a reason; return an error, or write "// invariant: why this cannot happen", or document that the function panics`)
	}
	switch p, name := c.qualified(n.Fun); {
	case p == "slices" && strings.HasPrefix(name, "Sorted"), p == "maps" && (name == "Collect" || name == "Insert"):
		for _, arg := range n.Args {
			unordered[ast.Unparen(arg)] = true
		}
	case p == "maps" && (name == "Keys" || name == "Values" || name == "All"):
		if !unordered[n] && !c.near(n.Pos(), "order") {
			c.report(n.Pos(), "map-order", "maps.%s outside slices.Sorted; sort, or say in a comment why order cannot matter", name)
		}
	}
}

func (c *checker) builtin(n *ast.CallExpr, names ...string) bool {
	id, ok := ast.Unparen(n.Fun).(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := c.info.Uses[id].(*types.Builtin)
	return ok && slices.Contains(names, b.Name())
}

// isMap says whether x is known to be a map.
func (c *checker) isMap(x ast.Expr) bool {
	t := c.info.Types[x].Type
	if t == nil {
		return false
	}
	switch u := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface: // of a type parameter
		for i := range u.NumEmbeddeds() {
			if embedsMap(u.EmbeddedType(i)) {
				return true
			}
		}
	}
	return false
}

func embedsMap(t types.Type) bool {
	if u, ok := t.(*types.Union); ok {
		for i := range u.Len() {
			if embedsMap(u.Term(i).Type()) {
				return true
			}
		}
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// fused reports x if it is a float product about to be added.
func (c *checker) fused(x ast.Expr) {
	x = ast.Unparen(x)
	if neg, ok := x.(*ast.UnaryExpr); ok && (neg.Op == token.SUB || neg.Op == token.ADD) {
		x = ast.Unparen(neg.X)
	}
	mul, ok := x.(*ast.BinaryExpr)
	if !ok || mul.Op != token.MUL || c.info.Types[mul].Value != nil {
		return
	}
	if c.isFloat(mul) || c.isFloat(mul.X) || c.isFloat(mul.Y) {
		c.report(mul.Pos(), "fma", "a product is added unrounded; write float64(a*b) + c, so that no target fuses it")
	}
}

func (c *checker) isFloat(x ast.Expr) bool {
	t := c.info.Types[x].Type
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsFloat != 0
}

// global checks a package-level var declaration.
func (c *checker) global(d *ast.GenDecl) {
	for _, s := range d.Specs {
		spec := s.(*ast.ValueSpec)
		marked := slices.ContainsFunc([]*ast.CommentGroup{d.Doc, spec.Doc, spec.Comment}, func(g *ast.CommentGroup) bool {
			return strings.Contains(strings.ToLower(g.Text()), "immutable")
		})
		for i, name := range spec.Names {
			var value ast.Expr
			if i < len(spec.Values) {
				value = spec.Values[i]
			}
			switch {
			case name.Name == "_" || c.sentinel(name.Name, value):
			case marked && len(spec.Values) > 0:
				c.tables[c.info.Defs[name]] = true
			default:
				c.report(name.Pos(), "global", `package-level variable %s; pass it in, or make it an error sentinel, or say in its comment that it is immutable`, name.Name)
			}
		}
	}
}

func (c *checker) sentinel(name string, value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok || !strings.HasPrefix(strings.ToLower(name), "err") {
		return false
	}
	p, fn := c.qualified(call.Fun)
	return p == "errors" && fn == "New" || p == "fmt" && fn == "Errorf"
}

// writes reports where the current file changes a variable marked immutable.
func (c *checker) writes() {
	if len(c.tables) == 0 {
		return
	}
	check := func(x ast.Expr) {
		if id := rootIdent(x); id != nil && c.tables[c.info.Uses[id]] {
			c.report(x.Pos(), "global", "%s is marked immutable, and changed or handed out here", id.Name)
		}
	}
	ast.Inspect(c.file.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, x := range n.Lhs {
					check(x)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				check(n.Key)
				check(n.Value)
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				check(n.X)
			}
		case *ast.CallExpr:
			if c.builtin(n, "delete", "clear", "copy") && len(n.Args) > 0 {
				check(n.Args[0])
			}
		}
		return true
	})
}

// rootIdent returns the identifier that an expression such as x[i].f starts from, nil if there is none.
func rootIdent(x ast.Expr) *ast.Ident {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			return e
		case *ast.IndexExpr:
			x = e.X
		case *ast.SelectorExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		default:
			return nil
		}
	}
}
