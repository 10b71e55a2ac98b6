package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
)

// nodeSocket is the listening socket of one service. It outlives the service's
// processes, and is made anew when somebody has removed it. For one goroutine at a time.
type nodeSocket struct {
	service, path, group string
	gid                  int
	log                  klog.Logger

	listener *net.UnixListener
	file     *os.File
	made     fs.FileInfo // what stands at path as long as nobody has touched it
}

// current returns the socket to pass to a process that is about to start.
func (s *nodeSocket) current() ([]supervise.Socket, error) {
	if now, err := os.Lstat(s.path); err != nil || !os.SameFile(now, s.made) {
		s.log.Info("A socket was removed while the node ran; it is made anew", "process", s.service, "socket", s.path)
		if err := ownSocketDir(filepath.Dir(s.path), s.gid); err != nil {
			return nil, fmt.Errorf("make socket %s anew: %w", s.path, err)
		}
		s.listener.SetUnlinkOnClose(false) // what stands there is another's
		s.close()
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	return []supervise.Socket{{Name: s.service, File: s.file}}, nil
}

// open listens. A supervisor that was killed leaves children that die with it, but not
// at the same instant.
func (s *nodeSocket) open() error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond})
	deadline := time.Now().Add(takeOver)
	for {
		err := s.listen()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(retry.Next())
	}
}

func (s *nodeSocket) listen() error {
	l, err := uds.Listen(s.path, s.group)
	if err != nil {
		return err
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("pass socket %s on: %T is no Unix socket", s.path, l)
	}
	if s.made, err = os.Lstat(s.path); err == nil {
		s.file, err = listener.File()
	}
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("pass socket %s on: %w", s.path, err)
	}
	s.listener = listener
	return nil
}

// close removes the socket.
func (s *nodeSocket) close() {
	_ = s.file.Close()
	_ = s.listener.Close()
}
