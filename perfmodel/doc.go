// Package perfmodel says what a training step costs from first principles: work, memory, bytes on the wire and the time
// of collectives.
//
// # Model
//
//   - A [Model] is the shape of a transformer: dense or of experts, grouped queries, gated or not, tied head, window.
//     [ReadConfig] reads it from a config.json. A [Stage] is the part of it that one pipeline stage has.
//   - A [Batch] is a packed micro-batch: how many tokens, and how many pairs of a query and a key attend under a [Mask].
//     Invariant: the order of documents does not matter, and merging two documents never lowers the pairs.
//   - [Work] is that of a stage with a micro-batch in three parts (forward, gradient of the input, gradients of the
//     weights), each a [Cost] with a linear and a quadratic share, since the two run at different rates.
//   - A [Layout] divides the model over ranks, a [Load] says what they do at once, and [Memory] is what one rank then
//     holds. Invariant: the lines are whole bytes, each rounded up, and their sum is Total.
//   - A [Transfer] is a collective of a step; [GroupShape] says how long it takes, by latency and bandwidth of each level.
//
// With h, a, k, d, f and V for Hidden, Heads, KVHeads, HeadDim, FFN and Vocab, and g for 3 matrices with a gate and 2
// without, a layer takes 4had + 4hkd + 2ghf operations for each token and 4ad for each pair, forward. With experts the last
// term is 2hE for the router and 2gf' for each of TopK + SharedExperts. The head of the last stage takes 2hV for each token.
// The gradient of the input takes the linear part once and the quadratic part twice (2.5 times with a flash kernel, which
// makes the scores again), the gradients of the weights the linear part once. Selective recompute adds the quadratic part
// to the gradient of the input, full recompute the whole layer.
//
// # Usage
//
//	m, err := perfmodel.ReadConfig(file)
//	b, err := m.Batch(lens, 4096)
//	forward := m.Work(stage, b).Forward.Time(perfmodel.Rate{Linear: 400e12})
//	memory, err := m.Memory(layout, stage, perfmodel.Load{Tokens: 4096, InFlight: 4, Context: context, Reserve: reserve})
//	verdict := memory.Fit(device)
//	algorithm, took, ok := shape.Best(perfmodel.AllReduce, size)
//
// # Order of decision
//
// Split gives the first stages the layers that are left over. Best takes the least time; of equal ones Ring, Tree,
// Hierarchical. Nothing else is decided. Pairs are counted in 128 bits and rounded once; seconds become a Duration once.
//
// # Sources
//
// Work: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021,
// appendix; for a full mask, two matrices and f = 4h, three times the forward pass is its formula. Scatter and gather: the
// same, section 4.1. Flash kernels: Dao, "FlashAttention-2", ICLR 2024, section 4.1. Activations: Korthikanti et al.,
// "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, sections 4 and 5: with dropout, f = 4h and
// k = a a layer keeps its sbh(10 + 24/t + 5as/ht) bytes; other shapes are counted by the same rules, tensor by tensor.
// States: Rajbhandari et al., "ZeRO", SC 2020, sections 3 and 5. Collectives: Thakur et al., "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 2005, sections 3 and 4. Names in a config.json: Hugging Face Transformers 4.
//
// # Errors
//
// All are *lockstep.Error, several joined where several fields are wrong, or what a reader returned. ErrInvalid: a shape,
// mask, layout, stage, load or length out of range, a model that a layout cannot divide, an amount beyond int64. ErrUnknown:
// a model type that ReadConfig does not know. That something does not fit a device is the verdict of [Memory.Fit].
//
// # Concurrency
//
// Plain values without shared state; safe for concurrent use.
//
// # Cost
//
// Batch is linear in the documents; the rest is O(1), and Time and Best O(levels). Batch, Work, Memory and Best
// allocate nothing; Transfers allocates what it appends.
//
// # Limits
//
// Layers are all alike: no windows or dense blocks on some of them, no latent attention, no cross attention. Experts are
// taken to get equal shares of the tokens. Norms and the biases of rows are whole on every tensor-parallel rank, and rows
// of the vocabulary are padded to a multiple of TP. Not counted, and to be covered by Reserve: gradients of activations
// while they pass, buffers of collectives, workspace of kernels, fragmentation. Communication is not overlapped with work
// here, and no link is shared. Context parallelism is not modelled.
package perfmodel
