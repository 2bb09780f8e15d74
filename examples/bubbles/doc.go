// Command bubbles runs trials in the bubbles of a pipeline-parallel job, in real time and with real processes.
//
//	go -C examples run ./bubbles                      some 8 seconds: a job of 4 stages, trials that ask before each quantum
//	go -C examples run ./bubbles -for 20s             longer
//	go -C examples run ./bubbles -signals             trials that know of nothing, and are stopped by signals
//	go -C examples run ./bubbles -svg out.svg         a picture of the last iterations
//	go -C examples run ./bubbles -stages 6 -micros 12 -forward 15ms -backward 30ms
//
// It runs on Linux only.
//
// # What runs
//
// The job is a stand-in: each stage of a 1F1B pipeline (package pipeline) waits for its neighbour and then sleeps for as long as the
// op takes, give or take a little. The trials are children of the program, which starts itself again for each; a quantum keeps a
// processor busy for an eighth of its time and then waits, as one that drives a device does. Memory is made up.
//
// The job first runs alone, and a trial beside it is timed: these are the samples by which package hpo/bubble knows how far off
// lengths are. Then what it wants loaded on each stage is started, and in each window of the job a stage asks it at every safe point
// which trial may make another quantum. Package hpo/gate lets that trial go for so long, and says when it is still. A stage starts
// no op before it is: what it waits for that is an overrun.
//
// # What it prints
//
// A table while it runs, or a line each second if the output is no terminal. In the end, how many windows there were and were filled,
// the quanta that trials say they have done, the overruns and the time that they cost, and the trial-steps beside the bound of the
// linear programme (bubble.Bound) for the windows as predicted. On a busy machine windows scatter and fewer are filled: that is what
// the packer is for. It stops filling if their lengths change; the reason is printed.
//
// No trial outlives the program, however it ends: a gate ends its trial, and a trial whose supervisor is gone ends itself.
package main
