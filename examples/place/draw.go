package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Cells of the map that are no gang's letter.
const (
	cellFree   = '.' // free
	cellClosed = '-' // free, on a node that takes no more members
	cellMany   = '#' // held by a gang for which no letter was left
)

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// letter returns the cell of the n-th gang.
func letter(n int) rune {
	if n < len(letters) {
		return rune(letters[n])
	}
	return cellMany
}

// rackView is one line of the map.
type rackView struct {
	Name  string     `json:"name"`
	Nodes []nodeView `json:"nodes"`
}

// nodeView is one node of the map: a cell for each device, by index. A node
// without devices shows as "()".
type nodeView struct {
	Name  string `json:"name"`
	Cells string `json:"cells"`
}

// drawMap writes a line of names and a line of cells for each rack; racks wider
// than width go on in further pairs of lines.
func drawMap(w io.Writer, racks []rackView, width int) error {
	head := 0
	for i := range racks {
		head = max(head, utf8.RuneCountInString(racks[i].Name))
	}
	var b strings.Builder
	for i := range racks {
		names, cells := new(strings.Builder), new(strings.Builder)
		fmt.Fprintf(names, "%-*s ", head, racks[i].Name)
		fmt.Fprintf(cells, "%-*s ", head, "")
		used := head + 1
		flush := func() {
			b.WriteString(strings.TrimRight(names.String(), " ") + "\n" + strings.TrimRight(cells.String(), " ") + "\n")
			names.Reset()
			cells.Reset()
			used = head + 1
			fmt.Fprintf(names, "%-*s ", head, "")
			fmt.Fprintf(cells, "%-*s ", head, "")
		}
		for k, node := range racks[i].Nodes {
			text := node.Cells
			if text == "" {
				text = "()"
			}
			column := 2 + max(utf8.RuneCountInString(node.Name), utf8.RuneCountInString(text))
			if k > 0 && used+column > width {
				flush()
			}
			fmt.Fprintf(names, " %-*s", column-1, node.Name)
			fmt.Fprintf(cells, " %-*s", column-1, text)
			used += column
		}
		flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sparkline draws fractions, 0 to 1, as one character each; larger and smaller
// values are held at the ends.
func sparkline(fractions []float64) string {
	const bars = "▁▂▃▄▅▆▇█"
	steps := []rune(bars)
	var b strings.Builder
	for _, f := range fractions {
		i := 0
		if f > 0 { // so not NaN either
			i = min(int(f*float64(len(steps))), len(steps)-1)
		}
		b.WriteRune(steps[i])
	}
	return b.String()
}
