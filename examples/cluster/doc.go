// Command cluster replays days of a multi-tenant trace under several scheduling
// policies and says which is fairest and which is fastest, and why.
//
//	go -C examples run ./cluster                       three made up days on 24 nodes of 8 GPUs
//	go -C examples run ./cluster -trace FILE -weights FILE
//	go -C examples run ./cluster -policies fifo,ltgf -lease 30m -check
//	go -C examples run ./cluster -json | jq .findings
//
// Files are looked for from the folder examples, which is where go -C goes.
//
// # What runs
//
// Every policy is a scheduler.Scheduler, the reference composition of the library,
// with another scheduler.Rule; sim.Run tells it what happens and does what it says.
// Which parts it is made of is package scheduler's to read; here the whole
// embedding is options.simulate. All policies get the same jobs, which ask for
// GPUs alone and know how long they run, and all pay for checkpoints and resumes.
// LTGF runs a second time with every lease that ends given back and paid for, to
// show what extending in place saves.
//
// # What it reads
//
// A trace is CSV (job_id, tenant, submit_s, duration_s, gpus), Philly's JSON job
// log or Helios' cluster_log.csv, plain or gzip; see package sim/trace. Weights are
// CSV with the columns tenant and weight. They are parts of the whole cluster even
// where a tenant submits nothing: a static quota keeps its part idle, LTGF shares
// it out. Without weights made up tenants have 4 to 1, those of a trace 1 each.
//
// # What it shows
//
// A table with a column for each policy, sentences computed from the figures, and
// a report: one HTML file that fetches nothing. It goes to the folder for temporary
// files unless -o names another place, or none. The report ends with the story of
// one job, told by the scheduler itself: the run is repeated, which comes out the
// same, with a watcher that asks for explanations on the way.
//
// -check adds the books up again from the jobs' records: every job completed, and
// service is GPUs × time held is work plus overhead, in milli-GPU-nanoseconds. With
// -json everything but the member wall is the same for the same flags.
package main
