package llm

import "math/bits"

// BlockHash names a full block of a prompt together with all blocks before it, so that equal hashes mean an equal prefix.
type BlockHash uint64

// AppendHashes appends the hashes of the full blocks of tokens to dst: each is mixed from seed, the one before and the
// tokens of the block. It is fast and no cryptographic hash: equal hashes decide what is routed and scheduled, and the host's
// engine has to compare what it shares. Tenants that must not learn of one another's prompts get seeds of their own.
// A block of less than one token is taken as one of one.
func AppendHashes(dst []BlockHash, seed uint64, tokens []int32, block int) []BlockHash {
	block = max(block, 1)
	h := seed
	for ; len(tokens) >= block; tokens = tokens[block:] {
		h = mix(h^0x9e3779b97f4a7c15, uint64(block))
		for _, t := range tokens[:block] {
			h = mix(h^uint64(uint32(t)), 0xd6e8feb86659fd93)
		}
		dst = append(dst, BlockHash(h))
	}
	return dst
}

// mix folds the product of two words, which spreads every bit over all of them.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b)
	return hi ^ lo ^ a
}

// root is the parent of first blocks, and the sentinel of the list of unused ones.
const root int32 = 0

// block is a cached block.
type block struct {
	hash       BlockHash
	parent     int32
	refs       int32 // requests that use it
	prev, next int32 // in the list of unused ones by when they were last used, or next in the list of free places
}

// prefixes keeps the blocks of prefixes by hash, each under the block before it: the paths of a radix tree of prompts. A
// request uses all blocks of a path or none beyond a point, so a block is used at least as often as those below it, and
// whatever is unused the longest has nothing below it.
type prefixes struct {
	blocks  []block
	index   map[BlockHash]int32
	free    int32
	count   int    // blocks kept
	unused  int    // of them with refs = 0
	changed uint64 // counts what may let a request find more, or with fewer unused, than before
}

func newPrefixes() prefixes {
	return prefixes{blocks: make([]block, 1), index: make(map[BlockHash]int32)}
}

// match returns how many of hashes are kept from the first on, the last of those, and how many of them are unused.
func (p *prefixes) match(hashes []BlockHash) (n int, tail int32, unused int) {
	for _, h := range hashes {
		i, ok := p.index[h]
		if !ok || p.blocks[i].parent != tail {
			break
		}
		if p.blocks[i].refs == 0 {
			unused++
		}
		tail = i
		n++
	}
	return n, tail, unused
}

// find is the length and end of the longest prefix of hashes that is kept, by bisection: what is kept is closed under
// prefixes.
func (p *prefixes) find(hashes []BlockHash) (n int, tail int32) {
	lo, hi := 0, len(hashes)
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if i, ok := p.index[hashes[mid-1]]; ok {
			lo, tail = mid, i
		} else {
			hi = mid - 1
		}
	}
	return lo, tail
}

// acquire uses the path to tail once more.
func (p *prefixes) acquire(tail int32) {
	for i := tail; i != root; i = p.blocks[i].parent {
		if p.blocks[i].refs++; p.blocks[i].refs == 1 {
			p.unlink(i)
		}
	}
}

// release uses the path to tail once less.
func (p *prefixes) release(tail int32) {
	for i := tail; i != root; i = p.blocks[i].parent {
		if p.blocks[i].refs--; p.blocks[i].refs == 0 {
			p.link(i)
		}
	}
}

// insert keeps a block under parent, or finds it, and uses it once. It fails if the hash is known under another parent.
func (p *prefixes) insert(h BlockHash, parent int32) (i int32, found, ok bool) {
	if i, found = p.index[h]; found {
		if p.blocks[i].parent != parent {
			return root, true, false
		}
		if p.blocks[i].refs++; p.blocks[i].refs == 1 {
			p.unlink(i)
			p.changed++
		}
		return i, true, true
	}
	if i = p.free; i != root {
		p.free = p.blocks[i].next
	} else {
		p.blocks = append(p.blocks, block{})
		i = int32(len(p.blocks) - 1)
	}
	p.blocks[i] = block{hash: h, parent: parent, refs: 1}
	p.index[h] = i
	p.count++
	p.changed++
	return i, false, true
}

// evict forgets the block that is unused the longest; there has to be one.
func (p *prefixes) evict() {
	i := p.blocks[root].next
	p.unlink(i)
	delete(p.index, p.blocks[i].hash)
	p.blocks[i] = block{next: p.free}
	p.free = i
	p.count--
}

// clear forgets all, used or not.
func (p *prefixes) clear() {
	clear(p.index)
	*p = prefixes{blocks: append(p.blocks[:0], block{}), index: p.index, changed: p.changed + 1}
}

func (p *prefixes) link(i int32) {
	last := p.blocks[root].prev
	p.blocks[i].prev, p.blocks[i].next = last, root
	p.blocks[last].next, p.blocks[root].prev = i, i
	p.unused++
}

func (p *prefixes) unlink(i int32) {
	b := &p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.unused--
}
