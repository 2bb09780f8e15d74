package imagestore_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
)

// Example saves two ranks that share their parameters, commits the epoch, and
// reads one of them back.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := imagestore.Open(imagestore.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	params := bytes.Repeat([]byte("weights "), 1<<17)
	m := &checkpoint.Manifest{Job: "train", Epoch: 1, Term: 1, Step: 100}
	for rank := range 2 {
		v, err := s.Begin(ctx, imagestore.SaveOptions{Job: "train", Epoch: 1, Rank: rank, Step: 100})
		if err != nil {
			panic(err)
		}
		w, err := v.Create("params", checkpoint.StreamHint{})
		if err != nil {
			panic(err)
		}
		if _, err := w.Write(params); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		image, err := v.Commit(ctx)
		if err != nil {
			panic(err)
		}
		st := v.Stats()
		fmt.Printf("rank %d: %d bytes, all of them there already: %t\n", rank, image.Bytes, st.Reused == st.Raw)
		m.Ranks = append(m.Ranks, image)
	}
	if err := s.Commit(ctx, m); err != nil {
		panic(err)
	}

	image, err := s.Image(ctx, "train", 1, 1)
	if err != nil {
		panic(err)
	}
	defer image.Close()
	r, err := image.Open("params")
	if err != nil {
		panic(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	fmt.Println("restored:", bytes.Equal(params, got), err)
	// Output:
	// rank 0: 1048576 bytes, all of them there already: false
	// rank 1: 1048576 bytes, all of them there already: true
	// restored: true <nil>
}

// ExampleSave_CreateActive saves a pool of which an allocator uses a part.
func ExampleSave_CreateActive() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := imagestore.Open(imagestore.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	v, err := s.Begin(ctx, imagestore.SaveOptions{Job: "serve", Epoch: 1})
	if err != nil {
		panic(err)
	}
	pool := bytes.Repeat([]byte{0xcc}, 1<<20) // stale bytes everywhere
	w, err := v.CreateActive("pool", checkpoint.StreamHint{}, []imagestore.Range{{Offset: 4096, Length: 8192}})
	if err != nil {
		panic(err)
	}
	_, err = w.Write(pool)
	fmt.Println(err, w.Close(), v.Stats().Raw-v.Stats().Zero, "of", v.Stats().Raw)
	fmt.Println(v.Abort())
	// Output:
	// <nil> <nil> 8Ki of 1Mi
	// <nil>
}
