// Package pki holds the gateway's certificates: the serving pair and the CA of
// clients. Both are files that others rotate; they are looked at when they are
// needed, so a new one counts from the next handshake or request on. It must
// never verify a client by itself: that is access's.
package pki

import (
	"fmt"
	"io/fs"
	"os"
	"time"
)

// stamp tells whether a file may have changed.
type stamp struct {
	name    string
	size    int64
	modTime time.Time
	info    fs.FileInfo
}

func stampOf(name string) (stamp, error) {
	// Stat follows links, which is how certificates are commonly rotated.
	info, err := os.Stat(name)
	if err != nil {
		return stamp{}, err
	}
	return stamp{name: name, size: info.Size(), modTime: info.ModTime(), info: info}, nil
}

func (s stamp) same(other stamp) bool {
	return s.info != nil && other.info != nil && s.name == other.name && s.size == other.size &&
		s.modTime.Equal(other.modTime) && os.SameFile(s.info, other.info)
}

func read(what, name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return data, nil
}
