package harness

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is text in columns. The first column is aligned left, the others right.
type Table struct {
	Head []string   // Head is the first line.
	Rows [][]string // Rows are the others, each as long as Head.
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print writes t to w, with a blank line before and after.
func (t *Table) Print(w io.Writer) error {
	widths := make([]int, len(t.Head))
	lines := append([][]string{t.Head}, t.Rows...)
	for _, line := range lines {
		for i, cell := range line {
			if i < len(widths) {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	var b strings.Builder
	b.WriteByte('\n')
	for n, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			if i >= len(widths) {
				break
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				text.WriteString(cell + pad)
			default:
				text.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
		if n == 0 {
			total := 2 * (len(widths) - 1)
			for _, width := range widths {
				total += width
			}
			b.WriteString(strings.Repeat("-", max(total, 0)) + "\n")
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// Table prints t.
func (b *Bench) Table(t *Table) {
	// An output that fails would show in the results as well.
	_ = t.Print(b.out)
}
