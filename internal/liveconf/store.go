package liveconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// Record is a configuration that is kept.
type Record struct {
	// Node is the name of the node that kept it; empty when it is not known.
	Node string `json:"node,omitempty"`
	// Generation is its count.
	Generation uint64 `json:"generation"`
	// Checksum is that of all fields.
	Checksum string `json:"checksum"`
	// Kept is when it was written down.
	Kept time.Time `json:"kept"`
	// Document is the KubeletConfiguration in effect, with its secrets.
	Document json.RawMessage `json:"document"`
	// Origins say who has set a field.
	Origins map[string]string `json:"origins,omitempty"`
	// Over is that of the document over the files (kubeletconfig.Loaded.OverSum); empty:
	// there was none.
	Over string `json:"over,omitempty"`
	// Build is the polylet that kept it; empty when that is not known.
	Build string `json:"build,omitempty"`
	// Reason is why it was bad; empty for others.
	Reason string `json:"reason,omitempty"`
}

// mostBad bounds how many bad configurations are kept.
const mostBad = 10

// The names of what is kept.
const (
	activeFile   = "active.json"
	goodFile     = "last-known-good.json"
	previousFile = "previous-good.json"
	badPrefix    = "bad-"
)

// store keeps configurations in a directory. What is damaged is set aside and counts as
// not there, and so does what another node has kept: a directory comes with a disk that
// is copied.
type store struct {
	dir    string
	node   string // empty: that of the configuration
	build  string
	damage []error
	// unwritten are why configurations were bad that could not be written down, by their
	// checksums: they would be tried each time that the files are looked at.
	unwritten map[string]string
}

func newStore(dir, node, build string) *store {
	return &store{dir: dir, node: node, build: build, unwritten: map[string]string{}}
}

func (s *store) at(name string) *fsatomic.Checkpoint[Record] {
	return fsatomic.NewCheckpoint[Record](filepath.Join(s.dir, name))
}

// read returns a record; nil when there is none that can be used.
func (s *store) read(name string) *Record {
	record, err := s.at(name).Read()
	if err == nil {
		return &record
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.damage = append(s.damage, err)
	}
	return nil
}

// damages are what was found since it was last asked.
func (s *store) damages() []error {
	out := s.damage
	s.damage = nil
	return out
}

// clean removes what a crash has left of a write.
func (s *store) clean() { fsatomic.Clean(s.dir, "*") }

func (s *store) nodeOf(l *kubeletconfig.Loaded) string { return cmp.Or(s.node, l.NodeName) }

func (s *store) record(generation uint64, l *kubeletconfig.Loaded, reason string) Record {
	return Record{
		Node: s.nodeOf(l), Generation: generation, Checksum: configslice.WholeChecksum(l.Fields()), Kept: time.Now().UTC(),
		Document: l.SecretCopyJSON(), Origins: l.Origins(), Over: l.OverSum(), Build: s.build, Reason: reason,
	}
}

// ready makes the directory.
func (s *store) ready() error {
	return errors.Join(os.MkdirAll(filepath.Dir(s.dir), 0o750), os.MkdirAll(s.dir, 0o700))
}

// write keeps a record. kubeadm reset takes the directory away under an agent that it cannot
// stop, which joins another cluster then.
func (s *store) write(name string, r Record) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.at(name).Write(r)
}

func (s *store) setActive(generation uint64, l *kubeletconfig.Loaded) error {
	return s.write(activeFile, s.record(generation, l, ""))
}

// lastActive is the generation and checksum of what ran last; 0 when nothing did.
func (s *store) lastActive() (uint64, string) {
	if r := s.read(activeFile); r != nil {
		return r.Generation, r.Checksum
	}
	return 0, ""
}

// setGood makes a configuration the last known good one; the one before it is kept as
// the previous one.
func (s *store) setGood(generation uint64, l *kubeletconfig.Loaded) error {
	next := s.record(generation, l, "")
	if before := s.read(goodFile); before != nil && before.Checksum != next.Checksum {
		if err := s.write(previousFile, *before); err != nil {
			return err
		}
	}
	return s.write(goodFile, next)
}

// lastKnownGood is that configuration with the flags on top; nil when there is none, or
// it is valid no more.
func (s *store) lastKnownGood(args []string) *kubeletconfig.Loaded { return s.load(goodFile, args) }

// previous is the one that was good before it.
func (s *store) previous(args []string) *kubeletconfig.Loaded { return s.load(previousFile, args) }

func (s *store) load(name string, args []string) *kubeletconfig.Loaded {
	r := s.read(name)
	if r == nil {
		return nil
	}
	return s.use(name, r, args)
}

// use is what a record keeps, with the flags on top; nil when it is not to be used here.
func (s *store) use(name string, r *Record, args []string) *kubeletconfig.Loaded {
	loaded, err := kubeletconfig.OfDocument(args, r.Document, r.Origins, r.Over)
	if err != nil {
		s.damage = append(s.damage, fmt.Errorf("%s is not valid with these flags and this release, and is not used: %w", filepath.Join(s.dir, name), err))
		return nil
	}
	if node := s.nodeOf(loaded); r.Node != "" && r.Node != node {
		s.damage = append(s.damage, fmt.Errorf("%s was kept by node %q and this is node %q: it is not used", filepath.Join(s.dir, name), r.Node, node))
		return nil
	}
	return loaded
}

// badName is that of a bad configuration's record, badFile where it is.
func badName(checksum string) string {
	hex := strings.TrimPrefix(checksum, "sha256:")
	return badPrefix + hex[:min(len(hex), 12)] + ".json"
}

func (s *store) badFile(checksum string) string { return filepath.Join(s.dir, badName(checksum)) }

// setBad keeps a bad configuration and why it was bad, and says in which file.
func (s *store) setBad(generation uint64, l *kubeletconfig.Loaded, reason string) (string, error) {
	r := s.record(generation, l, reason)
	path := s.badFile(r.Checksum)
	if err := s.write(badName(r.Checksum), r); err != nil {
		s.unwritten[r.Checksum] = reason
		return path, err
	}
	fsatomic.KeepNewest(s.dir, badPrefix+"*.json", mostBad)
	return path, nil
}

// bad says why a configuration was bad; empty when it was not, on this node and with this
// build: another one may run it well.
func (s *store) bad(l *kubeletconfig.Loaded) string {
	checksum := sumOf(l)
	if why := s.unwritten[checksum]; why != "" {
		return why
	}
	r := s.read(badName(checksum))
	if r == nil || r.Checksum != checksum || r.Node != "" && r.Node != s.nodeOf(l) || r.Build != s.build {
		return ""
	}
	return r.Reason
}

// forgetBad has bad configurations be tried again.
func (s *store) forgetBad() {
	clear(s.unwritten)
	for _, file := range fsatomic.Oldest(s.dir, badPrefix+"*.json") {
		if err := os.Remove(file); err != nil {
			s.damage = append(s.damage, err)
		}
	}
}

// LastKnownGood is the last known good configuration that a directory keeps, with the
// flags on top; nil when there is none that can be used. Another process may keep it:
// nothing is changed.
func LastKnownGood(dir string, args []string) *kubeletconfig.Loaded {
	s := newStore(dir, "", "")
	r, err := s.at(goodFile).Peek()
	if err != nil {
		return nil // who keeps it says what is wrong with it
	}
	return s.use(goodFile, &r, args)
}
