// Package checkpoint pauses, saves, moves and resumes GPU jobs: all ranks or none.
package checkpoint
