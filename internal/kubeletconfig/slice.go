package kubeletconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Slice is what whoever counts configurations hands to one service, in one file:
// it is read instead of --config and --config-dir.
type Slice struct {
	// Generation counts the configurations, from 1.
	Generation uint64 `json:"generation"`
	// Checksum is that of the fields that the service uses. Services with equal ones
	// need no restart.
	Checksum string `json:"checksum"`
	// Document is the node's KubeletConfiguration; a service shows all of it, and uses
	// its own fields.
	Document json.RawMessage `json:"document"`
	// DocumentChecksum is the document's own, against damage.
	DocumentChecksum string `json:"documentChecksum"`
	// Origins are Loaded.Origins of what the node's files and flags say.
	Origins map[string]string `json:"origins,omitempty"`
	// Ignored is what the files say and nobody understands.
	Ignored []Notice `json:"ignored,omitempty"`

	// over is Loaded.OverSum of what it was made of.
	over string
}

// NewSlice makes one of a configuration. secret: the document keeps what may be
// secret in it, for the service that needs it.
func NewSlice(l *Loaded, generation uint64, checksum string, secret bool) *Slice {
	document := l.CopyJSON()
	if secret {
		document = l.SecretCopyJSON()
	}
	return &Slice{
		Generation: generation, Checksum: checksum, Document: document, DocumentChecksum: Sum(document),
		Origins: l.Origins(), Ignored: l.ignored,
	}
}

// Sum is a checksum of a document, however its JSON is laid out in lines.
func Sum(document []byte) string {
	var plain bytes.Buffer
	if json.Compact(&plain, document) != nil {
		plain.Write(document)
	}
	sum := sha256.Sum256(plain.Bytes())
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readSlice reads a slice and checks that it is whole.
func readSlice(path string) (*Slice, error) {
	raw, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read --config-slice: %w", err)
	}
	s := &Slice{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("--config-slice %s: %w", path, err)
	}
	if Sum(s.Document) != s.DocumentChecksum {
		return nil, fmt.Errorf("--config-slice %s is damaged: its document has the checksum %s and it says %q; whoever wrote it (polylet run) does so again when it is started again",
			path, Sum(s.Document), s.DocumentChecksum)
	}
	if s.Generation == 0 || s.Checksum == "" {
		return nil, fmt.Errorf("--config-slice %s has no generation or checksum: it is written by polylet run, and --config takes a KubeletConfiguration", path)
	}
	return s, nil
}

// configOf is the configuration of a document in which everything is said.
func configOf(document []byte) (*kubeletv1beta1.KubeletConfiguration, error) {
	c, _, err := decode(document)
	if err != nil {
		return nil, err
	}
	setDefaults(c)
	defaultEviction(c)
	return c, nil
}

// OfDocument is the configuration that a document says (CopyJSON, SecretCopyJSON) with
// the flags of args on top and validated, as it would be handed to a service. over is its
// OverSum.
func OfDocument(args []string, document []byte, origins map[string]string, over string) (*Loaded, error) {
	return loadFrom(thisHost(), args, logr.Discard(), &Slice{Document: document, Origins: origins, over: over})
}

// Current is the newest configuration that was handed to this service whose own fields
// are those it runs with: fields of other services may have changed since it started.
// Without slices, and when the newest is not in effect here yet, it is l.
func (l *Loaded) Current() *Loaded {
	if l.slice == nil {
		return l
	}
	info, err := os.Stat(l.Flags.ConfigSlice)
	if err != nil {
		return l.newest.or(l)
	}
	if known, of := l.newest.get(); of != nil && sameFile(of, info) {
		return known
	}
	// Nothing is locked meanwhile: who asks at the same time reads for itself.
	next, err := LoadAgain(l.Args)
	if err != nil || next.slice.Checksum != l.runs().Checksum {
		return l.newest.or(l)
	}
	l.newest.set(next, info)
	return next
}

func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// newest is what Current found last.
type newest struct {
	mu     sync.Mutex
	loaded *Loaded
	of     fs.FileInfo
}

func (n *newest) get() (*Loaded, fs.FileInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.loaded, n.of
}

func (n *newest) set(loaded *Loaded, of fs.FileInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loaded, n.of = loaded, of
}

func (n *newest) or(l *Loaded) *Loaded {
	if known, _ := n.get(); known != nil {
		return known
	}
	return l
}

// runs is the slice that is in effect by now.
func (l *Loaded) runs() *Slice {
	if taken := l.taken.Load(); taken != nil {
		return taken
	}
	return l.slice
}

// NodeConfigzJSON is ConfigzJSON of what was handed over, without what this process's own
// flags make of it: those of the gateway name copies, which are there while it runs. Where
// nothing was handed over it is ConfigzJSON.
func (l *Loaded) NodeConfigzJSON() []byte {
	if l.slice == nil {
		return l.ConfigzJSON()
	}
	config, err := configOf(l.slice.Document)
	if err != nil {
		return l.ConfigzJSON() // it was read before, and so this is not reached
	}
	return (&Loaded{Config: config}).ConfigzJSON()
}

// Superseded says that another configuration was handed over, which differs in what this
// service uses.
func (l *Loaded) Superseded() bool {
	if l.slice == nil || l.Flags.ConfigSlice == "" {
		return false
	}
	next, err := readSlice(l.Flags.ConfigSlice)
	return err == nil && next.Checksum != l.runs().Checksum
}

// Next is another configuration that was handed over, if it differs in what this service
// uses from what is in effect here; nil when none was.
func (l *Loaded) Next() (*Loaded, error) {
	if !l.Superseded() {
		return nil, nil
	}
	return LoadAgain(l.Args)
}

// Take says that what Next returned is in effect by now, since what differs was taken while
// the process ran: Runs and Current tell of it. Config stays as it was.
func (l *Loaded) Take(next *Loaded) { l.taken.Store(next.slice) }

// Handed says that the configuration was handed over or kept, and not read from the
// operator's files.
func (l *Loaded) Handed() bool { return l.slice != nil }

// Runs are generation and checksum of the slice that is in effect; 0 and empty when there
// was none.
func (l *Loaded) Runs() (generation uint64, checksum string) {
	if l.slice == nil {
		return 0, ""
	}
	runs := l.runs()
	return runs.Generation, runs.Checksum
}

// ShownFields are Fields of a document that is shown (ConfigzJSON), in which empty lists
// and maps are left out and what may be secret is masked.
func ShownFields(document []byte) (map[string]string, error) {
	c, _, err := decode(document)
	if err != nil {
		return nil, err
	}
	gates, err := resolveGates(c.FeatureGates)
	if err != nil {
		return nil, fmt.Errorf("featureGates: %w", err)
	}
	return (&Loaded{Config: c, gates: gates}).Fields(), nil
}

// GatePrefix goes before the name of a feature gate in the path of its field.
const GatePrefix = "featureGates."

// Fields are the values of all fields by their paths in JSON (evictionHard,
// logging.verbosity), as compact JSON; "null" is an empty list or map, too. What may be
// secret is among them. Each gate that a kubelet looks at has a field of its own beside
// featureGates (featureGates.EnvFiles): whether it is on.
func (l *Loaded) Fields() map[string]string {
	out := map[string]string{}
	for name := range gateEffects() {
		out[GatePrefix+name] = strconv.FormatBool(l.gates[name])
	}
	for path, value := range leaves(l.Config) {
		out[path] = compactJSON(plain(value))
	}
	return out
}

// fromSlice is the configuration of a slice with the flags on top.
func fromSlice(flags *Flags, args []string, s *Slice) (*kubeletv1beta1.KubeletConfiguration, origins, error) {
	config, err := configOf(s.Document)
	if err != nil {
		return nil, nil, fmt.Errorf("the document of a configuration that was handed over: %w", err)
	}
	from := origins{}
	from.layer("slice", s.Document)
	again := defaultFlags()
	if err := parse(args, again, config); err != nil {
		return nil, nil, err
	}
	*flags = *again
	return config, from, nil
}

func (s *Slice) said() map[string]string {
	if s == nil || s.Origins == nil {
		return nil
	}
	return maps.Clone(s.Origins)
}
