package main

import (
	"strconv"
	"strings"
)

// name is the name of a cell: kind, context, replicas and factor.
func (c cell) name() string {
	parts := []string{c.Kind, strconv.Itoa(c.Context/1024) + "K", "D" + strconv.Itoa(c.Replicas)}
	if c.Loss {
		parts = append(parts, "loss")
	}
	if c.Kind != limit && c.Kind != chunkLimit {
		parts = append(parts, strconv.FormatFloat(c.Factor, 'g', -1, 64))
	}
	return strings.Join(parts, "/")
}

const (
	k8   = 8 << 10
	k16  = 16 << 10
	k32  = 32 << 10
	k128 = 128 << 10
)

// linkFactor is by how much a link is slower in the cells about links.
const linkFactor = 20

// allCells are the cells in the order in which they run.
func allCells() []cell {
	var list []cell
	for _, factor := range []float64{1.05, 1.1, 1.15, 1.3, 1.5, 2, 3.3} {
		list = append(list, cell{k32, 2, false, step, factor})
	}
	for _, factor := range []float64{1.1, 1.3, 1.5, 2} {
		list = append(list, cell{k32, 4, false, step, factor})
	}
	list = append(list,
		cell{k32, 2, false, ramp, 1.1},
		cell{k32, 2, false, ramp, 1.5},
		cell{k32, 2, false, intermittent, 1.1},
		cell{k32, 2, false, intermittent, 1.5},
		cell{k32, 2, false, recovering, 1.3},
		cell{k32, 2, false, double, 1.3},
		cell{k32, 2, false, link, linkFactor},
	)
	for _, factor := range []float64{1.3, 1.5, 2, 3.3} {
		list = append(list, cell{k32, 2, true, step, factor})
	}
	list = append(list,
		cell{k32, 4, true, step, 1.5},
		cell{k32, 4, true, step, 2},
		cell{k32, 2, false, limit, 0},
		cell{k32, 4, false, limit, 0},
		cell{k32, 2, true, limit, 0},
		cell{k32, 2, false, chunkLimit, 0},
	)
	for _, context := range []int{k8, k16, k128} {
		for _, factor := range []float64{1.05, 1.1, 1.3, 2} {
			list = append(list, cell{context, 2, false, step, factor})
		}
	}
	return list
}

// quickCells are those of a quick run.
func quickCells() []cell {
	return []cell{
		{k32, 2, false, step, 1.1},
		{k32, 2, false, step, 1.3},
		{k32, 4, false, step, 1.3},
		{k32, 2, false, ramp, 1.1},
		{k32, 2, true, step, 2},
		{k32, 2, false, limit, 0},
		{k32, 2, false, link, linkFactor},
		{k8, 2, false, step, 1.1},
	}
}

// choose returns the cells whose names contain one of the parts that a list names, separated by commas.
func choose(cells []cell, parts string) []cell {
	if parts == "" {
		return cells
	}
	var out []cell
	for _, c := range cells {
		for part := range strings.SplitSeq(parts, ",") {
			if strings.Contains(c.name()+"/", part) {
				out = append(out, c)
				break
			}
		}
	}
	return out
}
