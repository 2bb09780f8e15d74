// Command estimate writes the bill of a training job before it is submitted: the memory of each GPU, the bytes on the
// wire of each step, the smallest number of GPUs that fits with the headroom asked for, and what limits it.
//
//	go -C examples run ./estimate                                    seven billion parameters on 80 GB devices
//	go -C examples run ./estimate -model llama2-70b -batch 1024      another built-in shape; -model list names them
//	go -C examples run ./estimate -config config.json -seq 32768     a shape as Hugging Face writes it
//	go -C examples run ./estimate -layers 48 -hidden 6144 -heads 48 -ffn 24576    a shape by its numbers
//	go -C examples run ./estimate -gpus 64 -tp 8                     the best layout of so many, and with a degree fixed
//	go -C examples run ./estimate -json                              the same as JSON
//
// # What is searched
//
// Numbers of GPUs up to those of a node, then whole nodes, up to -max-gpus. A layout of so many has a tensor-parallel
// degree inside a node, any number of pipeline stages with at least a layer each, and replicas that get equal numbers of
// whole micro-batches; routed experts are divided over replicas. It fits if every stage leaves the headroom free. Of the
// layouts that fit, the one with the shortest step is shown.
//
// # What the step time is worth
//
// It is the pipeline's critical path at the rate that -tflops says the GPUs reach, plus every collective at the latency and
// bandwidth of its links with nothing overlapped. It ranks layouts; a measured step is shorter where frameworks overlap
// communication with work, and longer where the GPUs do not reach the rate.
//
// The status is 1 when no layout fits.
package main
