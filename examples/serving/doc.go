// Command serving puts the library's batcher and autoscaler in front of a model that answers real HTTP requests, and shows what
// either of them is worth.
//
//	go -C examples run ./serving                     some 15 seconds: calm, a burst, calm again
//	go -C examples run ./serving -out latency.html   also a histogram, as a page that fetches nothing
//	go -C examples run ./serving -burst 400 -replicas 6 -for 30s
//	go -C examples run ./serving -check              also whether all that must hold does, on any machine
//
// # What runs
//
// Three front doors listen on the loopback interface, each with replicas of its own, and every request is sent to all three: one
// with the batcher and the autoscaler, one that only lacks batches, one whose number of replicas is fixed. door.go is the whole
// embedding, for you to copy: a loop that alone touches serving.Batcher and autoscale.Scaler, and to which handlers and replicas
// send what happens.
//
// A replica is a goroutine that takes time to start, sleeps for as long as a batch of its size would take, and answers with squares.
// The batcher knows of that only what is measured at the beginning. Requests come at random, all doors get the same ones, and
// how long they take counts from when they were due.
//
// # What it shows
//
// A view that is refreshed in place, or lines where the output is no terminal; then a table. A request that is refused, because it
// would be late, is not in time. Quantiles are of those that were answered. Replica-seconds count from when a replica is started,
// not from when it is ready. Figures differ a little from run to run, since time is real here; for decisions that come out the same
// every time see package sim/serve.
//
// Interrupted, it sends no more, answers what is on its way, and prints what it has.
package main
