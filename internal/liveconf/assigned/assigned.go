// Package assigned owns what the cluster has assigned to this node as its configuration,
// over restarts and while the apiserver is away: the document that is assigned, the one
// that runs and the last known good one, each in a checkpoint. It says what goes over the
// node's files, and leaves out what a cluster may not set. It must never ask the cluster
// by itself, nor decide whether a configuration is good.
package assigned

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/wake"
)

// Document is one that the cluster has assigned: a KubeletConfiguration in a ConfigMap.
type Document struct {
	// Namespace and Name of the ConfigMap, and Key in its data.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	// UID and ResourceVersion are the ConfigMap's.
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// Text is a KubeletConfiguration in YAML or JSON.
	Text string `json:"text"`
}

// String names it: "ConfigMap namespace/name".
func (d *Document) String() string { return "ConfigMap " + d.Namespace + "/" + d.Name }

// Version names it with its version: "namespace/name@resourceVersion"; empty for nil.
func (d *Document) Version() string {
	if d == nil {
		return ""
	}
	return d.Namespace + "/" + d.Name + "@" + d.ResourceVersion
}

// mostOfAName bounds what a document is called, in bytes: a ConfigMap's names have no more.
const mostOfAName = 253

// CheckNames says what of the names can be none of a ConfigMap: they are shown to people,
// and repeated for each field that the document sets. Nil has none.
func (d *Document) CheckNames() error {
	if d == nil {
		return nil
	}
	wrong := slices.Concat(validation.IsDNS1123Label(d.Namespace), validation.IsDNS1123Subdomain(d.Name), validation.IsConfigMapKey(d.Key))
	for _, id := range []string{d.UID, d.ResourceVersion} {
		if len(id) > mostOfAName || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			wrong = append(wrong, "a UID and a resourceVersion are short and can be shown")
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("what is assigned is called as no ConfigMap can be: %s", strings.Join(wrong, "; "))
}

// over is nil for nil.
func (d *Document) over() *kubeletconfig.Over {
	if d == nil {
		return nil
	}
	return &kubeletconfig.Over{Name: d.String(), Document: []byte(d.Text)}
}

// Config of a Source.
type Config struct {
	// Dir keeps the checkpoints.
	Dir string
	// Node is this node's name; what another one has kept is not used.
	Node string
	// Build names this build: a verdict of another one does not count.
	Build string
	// Load loads what files and flags say, with a document over the files; nil: with none.
	Load func(*kubeletconfig.Over) (*kubeletconfig.Loaded, error)
	// Check says what of a valid configuration this machine cannot do; nil: nothing.
	Check func(*kubeletconfig.Loaded) error
	// Changed is called when View may be another, and must return at once; nil: it is not.
	Changed func()
	// Deadline is how long a change is tried, by which changes are paced;
	// liveconf.DefaultDeadline when 0.
	Deadline time.Duration
	// Log is the source's.
	Log logr.Logger
}

// View is how it stands.
type View struct {
	// Assigned, Active and LastKnownGood name a document with its version; empty: none.
	Assigned      string `json:"assigned,omitempty"`
	Active        string `json:"active,omitempty"`
	LastKnownGood string `json:"lastKnownGood,omitempty"`
	// Error is why what is assigned does not run; empty when it does, or is tried.
	Error string `json:"error,omitempty"`
	// Waits is why what the cluster says by now is not looked at yet, and when it will be;
	// empty when it was.
	Waits string `json:"waits,omitempty"`
}

// Source is one over the files. It implements liveconf.Over. Offer and View may be called
// from any goroutine, TakeIn runs in one, and Load and the others are called from that of
// the controller.
type Source struct {
	cfg   Config
	store *store
	// heard: something is offered; urgent: a person does not want to wait for it.
	heard, urgent wake.Signal

	mu       sync.Mutex
	offered  *Document // if offers
	offers   bool
	waits    string
	assigned *Document
	active   *Document
	good     *Document // with known, nil is that none was
	previous *Document // the last known good one before
	known    bool      // a configuration of this node was good, with good over it
	left     liveconf.State
	leftOf   *Document // what left is about
}

var _ liveconf.Over = (*Source)(nil)

// Open reads what was kept. What is damaged is set aside, said, and counts as not there.
func Open(cfg Config) *Source {
	if cfg.Deadline <= 0 {
		cfg.Deadline = liveconf.DefaultDeadline
	}
	s := &Source{cfg: cfg, heard: wake.New(), urgent: wake.New(), store: &store{dir: cfg.Dir, node: cfg.Node, build: cfg.Build, log: cfg.Log}}
	if err := s.store.ready(); err != nil {
		cfg.Log.Error(err, "What the cluster assigns cannot be kept", "directory", cfg.Dir)
	}
	s.store.clean()
	s.assigned, _ = s.store.read(assignedFile)
	s.active, _ = s.store.read(activeFile)
	s.good, s.known = s.store.read(goodFile)
	s.previous, _ = s.store.read(previousFile)
	return s
}

// assign says what the cluster has assigned; nil: nothing. It is kept before it is used.
// True: that is something else than before.
func (s *Source) assign(d *Document) bool {
	s.mu.Lock()
	known := same(d, s.assigned)
	s.mu.Unlock()
	if known {
		return false
	}
	defer s.changed()
	if err := s.store.write(assignedFile, d); err != nil {
		s.cfg.Log.Error(err, "What the cluster has assigned cannot be kept; the next start has what was assigned before until the cluster answers")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = d
	return true
}

// Load is what files and flags say, with what is assigned over the files; where that
// cannot be used or was bad, with the last known good document, else with none.
func (s *Source) Load() (*kubeletconfig.Loaded, error) {
	defer s.changed()
	base, err := s.cfg.Load(nil)
	if err != nil {
		return nil, err // with or without the cluster: it would start with nothing else
	}
	s.mu.Lock()
	assigned, good, known := s.assigned, s.good, s.known
	s.mu.Unlock()
	if assigned == nil || !known { // a node is one of its own first
		s.leave(nil, liveconf.State{})
		return base, nil
	}
	why, file := s.store.bad(assigned)
	if why != "" {
		s.leave(assigned, liveconf.State{Phase: liveconf.WentBack, Of: assigned.String(), Error: why, File: file})
	} else {
		loaded, err := s.over(base, assigned)
		if err == nil {
			s.leave(nil, liveconf.State{})
			return loaded, nil
		}
		s.leave(assigned, liveconf.State{Phase: liveconf.Refused, Of: assigned.String(), Error: cut(err.Error())})
	}
	if good != nil && *good != *assigned {
		if loaded, err := s.over(base, good); err == nil {
			return loaded, nil
		}
	}
	return base, nil
}

// over is what a document says over the files, if the cluster may say it.
func (s *Source) over(base *kubeletconfig.Loaded, d *Document) (*kubeletconfig.Loaded, error) {
	loaded, err := s.cfg.Load(d.over())
	if err != nil {
		return nil, fmt.Errorf("with %s over the files: %w", d.Version(), err)
	}
	if err := configslice.ClusterRefusal(configslice.Difference(base.Fields(), loaded.Fields())); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Version(), err)
	}
	if s.cfg.Check == nil {
		return loaded, nil
	}
	if err := s.cfg.Check(loaded); err != nil && s.cfg.Check(base) == nil {
		return nil, fmt.Errorf("%s: %w", d.Version(), err)
	}
	return loaded, nil
}

// longestError bounds what is said of a document, in bytes: it may have thousands of faults.
const longestError = 16 << 10

func cut(text string) string {
	if len(text) <= longestError {
		return text
	}
	return strings.ToValidUTF8(text[:longestError], "") + " …"
}

func (s *Source) leave(of *Document, state liveconf.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.leftOf = state, of
}

// LeftOut implements liveconf.Over.
func (s *Source) LeftOut() liveconf.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// find is the document of a sum among those that are known; false: it is not known.
func (s *Source) find(sum string) (*Document, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum == "" {
		return nil, true
	}
	for _, d := range []*Document{s.assigned, s.good, s.active, s.previous} {
		if d.over().Sum() == sum {
			return d, true
		}
	}
	return nil, false
}

// Runs says which configuration the services have.
func (s *Source) Runs(loaded *kubeletconfig.Loaded) {
	d, found := s.find(loaded.OverSum())
	if !found {
		return
	}
	s.mu.Lock()
	same := d.Version() == s.active.Version()
	s.active = d
	s.mu.Unlock()
	if !same {
		s.keep(activeFile, d)
		s.changed()
	}
}

// Good implements liveconf.Over.
func (s *Source) Good(loaded *kubeletconfig.Loaded) bool {
	d, found := s.find(loaded.OverSum())
	if !found {
		return false
	}
	s.mu.Lock()
	before, known := s.good, s.known
	same := known && d.Version() == before.Version()
	s.mu.Unlock()
	if same {
		return false
	}
	defer s.changed()
	if known {
		s.keep(previousFile, before)
	}
	s.keep(goodFile, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.previous = before
	}
	s.good, s.known = d, true
	return !known && s.assigned != nil
}

// Bad implements liveconf.Over.
func (s *Source) Bad(bad, instead *kubeletconfig.Loaded, why, file string) bool {
	if bad.OverSum() == instead.OverSum() {
		return false // it is the files
	}
	d, found := s.find(bad.OverSum())
	if !found || d == nil {
		return false // it was taken away, and its absence is bad: the files are what is left
	}
	defer s.changed()
	s.leave(d, liveconf.State{Phase: liveconf.WentBack, Of: d.String(), Error: why, File: file})
	if already, _ := s.store.bad(d); already == "" {
		if err := s.store.setBad(d, why, file); err != nil {
			s.cfg.Log.Error(err, "That a configuration of the cluster was bad could not be written down; a start of polylet tries it again")
		}
	}
	if back, found := s.find(instead.OverSum()); found {
		s.keep(goodFile, back)
		s.mu.Lock()
		s.good, s.known = back, true
		s.mu.Unlock()
	}
	return true
}

// Retry implements liveconf.Over. What waits is taken in at once.
func (s *Source) Retry() {
	s.store.forgetBad()
	s.urgent.Set()
}

func (s *Source) changed() {
	if s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}

// keep writes a checkpoint, or says why it could not.
func (s *Source) keep(name string, d *Document) {
	if err := s.store.write(name, d); err != nil {
		s.cfg.Log.Error(err, "What the cluster assigns cannot be kept", "directory", s.cfg.Dir)
	}
}

// View is how it stands.
func (s *Source) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := View{Assigned: s.assigned.Version(), Active: s.active.Version(), LastKnownGood: s.good.Version(), Waits: s.waits}
	if s.left.Phase != "" && s.leftOf == s.assigned { // else that one was not looked at yet
		v.Error = s.left.Error
	}
	return v
}
