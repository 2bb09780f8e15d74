package main

import (
	"fmt"
	"html/template"
	"image/color"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
)

// ink is a colour of the report, in its light and in its dark form. Plots are
// drawn in the light form, and every use of it is then replaced by the name, which
// the page gives the form that suits.
type ink struct {
	Name, Light, Dark string // as CSS has them
}

// The colours of the page. Text and lines are legible on the surface in both
// forms: a test holds them to the ratios of WCAG 2.2, AA. Immutable: never written to.
var (
	surface = ink{"surface", "#FFFFFF", "#14171C"}
	text    = ink{"ink", "#1B1F26", "#E6E9EE"}
	muted   = ink{"muted", "#5B6470", "#9AA4B1"}
	faint   = ink{"faint", "#8A94A0", "#6F7985"} // lines that only give context
	grid    = ink{"grid", "#DFE3E8", "#2B313A"}
)

// policyInks and policyDashes tell policies apart, with colour or without.
// Immutable: never written to.
var (
	policyInks = map[string]ink{
		"fifo":   {"p-fifo", "#AB4501", "#FC9B6F"},
		"srtf":   {"p-srtf", "#067132", "#7CD591"},
		"las":    {"p-las", "#8A3D9A", "#D695E4"},
		"static": {"p-static", "#796006", "#F2CD64"},
		"ltgf":   {"p-ltgf", "#0961BB", "#70ADFB"},
	}
	policyDashes = map[string][]vg.Length{
		"fifo": {6, 3}, "srtf": {2, 2}, "las": {8, 2, 2, 2}, "static": {1, 3}, "ltgf": nil,
	}
)

// tenantInks are those of tenants in turn; the last is for all others together.
// Immutable: never written to.
var tenantInks = [...]ink{
	{"t1", "#2063B0", "#75AEF5"},
	{"t2", "#AB5E01", "#FFBA81"},
	{"t3", "#055D29", "#56A76A"},
	{"t4", "#8E4088", "#D58ECF"},
	{"t5", "#037A85", "#55E1F0"},
	{"t6", "#892122", "#D2736C"},
	{"t7", "#6451AC", "#AA9DF1"},
	{"t8", "#707100", "#CFD271"},
	{"t9", "#85204A", "#CD718F"},
	{"t10", "#077365", "#39C3AE"},
	{"t11", "#B55422", "#FEB898"},
	{"t12", "#4A5563", "#A9B3C0"},
}

// inks are all colours, in a fixed order.
func inks() []ink {
	all := []ink{surface, text, muted, faint, grid}
	for _, p := range policies() {
		all = append(all, policyInks[p.Flag])
	}
	return append(all, tenantInks[:]...)
}

// rgb is the colour that plots are drawn in.
func (k ink) rgb() color.Color {
	n, err := strconv.ParseUint(k.Light[1:], 16, 24)
	if err != nil {
		panic(err) // a constant of this file
	}
	return color.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 255}
}

// themes are the CSS variables of both forms.
func themes() string {
	var light, dark strings.Builder
	for _, k := range inks() {
		fmt.Fprintf(&light, "--%s:%s;", k.Name, k.Light)
		fmt.Fprintf(&dark, "--%s:%s;", k.Name, k.Dark)
	}
	return ":root{color-scheme:light dark;" + light.String() + "}\n@media (prefers-color-scheme:dark){:root{" + dark.String() + "}}\n"
}

// Style is how the policy's lines are drawn, as CSS.
func (p policy) Style() template.CSS {
	var dashes []string
	for _, d := range policyDashes[p.Flag] {
		dashes = append(dashes, strconv.FormatFloat(float64(d), 'f', -1, 64))
	}
	css := "stroke:var(--" + policyInks[p.Flag].Name + ")"
	if dashes != nil {
		css += ";stroke-dasharray:" + strings.Join(dashes, ",")
	}
	return template.CSS(css) //nolint:gosec // constants of this file
}
