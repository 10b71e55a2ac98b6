package assigned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/fsatomic"
)

// The names of what is kept.
const (
	assignedFile = "assigned.json"
	activeFile   = "active.json"
	goodFile     = "lastKnownGood.json"
	previousFile = "previousGood.json"
	badPrefix    = "bad-"
)

// mostBad bounds how many bad documents are remembered.
const mostBad = 10

// Record is a document that is kept.
type Record struct {
	// Node is the name of the node that kept it.
	Node string `json:"node"`
	// Kept is when it was written down.
	Kept time.Time `json:"kept"`
	// Document is what was assigned; nil: that nothing was.
	Document *Document `json:"document,omitempty"`
	// Build is the polylet that found it bad, Reason why, and File where the whole
	// configuration is; empty for others.
	Build  string `json:"build,omitempty"`
	Reason string `json:"reason,omitempty"`
	File   string `json:"file,omitempty"`
}

// store keeps documents in a directory, for one node.
type store struct {
	dir, node, build string
	log              logr.Logger
	// unwritten are why documents were bad that could not be written down, by name.
	unwritten map[string]Record
}

func (s *store) at(name string) *fsatomic.Checkpoint[Record] {
	return fsatomic.NewCheckpoint[Record](filepath.Join(s.dir, name))
}

// clean removes what a crash has left of a write.
func (s *store) clean() { fsatomic.Clean(s.dir, "*") }

// ready makes the directory: kubeadm reset takes it away under an agent that it cannot stop.
func (s *store) ready() error {
	return errors.Join(os.MkdirAll(filepath.Dir(s.dir), 0o750), os.MkdirAll(s.dir, 0o700))
}

func (s *store) write(name string, d *Document) error {
	return s.put(name, Record{Node: s.node, Kept: time.Now().UTC(), Document: d})
}

func (s *store) put(name string, r Record) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.at(name).Write(r)
}

// read returns what a record keeps; false: there is none that can be used here.
func (s *store) read(name string) (*Document, bool) {
	r, found := s.record(name)
	return r.Document, found
}

func (s *store) record(name string) (Record, bool) {
	r, err := s.at(name).Read()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		s.log.Error(err, "What the cluster has assigned, as it was kept, cannot be used")
	case err == nil && r.Node != s.node:
		s.log.Info("What the cluster has assigned was kept by another node: it is not used", "path", filepath.Join(s.dir, name), "node", r.Node)
	case err == nil:
		return r, true
	}
	return Record{}, false
}

// badName is that of the record of a bad document, whichever ConfigMap it came from.
func badName(d *Document) string {
	return badPrefix + strings.TrimPrefix(d.over().Sum(), "sha256:")[:12] + ".json"
}

// bad says why a document was bad, with this build, and where the whole configuration is;
// empty when it was not.
func (s *store) bad(d *Document) (why, file string) {
	name := badName(d)
	if r, unwritten := s.unwritten[name]; unwritten {
		return r.Reason, r.File
	}
	r, found := s.record(name)
	if !found || r.Document == nil || r.Document.Text != d.Text || r.Build != s.build {
		return "", ""
	}
	return r.Reason, r.File
}

func (s *store) setBad(d *Document, why, file string) error {
	r := Record{Node: s.node, Kept: time.Now().UTC(), Document: d, Build: s.build, Reason: why, File: file}
	if err := s.put(badName(d), r); err != nil {
		if s.unwritten == nil {
			s.unwritten = map[string]Record{}
		}
		s.unwritten[badName(d)] = r // it would be tried at each look
		return err
	}
	fsatomic.KeepNewest(s.dir, badPrefix+"*.json", mostBad)
	return nil
}

func (s *store) forgetBad() {
	clear(s.unwritten)
	for _, file := range fsatomic.Oldest(s.dir, badPrefix+"*.json") {
		if err := os.Remove(file); err != nil {
			s.log.Error(err, "That a configuration of the cluster was bad is not forgotten")
		}
	}
}
