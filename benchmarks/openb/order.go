package main

import "math/bits"

// mersenne is the generator MT19937 with the seeding and the bounded draws of
// Python's random.Random, which made the orders that are compared with. Source:
// Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8(1), 1998), section 3;
// seeding by an array of one word, their revision of 2002.
type mersenne struct {
	state [mersenneWords]uint32
	next  int
}

const (
	mersenneWords = 624
	mersenneShift = 397
)

// newMersenne returns the generator that random.Random(seed) is.
func newMersenne(seed uint32) *mersenne {
	m := &mersenne{next: mersenneWords}
	s := &m.state
	s[0] = 19650218
	for j := 1; j < mersenneWords; j++ {
		s[j] = 1812433253*(s[j-1]^s[j-1]>>30) + uint32(j)
	}
	i := 1
	mix := func(factor, add uint32) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*factor) + add
		if i++; i == mersenneWords {
			s[0], i = s[mersenneWords-1], 1
		}
	}
	for range mersenneWords {
		mix(1664525, seed)
	}
	for range mersenneWords - 1 {
		mix(1566083941, -uint32(i))
	}
	s[0] = 1 << 31
	return m
}

// word returns the next 32 random bits.
func (m *mersenne) word() uint32 {
	if m.next == mersenneWords {
		m.turn()
	}
	y := m.state[m.next]
	m.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// turn makes the next block of words.
func (m *mersenne) turn() {
	s := &m.state
	for k := range mersenneWords {
		y := s[k]&(1<<31) | s[(k+1)%mersenneWords]&(1<<31-1)
		v := s[(k+mersenneShift)%mersenneWords] ^ y>>1
		if y&1 != 0 {
			v ^= 0x9908b0df
		}
		s[k] = v
	}
	m.next = 0
}

// below returns a number in [0, n), n > 0, as randrange(n) does.
func (m *mersenne) below(n int) int {
	shift := 32 - bits.Len32(uint32(n))
	for {
		if r := int(m.word() >> shift); r < n {
			return r
		}
	}
}

// shuffle reorders v as random.shuffle does.
func (m *mersenne) shuffle(v []int) {
	for i := len(v) - 1; i >= 1; i-- {
		j := m.below(i + 1)
		v[i], v[j] = v[j], v[i]
	}
}

// arrivals returns the order in which tasks of l arrive, as indices into l.tasks:
// every task once, then tasks drawn at random until the demand is percent of
// capacity, all of it shuffled.
func (l *list) arrivals(seed uint32, capacity, percent int64) []int {
	rng := newMersenne(seed)
	order := make([]int, len(l.tasks))
	demand := int64(0)
	for i := range l.tasks {
		order[i] = i
		demand += l.shapeOf(i).demand()
	}
	for demand*100 < capacity*percent {
		i := rng.below(len(l.tasks))
		order = append(order, i)
		demand += l.shapeOf(i).demand()
	}
	rng.shuffle(order)
	return order
}

// permutation returns the numbers below n in an order that seed fixes.
func permutation(n int, seed uint32) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	newMersenne(seed).shuffle(order)
	return order
}
