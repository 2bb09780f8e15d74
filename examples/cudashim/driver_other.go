//go:build !linux || !(amd64 || arm64)

package main

import "github.com/lockstep-gpu/lockstep/checkpoint/cudalog"

// driver cannot be loaded here.
type driver struct{}

func open(string) (*driver, error)                       { return nil, errCannot }
func (*driver) newContext(uint32) (uint64, error)        { return 0, errCannot }
func (*driver) newStream(uint32) (uint64, error)         { return 0, errCannot }
func (*driver) newEvent(uint32) (uint64, error)          { return 0, errCannot }
func (*driver) restore(cudalog.Reservation) error        { return errCannot }
func (*driver) roundTrip(uint64, string) (string, error) { return "", errCannot }
