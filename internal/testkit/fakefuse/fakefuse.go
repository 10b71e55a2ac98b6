// Package fakefuse serves a filesystem by FUSE whose server answers EINTR.
//
// It owns a tree in memory of directories, files and links. A server may answer EINTR to
// whatever a signal has interrupted, and the Go runtime sends itself signals; this one does
// so for no reason, so that nothing depends on chance. It must never be mounted outside of a test.
package fakefuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel asks for, by the numbers of linux/fuse.h.
const (
	opLookup     = 1
	opForget     = 2
	opGetattr    = 3
	opSetattr    = 4
	opReadlink   = 5
	opSymlink    = 6
	opMknod      = 8
	opMkdir      = 9
	opOpen       = 14
	opStatfs     = 17
	opRelease    = 18
	opFlush      = 25
	opInit       = 26
	opOpendir    = 27
	opReaddir    = 28
	opReleasedir = 29
	opInterrupt  = 36
	opBatch      = 42
)

var names = map[uint32]string{
	opLookup: "lookup", opGetattr: "getattr", opSetattr: "setattr", opReadlink: "readlink", opMknod: "mknod",
	opMkdir: "mkdir", opOpen: "open", opStatfs: "statfs", opOpendir: "opendir", opReaddir: "readdir",
}

// Server is what a mounted filesystem is asked of.
type Server struct {
	// Dir is where it is mounted.
	Dir string

	fd int

	mu          sync.Mutex
	interrupts  bool
	asked       map[string]bool
	chance      *rand.Rand
	interrupted map[string]int
	nodes       []*node // by their number less one
}

type node struct {
	mode, gid uint32
	link      string
	children  map[string]uint64
}

// Mount mounts an empty filesystem for as long as the test runs, which is skipped where
// nobody may.
func Mount(t *testing.T) *Server {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	s := &Server{Dir: t.TempDir(), fd: fd, asked: map[string]bool{}, chance: rand.New(rand.NewPCG(1, 2)), interrupted: map[string]int{}}
	s.nodes = []*node{{mode: unix.S_IFDIR | 0o700, children: map[string]uint64{}}}
	if err := unix.Mount("fakefuse", s.Dir, "fuse.fake", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		_ = unix.Close(fd)
		t.Skipf("may not mount: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.serve()
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(s.Dir, unix.MNT_FORCE); err != nil {
			t.Errorf("unmount %s: %v", s.Dir, err)
			_ = unix.Unmount(s.Dir, unix.MNT_DETACH)
		}
		<-ended
		_ = unix.Close(fd)
	})
	s.refusePoll(t)
	return s
}

// refusePoll has the kernel ask no more whether a file can be read. The Go runtime would ask so
// of each file that package os opens, and have no other goroutine run until it is answered, not
// even the one that answers.
func (s *Server) refusePoll(t *testing.T) {
	t.Helper()
	path := filepath.Join(s.Dir, "polled")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // A descriptor is small.
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes[0].children, "polled")
}

// Interrupt has each question answered with EINTR the first time and now and then again, or no
// longer. Who asks by one path for several things, and begins anew each time, gets to its end.
func (s *Server) Interrupt(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupts = on
	clear(s.asked)
}

// Interrupted is how many questions of a kind were answered with EINTR.
func (s *Server) Interrupted() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.interrupted)
}

// serve answers until the filesystem is unmounted.
func (s *Server) serve() {
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(s.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
		case err != nil:
			return
		default:
			s.answer(buf[:n])
		}
	}
}

var order = binary.LittleEndian

func (s *Server) answer(request []byte) {
	op, unique, id, in := order.Uint32(request[4:]), order.Uint64(request[8:]), order.Uint64(request[16:]), request[40:]
	if slices.Contains([]uint32{opForget, opBatch, opInterrupt}, op) {
		return // it wants no answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	errno := unix.EINTR
	if !s.interruptedLocked(op, id, in) {
		out, errno = s.doLocked(op, id, in)
	}
	reply := make([]byte, 16, 16+len(out))
	order.PutUint32(reply, uint32(16+len(out))) //nolint:gosec // It is short.
	order.PutUint32(reply[4:], uint32(-errno))  //nolint:gosec // As fuse.h wants it.
	order.PutUint64(reply[8:], unique)
	_, _ = unix.Write(s.fd, append(reply, out...)) // one that was killed meanwhile wants none
}

// interruptedLocked says whether a question is to be answered with EINTR.
func (s *Server) interruptedLocked(op uint32, id uint64, in []byte) bool {
	name, known := names[op]
	if !s.interrupts || !known {
		return false
	}
	key := fmt.Sprint(op, " ", id)
	if op == opLookup {
		key += " " + text(in)
	}
	if s.asked[key] && s.chance.IntN(8) > 0 {
		return false
	}
	s.asked[key] = true
	s.interrupted[name]++
	return true
}

// text is a name in a question, which ends with a zero.
func text(in []byte) string {
	if end := slices.Index(in, 0); end >= 0 {
		in = in[:end]
	}
	return string(in)
}

func (s *Server) doLocked(op uint32, id uint64, in []byte) ([]byte, unix.Errno) {
	n := s.nodes[max(id, 1)-1]
	switch op {
	case opInit:
		out := make([]byte, 64)
		order.PutUint32(out, 7)
		order.PutUint32(out[4:], 31)
		order.PutUint32(out[20:], 4096)
		return out, 0
	case opLookup:
		child, has := n.children[text(in)]
		if !has {
			return nil, unix.ENOENT
		}
		return s.entryLocked(child), 0
	case opGetattr:
		return append(make([]byte, 16), s.attrLocked(id)...), 0
	case opSetattr:
		const mode, gid = 1, 4
		valid := order.Uint32(in)
		if valid&mode != 0 {
			n.mode = n.mode&unix.S_IFMT | order.Uint32(in[68:])&0o7777
		}
		if valid&gid != 0 {
			n.gid = order.Uint32(in[80:])
		}
		return append(make([]byte, 16), s.attrLocked(id)...), 0
	case opReadlink:
		return []byte(n.link), 0
	case opSymlink:
		name := text(in)
		return s.makeLocked(n, name, &node{mode: unix.S_IFLNK | 0o777, link: text(in[len(name)+1:])})
	case opMknod:
		return s.makeLocked(n, text(in[16:]), &node{mode: order.Uint32(in)})
	case opMkdir:
		return s.makeLocked(n, text(in[8:]), &node{mode: unix.S_IFDIR | order.Uint32(in)&0o7777, children: map[string]uint64{}})
	case opOpen, opOpendir:
		return make([]byte, 16), 0
	case opReaddir:
		return n.list(order.Uint64(in[8:]), int(order.Uint32(in[16:]))), 0
	case opStatfs:
		out := make([]byte, 80)
		order.PutUint32(out[40:], 4096)
		return out, 0
	case opRelease, opReleasedir, opFlush:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func (s *Server) makeLocked(in *node, name string, made *node) ([]byte, unix.Errno) {
	if _, has := in.children[name]; has {
		return nil, unix.EEXIST
	}
	s.nodes = append(s.nodes, made)
	in.children[name] = uint64(len(s.nodes))
	return s.entryLocked(in.children[name]), 0
}

// entryLocked is a struct fuse_entry_out that holds for no time.
func (s *Server) entryLocked(id uint64) []byte {
	out := make([]byte, 40)
	order.PutUint64(out, id)
	return append(out, s.attrLocked(id)...)
}

// attrLocked is a struct fuse_attr.
func (s *Server) attrLocked(id uint64) []byte {
	n := s.nodes[id-1]
	out := make([]byte, 88)
	order.PutUint64(out, id)
	order.PutUint64(out[8:], uint64(len(n.link)))
	order.PutUint32(out[60:], n.mode)
	order.PutUint32(out[64:], 2)
	order.PutUint32(out[72:], n.gid)
	order.PutUint32(out[80:], 4096)
	return out
}

// list is a part of a directory, a struct fuse_dirent for each name.
func (n *node) list(from uint64, size int) []byte {
	var out []byte
	for i, name := range slices.Sorted(maps.Keys(n.children)) {
		entry := make([]byte, 24+(len(name)+7)/8*8)
		order.PutUint64(entry, n.children[name])
		order.PutUint64(entry[8:], uint64(i)+1)        //nolint:gosec // An index is not negative.
		order.PutUint32(entry[16:], uint32(len(name))) //nolint:gosec // A name is short.
		copy(entry[24:], name)
		if uint64(i) < from { //nolint:gosec // An index is not negative.
			continue
		}
		if len(out)+len(entry) > size {
			break
		}
		out = append(out, entry...)
	}
	return out
}

// Group is whose group a path below Dir is by now, and its mode, as the server has them.
func (s *Server) Group(path ...string) (gid uint32, mode os.FileMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[0]
	for _, name := range path {
		n = s.nodes[n.children[name]-1]
	}
	return n.gid, os.FileMode(n.mode & 0o777)
}
