package profile

import "container/list"

// lru keeps values by key and how long ago each was last touched, so that memory stays
// bounded: what was touched longest ago goes first.
type lru[K comparable, V any] struct {
	at    map[K]*list.Element // of *entry[K, V]
	order *list.List          // what was touched longest ago first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any]() *lru[K, V] {
	return &lru[K, V]{at: make(map[K]*list.Element), order: list.New()}
}

// len, get, remove and all take a nil lru for an empty one.
func (l *lru[K, V]) len() int {
	if l == nil {
		return 0
	}
	return l.order.Len()
}

// get returns the value of key, nil if there is none, and touches nothing.
func (l *lru[K, V]) get(key K) *V {
	if l == nil {
		return nil
	}
	e, ok := l.at[key]
	if !ok {
		return nil
	}
	return &e.Value.(*entry[K, V]).value
}

// touch returns the value of key, a new one if there was none, and makes it the last to
// go.
func (l *lru[K, V]) touch(key K) *V {
	e, ok := l.at[key]
	if !ok {
		e = l.order.PushBack(&entry[K, V]{key: key})
		l.at[key] = e
	}
	l.order.MoveToBack(e)
	return &e.Value.(*entry[K, V]).value
}

// oldest returns the key that was touched longest ago. The table must not be empty.
func (l *lru[K, V]) oldest() K { return l.order.Front().Value.(*entry[K, V]).key }

func (l *lru[K, V]) remove(key K) {
	if l == nil {
		return
	}
	if e, ok := l.at[key]; ok {
		l.order.Remove(e)
		delete(l.at, key)
	}
}

// all calls f with every key and value, what was touched longest ago first.
func (l *lru[K, V]) all(f func(key K, value *V)) {
	if l == nil {
		return
	}
	for e := l.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*entry[K, V])
		f(x.key, &x.value)
	}
}

// push appends x to what was last seen, of which it keeps that many.
func push[T any](xs []T, x T, keep int) []T {
	if len(xs) >= keep {
		copy(xs, xs[len(xs)-keep+1:])
		xs = xs[:keep-1]
	}
	return append(xs, x)
}
