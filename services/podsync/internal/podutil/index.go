package podutil

// few things are found as quickly by looking at each of them as by a map, which would
// have to be made first.
const few = 16

// Index finds things of a pod by a key. Of those that are few it keeps nothing; for many,
// of which the API allows thousands, it makes a map when it is first asked. The first
// thing that has a key counts. The zero value is that of nothing. It is for one goroutine,
// and for as long as the things stay as they are.
type Index[K comparable, T any] struct {
	of  []T
	key func(*T) K
	at  map[K]int
}

// NewIndex finds the things of the slice by what key says of them.
func NewIndex[K comparable, T any](of []T, key func(*T) K) Index[K, T] {
	return Index[K, T]{of: of, key: key}
}

// Find is the first thing of the key, in the slice itself; nil when there is none.
func (x *Index[K, T]) Find(key K) *T {
	if len(x.of) <= few {
		for i := range x.of {
			if x.key(&x.of[i]) == key {
				return &x.of[i]
			}
		}
		return nil
	}
	if x.at == nil {
		x.at = make(map[K]int, len(x.of))
		for i := len(x.of) - 1; i >= 0; i-- {
			x.at[x.key(&x.of[i])] = i
		}
	}
	if i, is := x.at[key]; is {
		return &x.of[i]
	}
	return nil
}
