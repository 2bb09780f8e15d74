package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// progress shows a bar of the bytes that all ranks have written, on a terminal only, until the function that it
// returns is called.
func (w *world) progress(l *checkpoint.Local) (done func()) {
	f, ok := w.out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	const total = ranks * 8 * (2 + shared + private)
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription("saving"))
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				_ = bar.Finish()
				return
			case <-tick.C:
				var sum lockstep.Bytes
				for _, p := range l.Progress() {
					sum += p.Bytes
				}
				if err := bar.Set64(min(int64(sum), total)); err != nil {
					fmt.Fprintln(os.Stderr, "progress:", err)
				}
			}
		}
	}()
	return func() {
		close(stop)
		<-over
	}
}
