package checkpoint

import (
	"testing"
	"time"
)

// FuzzMessages feeds a leader and a rank whatever a transport may bring, and
// checks that neither panics, and that the rank owes nothing it did not lock.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1, 0, 12, 0, 0, 0, 0, 3, 0, 1, 1, 0})
	f.Add([]byte{0, 0, 255, 255, 255, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	kinds := []string{
		msgAsk, msgPrepare, msgSnapshot, msgResume, msgCommit, msgAbort, msgStep, msgBusy, msgReady, msgStaged, msgStored, msgRefuse, msgResumed,
		msgTerminated, msgBroken, msgGone, "", "nonsense",
	}
	states := []State{"", Running, Locked, Checkpointed, Failed, Checkpointing, Restoring, Gone, UnknownState(9)}
	errs := []error{nil, ErrTimeout, ErrInFlight, ErrGone, ErrWedged, ErrIllegalState, ErrFenced, errModel}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := New(Config{Job: "j", Ranks: 2, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAgent(AgentConfig{Job: "j"})
		if err != nil {
			t.Fatal(err)
		}
		now := t0
		for ; len(data) >= 5; data = data[5:] {
			e := Event{Kind: EventKind(data[0] % 8), Op: uint64(data[1]), Err: errs[data[2]%8], Before: states[data[3]%9], State: states[data[4]%9]}
			e.Message = Message{
				Kind: kinds[int(data[1])%len(kinds)], Job: "j", Rank: int(data[2]%3) - 1 + int(data[4]>>7), Epoch: Epoch(data[3]), Term: Term(data[4] % 3), Stored: data[2] > 99,
				Plan: Plan{Lock: 1, Silence: time.Second, Pause: time.Second, StopAfter: data[0] > 99, Early: data[0] > 199},
			}
			if e.Kind == EventDone && data[1] < 99 {
				e.Op = max(c.op, a.op) // mostly what is waited for
			}
			e.Request.StopAfter = data[0] > 99
			now = now.Add(time.Duration(data[3]) * time.Millisecond)
			_, _ = c.Step(now, e) // a refusal is an answer
			if _, err := a.Step(now, e); err != nil {
				t.Fatal(err)
			}
			if s, owed := a.Hold(); owed && a.epoch == 0 {
				t.Fatalf("owes a target that is %s and was never to be locked", s)
			}
			c.NextWake()
			a.NextWake()
		}
	})
}
