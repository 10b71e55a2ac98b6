package mount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

// Fullness is how full a filesystem is.
type Fullness struct {
	// Capacity, Available and Used are bytes; Available is what others than root may have.
	Capacity, Available, Used uint64
	// Inodes and InodesFree are numbers; zero where there are none.
	Inodes, InodesFree uint64
}

const (
	callFullness = "fullness"
	// answersWithin is how long a server has to say how full its filesystem is, and
	// mostAtOnce of how many places it is asked at once.
	answersWithin = 10 * time.Second
	mostAtOnce    = 64
)

// errSlow ends the wait for how full a filesystem is.
var errSlow = errors.New("its server does not answer")

// questions are about how full filesystems are, by what is mounted: who measures a node
// asks about all at once, and a process answers as many as there are of one filesystem.
type questions struct {
	mu      sync.Mutex
	waiting map[string][]question
	asking  map[string]bool // somebody asks about the filesystem
}

type question struct {
	path   string
	answer chan fullnessAnswer // has room for it
}

// fullnessAnswer is what a process says of one path.
type fullnessAnswer struct {
	Stat  unix.Statfs_t `json:"stat"`
	Error string        `json:"error,omitempty"`

	err error
}

// Statfs asks the server of a filesystem. No thread of this process waits.
func (k *Kernel) Statfs(ctx context.Context, path string) (unix.Statfs_t, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, errSlow)
	defer cancel()
	q := question{path, make(chan fullnessAnswer, 1)}
	if whose := Filesystem(path); k.full.add(whose, q) {
		go k.answer(context.WithoutCancel(ctx), whose)
	}
	var a fullnessAnswer
	select {
	case a = <-q.answer:
	case <-ctx.Done():
		a.err = context.Cause(ctx)
	}
	if a.err == nil && a.Error != "" {
		a.err = errors.New(a.Error)
	}
	if a.err != nil {
		return unix.Statfs_t{}, fmt.Errorf("how full %s is: %w", path, a.err)
	}
	return a.Stat, nil
}

// add keeps a question; first: nobody asks about its filesystem yet.
func (q *questions) add(whose string, one question) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting, q.asking = map[string][]question{}, map[string]bool{}
	}
	q.waiting[whose] = append(q.waiting[whose], one)
	first = !q.asking[whose]
	q.asking[whose] = true
	return first
}

// take takes questions about a filesystem; when there are none, nobody asks about it.
func (q *questions) take(whose string) []question {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting[whose]
	some := all[:min(len(all), mostAtOnce)]
	if q.waiting[whose] = all[len(some):]; len(q.waiting[whose]) == 0 {
		delete(q.waiting, whose)
	}
	if len(some) == 0 {
		delete(q.asking, whose)
	}
	return some
}

// answer answers what is asked about a filesystem, until nobody asks.
func (k *Kernel) answer(ctx context.Context, whose string) {
	for some := k.full.take(whose); len(some) > 0; some = k.full.take(whose) {
		paths := make([]string, len(some))
		for i, q := range some {
			paths[i] = q.path
		}
		answers, err := k.ask(ctx, whose, paths)
		for i, q := range some {
			if err != nil {
				q.answer <- fullnessAnswer{err: err}
				continue
			}
			q.answer <- answers[i]
		}
	}
}

// ask has a process ask about paths; there is an answer for each.
func (k *Kernel) ask(ctx context.Context, whose string, paths []string) (answers []fullnessAnswer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, errSlow)
	defer cancel()
	said, err := k.looks.Do(ctx, whose, callFullness, paths...)
	if err == nil {
		err = json.Unmarshal([]byte(said), &answers)
	}
	if err == nil && len(answers) != len(paths) {
		err = fmt.Errorf("%d answers about %d paths", len(answers), len(paths))
	}
	return answers, err
}

func fullnessCall(args []string) (string, error) {
	if len(args) == 0 {
		return "", fmt.Errorf("%s takes paths", callFullness)
	}
	answers := make([]fullnessAnswer, len(args))
	for i, path := range args {
		if err := eintr.Statfs(path, &answers[i].Stat); err != nil {
			answers[i].Error = err.Error()
		}
	}
	said, err := json.Marshal(answers)
	return string(said), err
}

// FullnessOf reads what the kernel says. A server may say more that is free than there is.
func FullnessOf(st *unix.Statfs_t) Fullness {
	block := uint64(max(st.Bsize, 0)) //nolint:gosec // It is not negative.
	return Fullness{
		Capacity: st.Blocks * block, Available: st.Bavail * block, Used: (st.Blocks - min(st.Bfree, st.Blocks)) * block,
		Inodes: st.Files, InodesFree: st.Ffree,
	}
}
