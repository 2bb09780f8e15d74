package serve

import (
	"slices"
	"time"
)

// Result is what a run came to.
type Result struct {
	Parts    []Part        // Parts are those that Config.Cuts make, in order.
	Timeline []Point       // Timeline has a point at every Interval.
	Recalls  []Recall      // Recalls are those of loans, by when they were made.
	End      time.Duration // End is when the last request was over. GPU time counts up to the last arrival.
	Steps    int64         // Steps is how many iterations all replicas ran.
}

// Part is a part of a run: requests count where they came, GPU time where it passed.
type Part struct {
	Requests  int           // Requests is how many came. Requests = Finished + Refused.
	Finished  int           // Finished is how many got all tokens.
	Refused   int           // Refused is how many no replica can or did serve.
	OnTime    int           // OnTime is how many got the first token within TTFT, counted from when they came.
	OnPace    int           // OnPace is how many had a mean time between tokens within TPOT.
	Attained  int           // Attained is how many had both.
	Tokens    int64         // Tokens is how many tokens those that finished got.
	TTFT      Percentiles   // TTFT is the time to the first token.
	TPOT      Percentiles   // TPOT is the mean time between tokens of a request.
	GPUTime   time.Duration // GPUTime is that of all replicas from their start until they were gone, times GPUs.
	Starting  time.Duration // Starting is the part of GPUTime in which they were not ready.
	Draining  time.Duration // Draining is the part of GPUTime in which they only finished what they had.
	Starts    int           // Starts is how many replicas were started.
	Stops     int           // Stops is how many were told to go.
	Deaths    int           // Deaths is how many were lost.
	Restarted int           // Restarted is how many requests lost their replica and went on elsewhere.
	Lent      time.Duration // Lent is the GPU time that was lent.
	Trained   time.Duration // Trained is the GPU time in which jobs made progress.
	Preempted int           // Preempted is how often a job had to stop.
	Shrunk    int           // Shrunk is how often a job had to give servers back and went on.
}

// Attainment is the share of requests with both objectives, in [0, 1]; 1 of none.
func (p Part) Attainment() float64 {
	if p.Requests == 0 {
		return 1
	}
	return float64(p.Attained) / float64(p.Requests)
}

// Percentiles are nearest-rank percentiles; all are 0 of nothing.
type Percentiles struct {
	P50, P90, P99, Max time.Duration // P50 to Max are what that share of the values is not above.
}

func percentiles(v []time.Duration) Percentiles {
	if len(v) == 0 {
		return Percentiles{}
	}
	slices.Sort(v)
	at := func(percent int) time.Duration { return v[(len(v)*percent+99)/100-1] }
	return Percentiles{at(50), at(90), at(99), at(100)}
}

// Point is how things stand at an instant, after the Scaler decided.
type Point struct {
	At       time.Duration // At is when, from the start.
	Want     int           // Want is what the Scaler wants.
	Ready    int           // Ready is how many replicas take requests.
	Starting int           // Starting is how many are started and not ready.
	Asked    int           // Asked is how many wait for a server.
	Draining int           // Draining is how many finish what they have.
	Held     int           // Held is how many requests wait for a replica that is ready.
	Ongoing  int           // Ongoing is how many requests are in replicas.
	Lent     int           // Lent is how many servers are lent.
	Training int           // Training is on how many of them a job runs.
}

// Recall is one recall of servers.
type Recall struct {
	At       time.Duration // At is when it was made.
	Deadline time.Duration // Deadline is by when they were to be back.
	Back     time.Duration // Back is when the last of them was; -1 if that was not before the end.
	Servers  int           // Servers is how many.
	Forced   bool          // Forced says that a job had to be stopped at the deadline, since it had not left.
}

// Met says whether what was recalled was back in time without force.
func (r Recall) Met() bool { return r.Back >= 0 && r.Back <= r.Deadline && !r.Forced }
