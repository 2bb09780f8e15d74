package cudalog_test

import (
	"bytes"
	"fmt"

	"github.com/lockstep-gpu/lockstep/checkpoint/cudalog"
)

func Example() {
	// What the shim wrote while the job ran.
	file := cudalog.AppendHeader(nil)
	for _, r := range []cudalog.Record{
		{Op: cudalog.Create, Kind: cudalog.Context, Handle: 1},
		{Op: cudalog.Create, Kind: cudalog.Stream, Handle: 2, Owner: 1},
		{Op: cudalog.Create, Kind: cudalog.Stream, Handle: 3, Owner: 1},
		{Op: cudalog.Create, Kind: cudalog.Library, Handle: 4, Owner: 1, Args: []byte("blas")},
		{Op: cudalog.Set, Kind: cudalog.Library, Handle: 4, Key: 1, Uses: []cudalog.Handle{2}},
		{Op: cudalog.Set, Kind: cudalog.Library, Handle: 4, Key: 1, Uses: []cudalog.Handle{3}},
		{Op: cudalog.Destroy, Kind: cudalog.Stream, Handle: 2},
		{Op: cudalog.Create, Kind: cudalog.Memory, Handle: 5, Owner: 1, Addr: 0x7f0000200000, Size: 3 << 20},
	} {
		file = cudalog.AppendRecord(file, &r)
	}

	l, whole, err := cudalog.Read(bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	fmt.Println(whole == int64(len(file)), l.Len(), "records,", l.Compact(), "dropped")

	plan, err := cudalog.Reserve(l.Memory(), cudalog.Granule, nil)
	if err != nil {
		panic(err)
	}
	for _, r := range plan {
		fmt.Printf("reserve %#x, %d bytes\n", r.Addr, r.Size)
	}
	next := uint64(100) // stands for the driver
	err = l.Replay(func(r *cudalog.Record, real func(cudalog.Handle) uint64) (uint64, error) {
		next++
		switch r.Op {
		case cudalog.Create:
			fmt.Println("create kind", r.Kind, "in", real(r.Owner), "->", next)
		case cudalog.Set:
			fmt.Println("set", r.Key, "of", real(r.Handle), "to", real(r.Uses[0]))
		}
		return next, nil
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// true 8 records, 3 dropped
	// reserve 0x7f0000200000, 4194304 bytes
	// create kind 1 in 0 -> 101
	// create kind 2 in 101 -> 102
	// create kind 8 in 101 -> 103
	// set 1 of 103 to 102
	// create kind 6 in 101 -> 105
}

func ExampleActive() {
	a := cudalog.Allocation{Handle: 5, Addr: 0x7f0000000000, Size: 8 << 20}
	used := []cudalog.Range{{Addr: a.Addr + 100, Size: 1000}, {Addr: a.Addr + 5<<20, Size: 1 << 20}}
	parts, err := cudalog.Active(a, used, 64<<10)
	if err != nil {
		panic(err)
	}
	fmt.Println(parts)
	// Output: [{0 65536} {5242880 1048576}]
}
