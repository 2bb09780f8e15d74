package lint

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strconv"
	"strings"
)

// impure are the standard packages that bring something into a core which is not in its arguments. A path covers what
// is below it.
var impure = []string{
	"C", "crypto/rand", "expvar", "flag", "hash/maphash", "log", "net", "os", "plugin", "runtime", "sync", "syscall",
	"testing", "unsafe",
}

// clockFuncs read the clock, sleep or start a timer.
var clockFuncs = map[string][]string{
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"context": {
		"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause",
	},
}

// seeded are the names of math/rand/v2 that do not touch the global source.
var seeded = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewZipf", "PCG", "Rand", "Source", "Zipf"}

const randV2 = "math/rand/v2"

// imports applies the rules floor, third-party, import and rand to the current file's import lines.
func (c *checker) imports() {
	for _, spec := range c.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if spec.Name != nil && spec.Name.Name == "." {
			c.report(spec.Pos(), "import", "dot import of %s; name the package where it is used", p)
		}
		dir, ours := directory(c.house.Module, p)
		switch {
		case ours:
			c.floor(spec, dir)
		case !strings.Contains(strings.Split(p, "/")[0], "."):
			if p == "math/rand" {
				c.report(spec.Pos(), "rand", "import of math/rand; take a *rand.Rand of math/rand/v2")
			}
			if c.row.Kind == Core && !c.file.test && covers(impure, p) {
				c.report(spec.Pos(), "import", "a core imports %s; take what it needs as an argument, or move it to a driver", p)
			}
		default:
			c.thirdParty(spec, p)
		}
	}
}

// floor checks an import of the module's own package in dir.
func (c *checker) floor(spec *ast.ImportSpec, dir string) {
	parent := path.Dir(c.dir)
	target, _ := c.house.row(dir)
	switch {
	case !c.listed, c.file.external():
		return
	case slices.Contains(c.row.Imports, dir), slices.Contains(c.house.Helpers, dir) && c.row.Kind != Support:
		return
	case dir == parent && dir != "." && dir != "internal":
		return
	case c.file.test && target.Kind == Support:
		return
	}
	c.report(spec.Pos(), "floor", "%s may not import %s; its row in internal/lint/house.go allows %s",
		c.dir, dir, or(strings.Join(c.row.Imports, ", "), "nothing of the module"))
}

func (c *checker) thirdParty(spec *ast.ImportSpec, p string) {
	allowed := append([]string{btree}, c.row.ThirdParty...)
	if c.row.Kind == Driver {
		allowed = append(allowed, zap)
	}
	if c.file.test {
		allowed = append(allowed, testify)
	}
	if c.listed && !covers(allowed, p) {
		c.report(spec.Pos(), "third-party", "%s may not import %s, only %s", c.dir, p, strings.Join(allowed, ", "))
	}
}

// qualified returns the import path and name of an expression such as time.Now; p is "" for any other expression.
func (c *checker) qualified(n ast.Node) (p, name string) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	pkg, ok := c.info.Uses[x].(*types.PkgName)
	if !ok {
		return "", ""
	}
	return pkg.Imported().Path(), sel.Sel.Name
}

// rand applies the rule rand to the uses of math/rand/v2.
func (c *checker) rand() {
	ast.Inspect(c.file.File, func(n ast.Node) bool {
		if p, name := c.qualified(n); p == randV2 && !slices.Contains(seeded, name) {
			c.report(n.Pos(), "rand", "rand.%s draws from the global source; take a *rand.Rand or a seed", name)
		}
		return true
	})
}

// testClock applies the rule clock to a test file. Deadlines of contexts are left to tests: they guard, and decide
// nothing.
func (c *checker) testClock() {
	for _, spec := range c.file.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return
		}
	}
	ast.Inspect(c.file.File, func(n ast.Node) bool {
		if p, name := c.qualified(n); p == "time" && slices.Contains(clockFuncs[p], name) {
			c.report(n.Pos(), "clock", "a test uses time.%s; state the time, or run in testing/synctest", name)
		}
		return true
	})
}

func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}
