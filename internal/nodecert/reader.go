package nodecert

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// Reader reads a store's certificate again only when its file is another, or could not be
// read. Safe for concurrent use.
type Reader struct {
	Store

	mu   sync.Mutex
	info fs.FileInfo
	pair *Pair
	err  error
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(s Store) *Reader { return &Reader{Store: s} }

// Read is Store.Read.
func (r *Reader) Read() (*Pair, error) {
	info, err := os.Stat(r.CurrentPath())
	if err != nil {
		return r.Store.Read()
	}
	r.mu.Lock()
	old, pair, pairErr := r.info, r.pair, r.err
	r.mu.Unlock()
	if old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return pair, pairErr
	}
	if pair, pairErr = r.Store.Read(); pairErr != nil && !errors.Is(pairErr, ErrDamaged) {
		return nil, pairErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info, r.pair, r.err = info, pair, pairErr
	return pair, pairErr
}
