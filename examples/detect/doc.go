// Command detect reads the log of a training job and says, iteration by iteration, whether something is slow and where.
//
//	go -C examples run ./detect                         a made up job in which one stage becomes 1.2 times as slow
//	go -C examples run ./detect -f FILE                 a log; - is standard input, as of tail -f
//	go -C examples run ./detect -f FILE -plot out.svg   also a picture of observed over expected time with the alarms
//	go -C examples run ./detect -demo FILE              write the made up log to a file, to look at
//
// # What it reads
//
// One JSON object a line. The first may describe the job; without it only times are compared with their own past:
//
//	{"stages": 4, "micros": 8, "replicas": 2, "schedule": "1F1B"}
//
// It may have chunks (model chunks a stage, of an interleaved schedule) and rates (a detect.Rates: what chunks take),
// which are otherwise fitted to the first iterations that have chunk times, and nothing else. Then iterations, which may
// have members that are not listed here:
//
//		{"iteration": 7, "seconds": 4.31, "documents": [[[812, 7380], [8192]], ...], "chunks": [...], "loss": 2.1}
//
//	  - iteration: its number.
//	  - seconds: what it took, if known.
//	  - documents: the lengths in tokens of the documents of each micro-batch of each replica, if known. What a
//	    micro-batch costs depends on them: attention is quadratic in each.
//	  - chunks: what stages took, if known, as {"replica": 0, "stage": 1, "kind": "F", "micro": 3, "seconds": 0.11}, with
//	    kind F, B or W, and without micro the sum over all of them.
//	  - phase: "training" unless it says "warming", "saving", "evaluating" or "resizing".
//	  - layout: a number that changes when the layout of the job does.
//	  - tokens_per_second, loss, grad_norm: what else is watched.
//
// Lines of Megatron-LM are read as well ("iteration 7/ 500 | ... | elapsed time per iteration (ms): 4310.2 | ..."), with
// their loss, grad norm and global batch size; other lines are passed over.
//
// # What it prints
//
// A line for each change: an alarm with the factor, the first slow iteration and the suspects, or what to measure if
// nothing says where; the end of an alarm; a layout learned anew; signals that left their usual range. At the end a
// summary with the smallest slowdown that would have been found. -v prints every iteration.
//
// The status is 1 if a line cannot be read, and 0 whatever was found.
package main
