// Package serving answers what batch to send and when, under an objective.
package serving
