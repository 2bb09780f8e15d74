// Package sim runs a scheduler on a trace.
package sim
