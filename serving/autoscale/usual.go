package autoscale

import "github.com/lockstep-gpu/lockstep/internal/int128"

// usual is what requests are like: sums that fade.
type usual struct {
	Requests int64 `json:"requests"`
	Prompt   int64 `json:"prompt"`
	Finished int64 `json:"finished"`
	Output   int64 `json:"output"`
}

// What makes the past count half.
const (
	fadeAt     = 1 << 12                   // requests
	mostTokens = int64(fadeAt) * maxTokens // so that sums stay sums even of requests that bring nothing else
)

func (u *usual) add(s Sample) {
	u.Requests += s.Requests
	u.Prompt += s.Prompt
	u.Finished += s.Finished
	u.Output += s.Output
	for u.Requests > fadeAt || u.Prompt > mostTokens {
		u.Requests, u.Prompt = u.Requests/2, u.Prompt/2
	}
	for u.Finished > fadeAt || u.Output > mostTokens {
		u.Finished, u.Output = u.Finished/2, u.Output/2
	}
}

// traffic returns what n requests are expected to be, with that many tokens of prompts if these are known.
func (u *usual) traffic(n, prompt int64) Traffic {
	t := Traffic{Requests: n, Prompt: prompt}
	if prompt < 0 && u.Requests > 0 {
		t.Prompt = int128.MulDivUp(n, u.Prompt, u.Requests)
	}
	if u.Finished > 0 {
		t.Output = int128.MulDivUp(n, u.Output, u.Finished)
	}
	t.Prompt = max(t.Prompt, 0)
	return t
}
