package source

import "github.com/lockstep-gpu/lockstep/topology"

// Word is a run of characters that are neither blanks nor tabs.
type Word struct {
	Text   string // Text is not empty.
	Column int    // Column is where it begins, 1 for the first byte of the line.
}

// Words returns the words of a line.
func Words(line string) (words []Word) {
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		begin := i
		for i < len(line) && line[i] != ' ' && line[i] != '\t' {
			i++
		}
		words = append(words, Word{line[begin:i], begin + 1})
	}
	return words
}

// Nearest returns for each device the index of its network card, -1 where there
// are no cards. The links are by device and then card; all rows are of one
// length.
func Nearest(links [][]topology.Link) []int {
	out := make([]int, len(links))
	var taken []int // by card: by how many devices
	for d, row := range links {
		if taken == nil {
			taken = make([]int, len(row))
		}
		out[d] = -1
		for c, l := range row {
			if best := out[d]; best < 0 || l < row[best] || l == row[best] && taken[c] < taken[best] {
				out[d] = c
			}
		}
		if out[d] >= 0 {
			taken[out[d]]++
		}
	}
	return out
}
