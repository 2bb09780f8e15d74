// Package scheduler puts the parts together: it is what a host would copy.
package scheduler
