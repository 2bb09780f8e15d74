package pipeline

// appendOrder appends to dst the ops of one stage for some micro-batches from 0 on, in the schedule that c names.
func (c *Config) appendOrder(dst []Op, stage, micros int) []Op {
	behind := c.Stages - 1 - stage // stages that a micro-batch has to go through before it comes back
	switch c.Schedule {
	case GPipe:
		return appendEager(dst, micros, micros)
	case Interleaved:
		if c.Chunks > 1 {
			return appendInterleaved(dst, c.Stages, stage, micros, c.Chunks)
		}
	case ZBH1:
		return appendSplit(dst, micros, behind, stage)
	case ZBH2:
		return appendSplit(dst, micros, 2*behind, 2*stage)
	}
	return appendEager(dst, micros, behind)
}

// appendEager is warm forwards, then one forward and one backward in turn, then the backwards that are left.
func appendEager(dst []Op, micros, warm int) []Op {
	warm = min(warm, micros)
	for j := range micros + warm {
		if j < micros {
			dst = append(dst, Op{Kind: Forward, Micro: int32(j)})
		}
		if j >= warm {
			dst = append(dst, Op{Kind: Backward, Micro: int32(j - warm)})
		}
	}
	return dst
}

// appendSplit is appendEager with the weights split off: a weight op follows a backward once more than delay of them are
// pending, and always when no forward is left.
func appendSplit(dst []Op, micros, warm, delay int) []Op {
	warm = min(warm, micros)
	done := 0 // weight ops so far
	for j := range micros + warm {
		if j < micros {
			dst = append(dst, Op{Kind: Forward, Micro: int32(j)})
		}
		if j < warm {
			continue
		}
		b := j - warm
		dst = append(dst, Op{Kind: Backward, Micro: int32(b)})
		if b+1-done > delay || j >= micros-1 {
			dst = append(dst, Op{Kind: Weight, Micro: int32(done)})
			done++
		}
	}
	for ; done < micros; done++ {
		dst = append(dst, Op{Kind: Weight, Micro: int32(done)})
	}
	return dst
}

// appendInterleaved goes through micro-batches in groups of as many as there are stages, and through each group chunk by
// chunk: upwards for forwards, downwards for backwards.
func appendInterleaved(dst []Op, stages, stage, micros, chunks int) []Op {
	all := micros * chunks
	warm := min(2*(stages-1-stage)+(chunks-1)*stages, all)
	if micros == stages {
		warm = all
	}
	nth := func(kind Kind, i int) Op {
		group, within := i/(stages*chunks), i%(stages*chunks)
		chunk := within / stages
		if kind == Backward {
			chunk = chunks - 1 - chunk
		}
		return Op{Kind: kind, Chunk: int32(chunk), Micro: int32(group*stages + within%stages)}
	}
	for i := range all + warm {
		if i < all {
			dst = append(dst, nth(Forward, i))
		}
		if i >= warm {
			dst = append(dst, nth(Backward, i-warm))
		}
	}
	return dst
}
