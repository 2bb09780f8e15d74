package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
)

// days formats a span as whole days and a tenth.
func days(d time.Duration) string {
	n := d.Hours() / 24
	if n < 1 {
		return clock(d.Seconds())
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " days"
}

// short formats a duration without the units that are zero: 15m, not 15m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// dayClock formats a time of the trace: day 1 is the first.
func dayClock(d time.Duration) string {
	day := d / (24 * time.Hour)
	d %= 24 * time.Hour
	return fmt.Sprintf("day %d %02d:%02d:%02d", day+1, d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second)
}

func percentWhole(v float64) string { return strconv.FormatFloat(v*100, 'f', 0, 64) + "%" }

// times formats a ratio.
func times(v float64) string {
	if v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// wrap breaks s into lines of at most width characters.
func wrap(s string, width int) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(s) {
		w := utf8.RuneCountInString(word)
		switch {
		case i > 0 && n+1+w > width:
			b.WriteByte('\n')
			n = 0
		case i > 0:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += w
	}
	return b.String()
}

// gpuCount formats how many GPUs a job has.
func gpuCount(n lockstep.MilliGPU) string {
	if n == lockstep.WholeGPU {
		return "1 GPU"
	}
	return n.String() + " GPUs"
}

// plural formats a number of things.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return count(float64(n)) + " " + noun
}
