package cooperative

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// Save says what a rank is to save.
type Save struct {
	Epoch    checkpoint.Epoch                 // Epoch is the checkpoint, over 0. A rank that has saved it to Place already says so again.
	Place    string                           // Place is the clean absolute path of the image, a new one for each rank and epoch; at most 180 bytes as it goes over the wire. Its folder is there already.
	Progress func(done, total lockstep.Bytes) // Progress is told how far the rank is, total 0 if it does not know; nil means nobody. It must not block or call back.
}

// TrainingStep asks a rank which step it will run next. The answer comes when the step
// that is under way ends.
func (h *Host) TrainingStep(ctx context.Context, t checkpoint.Target) (uint64, error) {
	r, err := h.find(t)
	if err == nil {
		err = h.await(ctx, r)
	}
	var a answer
	if err == nil {
		a, err = h.ask(ctx, r, request{verb: "step", want: "step"})
	}
	if err != nil {
		return 0, h.fail("step", t, r, err)
	}
	return a.list[0], nil
}

// LockAt has a rank stand still before a step; 0 means its next, whichever that is. If the
// rank does not get there in time, or ctx ends, it is told to forget it, and goes on:
// checkpoint.ErrTimeout. A step that is over is checkpoint.ErrRefused. It waits for a hook
// to connect as well.
func (h *Host) LockAt(ctx context.Context, t checkpoint.Target, step uint64, o checkpoint.LockOptions) error {
	if o.Timeout <= 0 || step >= 1<<63 {
		r, _ := h.find(t)
		return h.fail("lock", t, r, fault(lockstep.ErrInvalid, "lock", "Timeout", o.Timeout.String(), "want more than 0, and a step below 2^63"))
	}
	r, err := h.enter(ctx, t)
	if err != nil {
		return h.fail("lock", t, r, err)
	}
	defer r.leave()
	if err := h.stop(ctx, r, step, o.Timeout); err != nil {
		return h.fail("lock", t, r, err)
	}
	return nil
}

// stop asks a rank to stand still, and takes that back if it does not.
func (h *Host) stop(ctx context.Context, r *rank, step uint64, timeout time.Duration) error {
	by, within, cancel, err := until(ctx, timeout)
	if err != nil {
		return err
	}
	defer cancel()
	if err := h.await(within, r); err != nil {
		return err
	}
	h.mu.Lock()
	held := r.held
	r.wanted = true
	h.mu.Unlock()
	a, err := h.ask(within, r, request{verb: "prepare", want: "ready", args: []string{
		strconv.FormatUint(step, 10), strconv.FormatInt(int64(by), 10), strconv.FormatInt(int64(h.cfg.Hold), 10),
	}})
	h.mu.Lock()
	r.wanted = false
	h.mu.Unlock()
	if err == nil && step != 0 && a.list[0] != step {
		// Its peers stand elsewhere, so that their images would not go together.
		err = fault(ErrProtocol, "lock", "step", strconv.FormatUint(a.list[0], 10), "the hook stands there, want "+strconv.FormatUint(step, 10))
	}
	if err != nil && !held && !errors.Is(err, checkpoint.ErrInFlight) { // else it is as it was
		h.cancel(r)
	}
	return err
}

// cancel tells a rank to forget that it was asked to stop. The order of messages sees to it
// that one that stops nevertheless goes on at once; the answer counts when it comes.
func (h *Host) cancel(r *rank) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.conn != nil {
		h.serial++
		h.sendLocked(r, coop.Numbers("resume", h.serial))
	}
}

// Save has a rank that stands still write its state to a place, and returns what it has
// written, checked. It leaves the rank standing. If ctx ends first the save goes on, and
// until it has ended every further call for the rank but State is checkpoint.ErrInFlight;
// the same Save after that returns what it came to.
func (h *Host) Save(ctx context.Context, t checkpoint.Target, s Save) (checkpoint.RankImage, error) {
	r, err := h.enter(ctx, t)
	if err != nil {
		return checkpoint.RankImage{}, h.fail("save", t, r, err)
	}
	defer r.leave()
	word, err := encodePlace(s.Place)
	if err == nil && (s.Epoch == 0 || s.Epoch >= 1<<63) {
		err = fault(lockstep.ErrInvalid, "save", "Epoch", strconv.FormatUint(uint64(s.Epoch), 10), "want 1 to 2^63-1")
	}
	var a answer
	if err == nil {
		a, err = h.ask(ctx, r, request{verb: "snapshot", want: "stored", args: []string{strconv.FormatUint(uint64(s.Epoch), 10), word}, progress: s.Progress, save: true})
	}
	if err == nil {
		err = h.verify(ctx, s.Place, a)
	}
	if err != nil {
		return checkpoint.RankImage{}, h.fail("save", t, r, err)
	}
	return checkpoint.RankImage{Rank: r.target.Rank, Image: a.digest, Step: a.list[0], Bytes: lockstep.Bytes(a.list[1]), Took: time.Duration(a.list[2])}, nil
}

// Saver returns what has ranks save themselves as a checkpoint.Rank asks for it. place says
// where the image of a request goes; it is called for each save, and has to make the folder.
func (h *Host) Saver(place func(r checkpoint.SaveRequest) string) checkpoint.Saver {
	return saver{host: h, place: place}
}

type saver struct {
	host  *Host
	place func(checkpoint.SaveRequest) string
}

// Save implements checkpoint.Saver.
func (s saver) Save(ctx context.Context, r checkpoint.SaveRequest) (checkpoint.RankImage, error) {
	image, err := s.host.Save(ctx, r.Target, Save{Epoch: r.Epoch, Place: s.place(r), Progress: func(done, _ lockstep.Bytes) {
		if r.Progress != nil {
			r.Progress(done)
		}
	}})
	if err == nil && r.Step != 0 && image.Step != r.Step {
		err = &checkpoint.DriverError{
			Kind: checkpoint.ErrCorrupt, Call: "save", PID: r.Target.PID, State: checkpoint.Locked,
			Err: fault(checkpoint.ErrCorrupt, "save", "Step", strconv.FormatUint(image.Step, 10), "want that of its peers, "+strconv.FormatUint(r.Step, 10)),
		}
	}
	if err != nil {
		return checkpoint.RankImage{}, err
	}
	return image, nil
}

// verify holds what a hook has said against what is there. A hook may have been wrong, the
// file system may have been full, or somebody may have been at the file.
func (h *Host) verify(ctx context.Context, place string, a answer) error {
	bad := func(reason string) error {
		return fault(checkpoint.ErrCorrupt, "save", "Place", errtext.Quote(place), reason)
	}
	info, err := os.Lstat(place)
	switch {
	case err != nil:
		return bad(err.Error())
	case !info.Mode().IsRegular():
		return bad("is no regular file")
	case uint64(info.Size()) != a.list[1]:
		return bad("has " + strconv.FormatInt(info.Size(), 10) + " bytes, and the hook says " + strconv.FormatUint(a.list[1], 10))
	case h.cfg.SkipDigest:
		return nil
	}
	f, err := os.Open(place)
	if err != nil {
		return bad(err.Error())
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, ending{ctx, f}); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return bad(err.Error())
	}
	if checkpoint.Digest(sum.Sum(nil)) != a.digest {
		return bad("has another SHA-256 than the hook says")
	}
	return nil
}

// ending is a reader that ends with a context.
type ending struct {
	ctx context.Context
	r   io.Reader
}

func (e ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(p)
}

// Commit tells a rank that an epoch is durable as a whole, so that it may drop older ones.
// It neither holds the rank nor lets it go.
func (h *Host) Commit(ctx context.Context, t checkpoint.Target, epoch checkpoint.Epoch) error {
	r, err := h.enter(ctx, t)
	if err == nil {
		defer r.leave()
		_, err = h.ask(ctx, r, request{verb: "commit", want: "done", args: []string{strconv.FormatUint(uint64(epoch)&(1<<63-1), 10)}})
	}
	if err != nil {
		return h.fail("commit", t, r, err)
	}
	return nil
}

// Abort tells a rank that an epoch is void, and lets it go on. One that runs is success.
// What it had saved is the caller's to remove.
func (h *Host) Abort(ctx context.Context, t checkpoint.Target, epoch checkpoint.Epoch) error {
	return h.release(ctx, "abort", t, request{verb: "abort", want: "resumed", args: []string{strconv.FormatUint(uint64(epoch)&(1<<63-1), 10)}})
}

// Terminate has a rank leave its loop, and returns when it has said that it does: what it
// saved before is all that it saves. Ranks that share collectives are to stand still first,
// or those that have begun a step wait for one that leaves before it. That it ends is for checkpoint/process to see; the
// return of Terminate is the acknowledgement there.
func (h *Host) Terminate(ctx context.Context, t checkpoint.Target) error {
	r, err := h.enter(ctx, t)
	if err == nil {
		defer r.leave()
		_, err = h.ask(ctx, r, request{verb: "terminate", want: "leaving"})
	}
	if err != nil {
		return h.fail("terminate", t, r, err)
	}
	return nil
}
