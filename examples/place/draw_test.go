package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawMap(t *testing.T) {
	racks := []rackView{
		{Name: "b0/r0", Nodes: []nodeView{{"n0", "AAAA"}, {"n1", "AB.."}, {"long-name", "----"}}},
		{Name: "r1", Nodes: []nodeView{{"n3", ""}, {"n4", "#"}}},
		{Name: "empty"},
	}
	var b strings.Builder
	require.NoError(t, drawMap(&b, racks, 80))
	require.Equal(t, ""+
		"b0/r0  n0    n1    long-name\n"+
		"       AAAA  AB..  ----\n"+
		"r1     n3  n4\n"+
		"       ()  #\n"+
		"empty\n"+
		"\n", b.String())

	b.Reset()
	require.NoError(t, drawMap(&b, racks[:1], 20))
	require.Equal(t, ""+
		"b0/r0  n0    n1\n"+
		"       AAAA  AB..\n"+
		"       long-name\n"+
		"       ----\n", b.String(), "a rack that is too wide goes on below")
}

func TestLettersRunOut(t *testing.T) {
	require.Equal(t, 'A', letter(0))
	require.Equal(t, 'z', letter(51))
	require.Equal(t, '#', letter(52))
}

func TestSparkline(t *testing.T) {
	require.Equal(t, "▁▁▅██▁", sparkline([]float64{0, 0.1, 0.5, 1, 2, math.NaN()}))
	require.Empty(t, sparkline(nil))
}
