// Package pollux is a reference model of the simulator that the authors of Pollux (Qiao et al., OSDI 2021) published
// with their paper, for comparisons: profiled training jobs on a cluster of like nodes, under this module's own
// policies. It is no scheduler: for that see the package scheduler.
//
// # Model
//
// A Profile is what was measured of an application: how long a step takes on a placement with so many samples for
// each GPU, which part of it is the exchange of gradients, and, for some batches, how far each epoch brings the
// training and what its gradients are like. A Job is one line of a workload. Time goes by ticks. At each, every
// job first advances by a tick, and then a Policy decides where those that are there run from now on.
//
//   - Any change of a job's nodes to others, also its first, stalls it for Config.Restart; its service goes on.
//   - A batch is shared out evenly, rounded up; what one GPU cannot take at once it takes in several passes, of
//     which only the last exchanges. A batch above the initial one takes at least two on one GPU.
//   - A step brings (v+q) / (v/k + q) steps of the initial batch, for a batch k times that, where q is the squared
//     length of the gradient and v its variance, on the line between two batches that were measured.
//   - An epoch ends at the least progress at which it ended with any batch, and its end is rounded to whole
//     seconds, halves to even. A job is done with the last epoch.
//   - The time of a step is that of the placement, or of a rotation of it, on the line between two passes that were
//     measured. For other placements it is piecewise linear in nodes, GPUs and samples over a Delaunay triangulation
//     of all that was measured.
//
// That triangulation is not unique: the measurements lie on a grid, and most places are in a cell of six or eight
// points on one sphere, which may be cut up in several ways. The authors' runs used the cuts of their library;
// here a cut follows from the order of the points. Where the difference matters, Config.Timings has the last word:
// with the timings that the authors' runs looked up, Tiresias on all eight of their workloads and Optimus on six
// come out as published, job by job, to the second; on the other two with seventeen more, which were chosen to that
// end among the values that the cuts of their cells allow.
//
// # Usage
//
//	p, err := pollux.ReadProfile(fsys, "cifar10")
//	jobs, err := pollux.ReadJobs(file)
//	r, err := pollux.Run(pollux.Config{Profiles: []*pollux.Profile{p}}, jobs, pollux.NewTiresias())
//
// # Order of decision
//
// Jobs are in the order of the workload wherever nothing else decides. Tiresias walks two queues, each in the order
// in which jobs came to it, the second with those that have had 16 GPU-hours (policy/order with LAS), and
// lets run who fits into what is left. Optimus gives one GPU to each job, then one more to where the rest of the
// steps becomes shortest (policy/elastic), and places those whose count changed, the fewest first. Both fill the node
// with the most free GPUs first, the first of them. Pollux searches (policy/elastic) with what each job has learned of
// itself by perfmodel/goodput, fitted anew when a new layout was measured or the measurements have doubled.
//
// # Errors
//
// ErrInvalid for a malformed file, Config, job or decision and for a placement or batch outside of what was
// measured, ErrUnknown for a job without profile, ErrDuplicate for a job that occurs twice; what a reader, a file
// system or a policy returned is wrapped. Then there is no Result.
//
// # Concurrency
//
// Run is a function of its arguments but for the Policy, which serves one run at a time. A Profile is read only.
//
// # Cost
//
// A tick is O(jobs × epochs that end in it) besides the policy; a timing that was not measured costs some tens of
// steps of a linear program over all measured points, once a run. A published workload of 160 jobs, about a
// thousand ticks, takes some 20 ms under Tiresias, 0.4 s under Optimus and 5 s under Pollux, most of it for fits.
//
// # Limits
//
// Progress and times are floats, as in the original: they are the same on all platforms but for the fits of Pollux,
// which use exponentials. The authors' Pollux draws from unseeded randomness, so that it can be compared with, and
// not replayed. Clusters that grow, and targets other than the last epoch, are left out.
//
// # Sources
//
// The simulator, its profiles and workloads are petuum/adaptdl, branch osdi21-artifact, folder simulator (Apache-2.0).
package pollux
