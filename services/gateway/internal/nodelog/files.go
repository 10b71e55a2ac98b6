package nodelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

// fileSystem is the node's log directory for one request.
type fileSystem struct {
	ctx  context.Context
	node Node
}

// Open implements http.FileSystem.
func (s *fileSystem) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(name, "/")
	self, entries, err := s.node.Stat(s.ctx, name)
	switch {
	case errors.Is(err, rpcerr.ErrNotFound):
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case err != nil:
		return nil, err
	}
	return &logFile{fs: s, name: name, self: self, entries: entries}, nil
}

// logFile is a file that is read as far as somebody asks for it.
type logFile struct {
	fs      *fileSystem
	name    string
	self    Entry
	entries []Entry

	at     int64
	next   func() ([]byte, error)
	cancel context.CancelFunc
	left   []byte
}

// Read implements io.Reader.
func (f *logFile) Read(p []byte) (int, error) {
	if f.self.Directory {
		return 0, errors.New("it is a directory")
	}
	if f.at >= f.self.Size {
		return 0, io.EOF // what was appended meanwhile is for the next request
	}
	if f.next == nil {
		ctx, cancel := context.WithCancel(f.fs.ctx)
		next, err := f.fs.node.Read(ctx, f.name, f.at)
		if err != nil {
			cancel()
			return 0, err
		}
		f.next, f.cancel = next, cancel
	}
	for len(f.left) == 0 {
		data, err := f.next()
		if err != nil {
			return 0, err
		}
		f.left = data
	}
	n := copy(p, f.left)
	f.left, f.at = f.left[n:], f.at+int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (f *logFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.self.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d: %w", offset, fs.ErrInvalid)
	}
	if offset != f.at {
		_ = f.Close() // the next read begins anew
		f.at = offset
	}
	return offset, nil
}

// Close implements io.Closer.
func (f *logFile) Close() error {
	if f.cancel != nil {
		f.cancel()
	}
	f.next, f.cancel, f.left = nil, nil, nil
	return nil
}

// Stat implements http.File.
func (f *logFile) Stat() (fs.FileInfo, error) { return info{f.self}, nil }

// Readdir implements http.File; all entries come at once.
func (f *logFile) Readdir(int) ([]fs.FileInfo, error) {
	out := make([]fs.FileInfo, len(f.entries))
	for i, e := range f.entries {
		out[i] = info{e}
	}
	return out, nil
}

// info is an Entry as fs.FileInfo.
type info struct{ e Entry }

func (i info) Name() string       { return i.e.Name }
func (i info) Size() int64        { return i.e.Size }
func (i info) ModTime() time.Time { return i.e.Modified }
func (i info) IsDir() bool        { return i.e.Directory }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.e.Directory {
		return fs.ModeDir | 0o555
	}
	return 0o444
}
