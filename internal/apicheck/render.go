package apicheck

import (
	"bytes"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Render returns the API of a package as the text of its file.
func Render(p *types.Package) string {
	// The first pass finds which packages are mentioned, the second knows what to call them.
	r := &renderer{pkg: p, names: make(map[string]string)}
	r.run()
	r.chooseNames()
	r.run()
	slices.Sort(r.lines)
	var b strings.Builder
	fmt.Fprintf(&b, "// Exported API of %s; \"go test ./internal/apicheck -update\" rewrites it.\npackage %s\n\n", p.Path(), p.Name())
	for _, path := range slices.Sorted(maps.Keys(r.imports)) {
		if name := r.names[path]; name != r.imports[path].Name() {
			fmt.Fprintf(&b, "import %s %q\n", name, path)
		} else {
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	if len(r.imports) > 0 {
		b.WriteByte('\n')
	}
	for _, line := range r.lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// renderer collects the lines of one package.
type renderer struct {
	pkg     *types.Package
	names   map[string]string         // local name by import path
	imports map[string]*types.Package // imports in use
	seen    map[types.Object]bool
	queue   []types.Object
	lines   []string
}

func (r *renderer) run() {
	r.imports, r.seen = make(map[string]*types.Package), make(map[types.Object]bool)
	r.lines = nil
	for _, name := range r.pkg.Scope().Names() {
		if obj := r.pkg.Scope().Lookup(name); obj.Exported() {
			r.add(obj)
		}
	}
	for len(r.queue) > 0 {
		obj := r.queue[0]
		r.queue = r.queue[1:]
		r.declare(obj)
	}
}

// add queues a declaration of the package once.
func (r *renderer) add(obj types.Object) {
	if !r.seen[obj] {
		r.seen[obj] = true
		r.queue = append(r.queue, obj)
	}
}

func (r *renderer) linef(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *renderer) declare(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Const:
		if b, ok := obj.Type().(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
			r.linef("const %s = %s", obj.Name(), literal(obj.Val(), b))
		} else {
			r.linef("const %s %s = %s", obj.Name(), r.text(obj.Type()), literal(obj.Val(), obj.Type().Underlying().(*types.Basic)))
		}
	case *types.Var:
		r.linef("var %s %s", obj.Name(), r.text(obj.Type()))
	case *types.Func:
		r.linef("func %s%s", obj.Name(), r.signature(obj))
	case *types.TypeName:
		r.typeName(obj)
	}
}

func (r *renderer) typeName(obj *types.TypeName) {
	if alias, ok := obj.Type().(*types.Alias); ok {
		r.linef("type %s%s = %s", obj.Name(), r.params(alias.TypeParams()), r.text(alias.Rhs()))
		return
	}
	named, ok := obj.Type().(*types.Named)
	if !ok {
		return
	}
	under := named.Underlying()
	if s, ok := under.(*types.Struct); ok {
		under = visible(s)
	}
	r.linef("type %s%s %s", obj.Name(), r.params(named.TypeParams()), r.text(under))
	for i := range named.NumMethods() {
		if m := named.Method(i); m.Exported() {
			r.linef("func (%s) %s%s", receiver(m), m.Name(), r.signature(m))
		}
	}
}

// visible returns a struct without the fields that callers cannot name. Embedded fields stay, for what they promote.
func visible(s *types.Struct) *types.Struct {
	var fields []*types.Var
	var tags []string
	hidden, comparable := false, true
	for i := range s.NumFields() {
		f := s.Field(i)
		if f.Exported() || f.Embedded() {
			fields = append(fields, f)
			tags = append(tags, s.Tag(i))
			continue
		}
		hidden = true
		comparable = comparable && types.Comparable(f.Type())
	}
	if !hidden {
		return s
	}
	var blank types.Type = types.NewStruct(nil, nil)
	if !comparable {
		blank = types.NewArray(types.NewSignatureType(nil, nil, nil, nil, nil, false), 0)
	}
	fields = append(fields, types.NewField(token.NoPos, nil, "_", blank, false))
	return types.NewStruct(fields, append(tags, ""))
}

// receiver writes a method's receiver with the type parameters it gives names to.
func receiver(m *types.Func) string {
	sig := m.Type().(*types.Signature)
	t := sig.Recv().Type()
	star := ""
	if p, ok := t.(*types.Pointer); ok {
		star, t = "*", p.Elem()
	}
	out := star + t.(*types.Named).Obj().Name()
	var params []string
	for p := range sig.RecvTypeParams().TypeParams() {
		params = append(params, p.Obj().Name())
	}
	if params != nil {
		out += "[" + strings.Join(params, ", ") + "]"
	}
	return out
}

func (r *renderer) params(list *types.TypeParamList) string {
	var out []string
	for p := range list.TypeParams() {
		out = append(out, p.Obj().Name()+" "+r.text(p.Constraint()))
	}
	if out == nil {
		return ""
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func (r *renderer) signature(f *types.Func) string {
	sig := f.Type().(*types.Signature)
	r.mention(sig)
	var b bytes.Buffer
	b.WriteString(r.params(sig.TypeParams()))
	plain := types.NewSignatureType(nil, nil, nil, writable(sig.Params()), writable(sig.Results()), sig.Variadic())
	types.WriteSignature(&b, plain, r.qualify)
	return b.String()
}

// writable returns the variables without their names if the compiler has given a nameless one a name that is none in
// Go, which it does for some results.
func writable(t *types.Tuple) *types.Tuple {
	var bare []*types.Var
	named := true
	for v := range t.Variables() {
		named = named && (v.Name() == "" || token.IsIdentifier(v.Name()))
		bare = append(bare, types.NewParam(token.NoPos, v.Pkg(), "", v.Type()))
	}
	if named {
		return t
	}
	return types.NewTuple(bare...)
}

func (r *renderer) text(t types.Type) string {
	r.mention(t)
	return types.TypeString(t, r.qualify)
}

// qualify returns the name by which the file calls a package.
func (r *renderer) qualify(p *types.Package) string {
	if p == r.pkg {
		return ""
	}
	r.imports[p.Path()] = p
	return r.names[p.Path()]
}

// chooseNames gives every package that is mentioned a local name, in order of path, so that the choice does not depend
// on which is met first.
func (r *renderer) chooseNames() {
	taken := make(map[string]bool)
	for obj := range r.seen { // a set, so order cannot matter
		taken[obj.Name()] = true
	}
	for _, path := range slices.Sorted(maps.Keys(r.imports)) {
		base := r.imports[path].Name()
		name := base
		for n := 2; taken[name]; n++ {
			name = base + strconv.Itoa(n)
		}
		taken[name] = true
		r.names[path] = name
	}
}

// mention queues the package's unexported types that t is made of: the text needs their declarations.
func (r *renderer) mention(t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		r.own(t.Obj())
		for arg := range t.TypeArgs().Types() {
			r.mention(arg)
		}
	case *types.Alias:
		r.own(t.Obj())
		for arg := range t.TypeArgs().Types() {
			r.mention(arg)
		}
	case *types.Pointer:
		r.mention(t.Elem())
	case *types.Slice:
		r.mention(t.Elem())
	case *types.Array:
		r.mention(t.Elem())
	case *types.Chan:
		r.mention(t.Elem())
	case *types.Map:
		r.mention(t.Key())
		r.mention(t.Elem())
	case *types.Struct:
		for f := range t.Fields() {
			r.mention(f.Type())
		}
	case *types.Interface:
		for e := range t.EmbeddedTypes() {
			r.mention(e)
		}
		for m := range t.ExplicitMethods() {
			r.mention(m.Type())
		}
	case *types.Union:
		for term := range t.Terms() {
			r.mention(term.Type())
		}
	case *types.Tuple:
		for v := range t.Variables() {
			r.mention(v.Type())
		}
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			r.mention(p.Constraint())
		}
		r.mention(t.Params())
		r.mention(t.Results())
	}
}

func (r *renderer) own(obj *types.TypeName) {
	if obj.Pkg() == r.pkg && !obj.Exported() && obj.Parent() == r.pkg.Scope() {
		r.add(obj)
	}
}

// literal writes a constant so that it is read back with the same kind and value.
func literal(v constant.Value, b *types.Basic) string {
	switch {
	case b.Kind() == types.UntypedRune:
		if n, ok := constant.Int64Val(v); ok {
			return strconv.QuoteRune(rune(n))
		}
	case b.Info()&types.IsFloat != 0:
		f, exact := constant.Float64Val(v)
		s := strconv.FormatFloat(f, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		if exact || constant.Compare(constant.MakeFromLiteral(s, token.FLOAT, 0), token.EQL, v) {
			return s
		}
		num, den, _ := strings.Cut(v.ExactString(), "/")
		if den != "" {
			return num + ".0/" + den + ".0"
		}
	}
	return v.ExactString()
}
