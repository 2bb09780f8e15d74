// Command replan lays a 3D-parallel training job out anew after devices have failed or become slow.
//
//	go -C examples run ./replan                              a 7B model on 32 GPUs loses one and has a slow one
//	go -C examples run ./replan -dead n0g1 -slow n3g2=0.6    other faults; both may be repeated
//	go -C examples run ./replan -dead n1                     a whole node
//	go -C examples run ./replan -svg out.svg                 a picture of the pipelines before and after
//	go -C examples run ./replan -f FILE                      a job, devices and faults from a file; -json prints the default as one
//
// # What it reads
//
// A JSON object with the members job (a reconfig.Job), devices (a list of reconfig.Device, all healthy), and the lists dead (IDs of
// devices or nodes) and slow (objects with device, an ID of a device or a node, and speed, 0 to 1). Flags replace dead and slow.
//
// # What it prints
//
// The new layout with what changed in each stage, how long a step takes under it and under the alternatives: to go on as before, to
// drop the replicas that are hit and share their work out, to keep all replicas alike (as ResiHP does, arXiv 2605.06374), and the
// bound that no layout can beat. Then what state has to move to whom to get there, and the digest on which all members must agree.
//
// The status is 1 if there is no plan; the reason is printed.
package main
