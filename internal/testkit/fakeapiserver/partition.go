package fakeapiserver

import (
	"context"
	"maps"
	"net/http"
)

// Partition is how the server is out of reach. Admin always reaches it.
type Partition int

const (
	// None: it is in reach.
	None Partition = iota
	// Refuse: connections are refused and watches cut.
	Refuse
	// Blackhole: nothing answers; what was asked is answered after Heal.
	Blackhole
)

// Partition puts the server out of reach until Heal.
func (s *Server) Partition(how Partition) {
	if how == None {
		s.Heal()
		return
	}
	s.mu.Lock()
	if s.partition == None {
		s.healed = make(chan struct{})
	}
	s.partition = how
	s.mu.Unlock()
	if how == Refuse {
		s.DropWatches()
	}
}

// Heal brings the server back into reach.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partition != None {
		s.partition = None
		close(s.healed)
	}
}

// DropWatches cuts the connections of all watches but Admin's.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		for w := range t.watchers {
			if !w.admin {
				w.drop()
			}
		}
	}
}

// Compact forgets the past: every resource version but the current one is answered 410
// Expired from now on.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The version moves on, so that a client that is up to date with its own resource
	// cannot watch from where it stood.
	s.version++
	for _, t := range s.tables {
		t.changes = nil
		t.compacted = s.version
	}
}

// gate waits while the server is out of reach, or cuts the connection.
func (s *Server) gate(ctx context.Context) {
	s.mu.Lock()
	how, healed := s.partition, s.healed
	s.mu.Unlock()
	switch how {
	case Refuse:
		panic(http.ErrAbortHandler)
	case Blackhole:
		select {
		case <-healed:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	case None:
	}
}

// Backup is what the server had at one moment.
type Backup struct {
	version int64
	objects map[*table]map[string]*entry
}

// Backup keeps what the server has now, as a snapshot of etcd does.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{version: s.version, objects: map[*table]map[string]*entry{}}
	for _, t := range s.tables {
		b.objects[t] = maps.Clone(t.objects)
	}
	return b
}

// Restore brings a backup of this server back, as a restore of etcd does: objects and
// their resource versions are those of then, and what watched has to list again. The
// versions of new writes go on from then, or from now when bump is set.
func (s *Server) Restore(b *Backup, bump bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bump {
		s.version = b.version
	}
	s.version++
	for _, t := range s.tables {
		t.objects = maps.Clone(b.objects[t])
		t.changes, t.compacted = nil, s.version
		for w := range t.watchers {
			w.drop()
		}
	}
}
