// Package assigned learns which configuration the cluster has assigned to this node, from
// an annotation of the Node and the ConfigMap that it names, and tells on the Node what
// has become of it.
//
// It owns these annotations. It must never look into the document, nor decide whether it
// is used: its owner on the node does. While the apiserver does not say what is assigned,
// it says nothing.
package assigned

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	core "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// Annotation of the Node names the ConfigMap: namespace/name, or namespace/name/key.
const Annotation = "polylet.dev/configuration"

// The annotations of the Node that tell what has become of it.
const (
	assignedAnnotation = Annotation + "-assigned"
	activeAnnotation   = Annotation + "-active"
	goodAnnotation     = Annotation + "-last-known-good"
	errorAnnotation    = Annotation + "-error"
	waitsAnnotation    = Annotation + "-waits"
)

// defaultKey is where the document stands in the ConfigMap's data, as kubeadm has it.
const defaultKey = "kubelet"

// Document is one that is assigned.
type Document struct {
	// Namespace, Name, UID and ResourceVersion are the ConfigMap's, Key its data's.
	Namespace, Name, Key, UID, ResourceVersion string
	// Text is the document.
	Text string
}

// Stands is what has become of it, as the owner of the configuration says: names of
// ConfigMaps with their versions, why what is assigned does not run, and why what the
// cluster says by now is not looked at yet.
type Stands struct{ Assigned, Active, LastKnownGood, Error, Waits string }

// Events takes what happened to the Node.
type Events interface {
	Send(ctx context.Context, e node.Event)
}

// Config of a Keeper.
type Config struct {
	// NodeName is the Node's; Nodes writes its annotations.
	NodeName string
	Nodes    core.NodeInterface
	// ConfigMaps reads and watches them.
	ConfigMaps core.ConfigMapsGetter
	// Events is told when one cannot be read.
	Events Events
	// Note is told of it too, and of what waits; nil is told nothing.
	Note func(message string)
	// Epoch of what Subscribe sends.
	Epoch uint64
	// Timeout of each request; zero means 10 s.
	Timeout time.Duration
}

// Keeper keeps it. Safe for concurrent use; Run runs once.
type Keeper struct {
	cfg Config
	// moved: another ConfigMap is named; unwritten: the annotations may not be true.
	moved, unwritten wake.Signal
	documents        *watch.Store[string, Document] // one, of no key, or none
	known            chan struct{}                  // closed when it is known what is assigned
	knows            sync.Once

	noting sync.Mutex
	noted  string // what Note was told last

	mu     sync.Mutex
	there  map[string]string // the Node's annotations; nil: it was not seen
	stands *Stands           // nil: the owner has not said it
	wrong  string            // why what is named cannot be read
	wrote  bool              // that stands on the Node, by this process
}

// New returns a Keeper that knows nothing yet.
func New(cfg Config) *Keeper {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	return &Keeper{
		cfg: cfg, moved: wake.New(), unwritten: wake.New(), known: make(chan struct{}),
		documents: watch.NewStore[string](cfg.Epoch, func(a, b Document) bool { return a == b }),
	}
}

// Saw tells of the Node as it is.
func (k *Keeper) Saw(n *v1.Node) {
	if n == nil {
		return
	}
	there := map[string]string{}
	for _, name := range append(told(), Annotation) {
		if value, set := n.Annotations[name]; set {
			there[name] = value
		}
	}
	k.mu.Lock()
	moved := k.there == nil || k.there[Annotation] != there[Annotation]
	k.there = there
	k.mu.Unlock()
	if moved {
		k.moved.Set()
	}
	k.unwritten.Set()
}

// told are the annotations that this package writes.
func told() []string {
	return []string{assignedAnnotation, activeAnnotation, goodAnnotation, errorAnnotation, waitsAnnotation}
}

// Tell tells what has become of what was assigned.
func (k *Keeper) Tell(s Stands) {
	k.mu.Lock()
	k.stands = &s
	k.mu.Unlock()
	k.unwritten.Set()
	k.note()
}

// note tells why nothing can be read, else why what was read waits.
func (k *Keeper) note() {
	k.noting.Lock()
	defer k.noting.Unlock()
	k.mu.Lock()
	text := k.wrong
	if text == "" && k.stands != nil {
		text = k.stands.Waits
	}
	same := text == k.noted
	k.noted = text
	k.mu.Unlock()
	if !same && k.cfg.Note != nil {
		k.cfg.Note(text)
	}
}

// Subscribe returns what is assigned, of the empty key, once that is known, and its changes.
func (k *Keeper) Subscribe(ctx context.Context) (*watch.Subscription[string, Document], error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.known:
		return k.documents.Subscribe(ctx), nil
	}
}

// named is what the Node's annotation says; false: the Node was not seen yet.
func (k *Keeper) named() (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.there[Annotation], k.there != nil
}

// assign says what is assigned; nil: nothing.
func (k *Keeper) assign(ctx context.Context, d *Document) {
	if d == nil {
		k.documents.Delete("")
	} else {
		k.documents.Set("", *d)
	}
	k.knows.Do(func() { close(k.known) })
	k.fail(ctx, "")
}

// fail says why what is named cannot be read; empty: it can.
func (k *Keeper) fail(ctx context.Context, why string) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	same := k.wrong == why
	k.wrong = why
	k.mu.Unlock()
	if same {
		return
	}
	k.unwritten.Set()
	k.note()
	if why != "" {
		k.cfg.Events.Send(ctx, node.Event{Type: v1.EventTypeWarning, Reason: "ConfigurationNotRead", Message: cut(why)})
	}
}

// longest is how much is said of an error.
const longest = 1000

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), longest)], "") }

// reference is which ConfigMap is named.
type reference struct{ namespace, name, key string }

func (r reference) String() string { return "ConfigMap " + r.namespace + "/" + r.name }

// parse reads the annotation.
func parse(text string) (reference, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = append(parts, defaultKey)
	}
	if len(parts) != 3 || len(validation.IsDNS1123Label(parts[0])) > 0 || len(validation.IsDNS1123Subdomain(parts[1])) > 0 || len(validation.IsConfigMapKey(parts[2])) > 0 {
		return reference{}, fmt.Errorf("the annotation %s has %q: give it namespace/name of a ConfigMap, or namespace/name/key", Annotation, cut(text))
	}
	return reference{parts[0], parts[1], parts[2]}, nil
}

// document is what a ConfigMap says under a key.
func document(m *v1.ConfigMap, r reference) (*Document, error) {
	text, there := m.Data[r.key]
	if !there {
		var keys []string
		for key := range m.Data {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		return nil, fmt.Errorf("%s has no key %q in its data, but %q: name the key in the annotation %s, namespace/name/key", r, r.key, keys, Annotation)
	}
	return &Document{Namespace: r.namespace, Name: r.name, Key: r.key, UID: string(m.UID), ResourceVersion: m.ResourceVersion, Text: text}, nil
}
