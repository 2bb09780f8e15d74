// Package imagestore keeps the images of jobs in a folder: deduplicated, coded,
// verified, and whole after a crash at any instant.
//
// # Model
//
// A [Store] holds, for each job, epochs; an epoch has one image per rank, an image
// has named streams, and a stream is a list of regions. A region is stored once,
// whoever has it: its identity is the BLAKE3-256 of its bytes, and nothing else
// decides whether two are the same. Zeros are a length and are not stored.
//
// Regions lie in packs; a rank's manifest names the regions of its streams; an
// epoch's manifest names those of its ranks by their digests. A [Save] writes and
// syncs packs, then the rank's manifest; [Store.Commit] then renames the epoch's
// manifest into place, and that is the commit. Readers go by epochs' manifests
// alone, so what is not committed does not exist for them.
//
// Streams are cut at multiples of StreamHint.Region (64 KiB to 2 MiB) where that is
// given, and by content where it is not or where contents shift: a gear hash, half
// the average length skipped, two masks. A run of zeros always ends a region. What
// an allocator says is not active ([Save.CreateActive]) is not stored at all.
//
// Each frame carries a CRC-32C of what is stored and the identity of what comes
// out; an index, a manifest, a fence and the format have a BLAKE3-256 of their own.
// Every region that is read is checked against its identity. The sum of a stream is
// that of its list of identities, which stand for its bytes, and the digest of a
// rank's manifest is the sum of the image.
//
// # Chains
//
// There are no deltas. An epoch names all of its regions, those that older epochs
// stored too, so any epoch can be dropped at any time and none is needed to read
// another: the incremental chain is implicit and as deep as regions are old. What
// grows with age is only how many packs a restore reads, and how many epochs one
// damaged region spoils. Config.MaxChain bounds both: a region that a pack of this
// job holds since so many epochs is stored anew, so old packs die whole.
//
// # Levels
//
// [LevelFastest] stores regions as they are, [LevelFast] codes byte planes,
// [LevelDefault] planes or zstd, [LevelSmall] the best of all tries. A plane holds
// one byte of every number of 1, 2 or 4; exponents code well with Huffman codes
// (huff0), mantissas are left alone. For all but the last, a sample of 8 KiB says
// what pays.
//
// # Usage
//
//	s, err := imagestore.Open(imagestore.Config{Dir: "/var/lib/images"})
//	v, err := s.Begin(ctx, imagestore.SaveOptions{Job: "train", Epoch: 7, Rank: 0})
//	w, err := v.Create("gpu-0", checkpoint.StreamHint{Width: 2})
//	_, err = io.Copy(w, memory)
//	err = w.Close()
//	image, err := v.Commit(ctx)            // one of each rank
//	err = s.Commit(ctx, &checkpoint.Manifest{Job: "train", Epoch: 7, Ranks: images})
//	m, err := s.Image(ctx, "train", 7, 0)  // to read it
//
// # Order of decision
//
// The cut of a stream depends on its bytes alone. Of several copies of a region a
// reader takes the first that is whole, Collect the one in a pack that stays
// anyway, else in the pack first by name. Latest is the greatest number whose
// manifest is whole. Of two commits of one number the first holds; a term below
// the fence never does.
//
// # Removal
//
// Drop takes an epoch back; its number stays used. Collect marks, while no save
// begins or commits, what committed
// epochs, open images and running saves need, moves the rest into a trash folder,
// and a Grace later removes it, unless a save that ran then still runs. A save that
// counted on something which is in the trash takes it back when it commits. Packs
// of which less than MinLive is needed are first copied together. So saves,
// restores and Collect may run at the same time, in many processes. A save that is
// interrupted keeps its rank's lock only as long as its process lives; the next
// Begin of that rank and epoch takes over all frames that are whole.
//
// # Encryption
//
// With Config.Sealer, payloads and ranks' manifests (with names and notes) are
// sealed, each bound to its identity. Files are 0600 and folders 0700 in any case.
// Deduplication stays: identities are computed on the plain text, keyed with
// IDKey. Lost is that whoever sees the folder learns how long regions are and which
// are shared; without IDKey also whether a known region is among them.
//
// # Errors
//
// Bad input is lockstep.ErrInvalid, a name twice ErrDuplicate, what is not there
// ErrUnknown, two writers of a rank, a number that was used, or a Close too early
// ErrConflict, what was collected in the meantime ErrStale. Damage is
// checkpoint.ErrCorrupt, a full disk checkpoint.ErrNoSpace with [NoSpaceError], a
// leader that was replaced checkpoint.ErrFenced. A save that failed is ended with
// Abort; committed epochs are never touched by it.
//
// # Concurrency
//
// A Store, Save and Image are safe for concurrent use; a stream is for one
// goroutine. Config.Workers regions are hashed and coded at a time; cutting runs on
// the goroutine that writes. Processes exclude each other by locks of the kernel
// (flock), which end with their process.
//
// # Cost
//
// Memory is 2 MiB for each stream being written and each worker, and about 100
// bytes for each region of the store, read from the packs' indexes on the first
// use. A save reads its input once and copies it once. Collect and Verify need
// memory for the regions that they mark; Verify reads everything. The program
// benchmarks/imagestore measures all this beside tar and zstd, restic, borg and
// casync.
//
// # Limits
//
// It works where flock does: local file systems and those network file systems
// that have it. Clocks of hosts that share a store may differ by less than Grace.
// Ranks that save at the same time share new regions within one process; from
// different processes each stores its own copy, and only one is kept once Collect
// copies packs. A region that is damaged at rest is damaged for all that share it,
// until Verify finds it and a later save of the same process stores it anew. Fixed
// regions do not find what has moved by less than a region. It does not parse
// tensors, does not compare numbers between epochs, and does not overlap the copy
// from the device with the save as FlowGPU's ghost process does: it takes the bytes
// it is given. A write that finds the disk full may have begun packs that stay
// until Collect. Records of dropped epochs, some hundred bytes each, stay.
package imagestore
