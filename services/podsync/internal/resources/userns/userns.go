// Package userns gives pods that ask for a user namespace (hostUsers: false) a
// range of host user and group ids of their own.
//
// It owns <pod dir>/userns, which the kubelet keeps in the same shape. It must
// never give two pods ids that overlap: a file that cannot be read stops new
// ranges until it is mended or its pod is gone.
//
// Source: KEP-127, Support User Namespaces in stateless and stateful pods.
package userns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/turn"
)

// DefaultIDs is the least, and usual, number of ids of a pod.
const DefaultIDs = 65536

// maxFile bounds what is read of a pod's file.
const maxFile = 64 << 10

// Range is ids on the host: [First, First+Count).
type Range struct {
	First, Count uint64
}

// Mapping maps ids of a container, from zero on, to ids of the host.
type Mapping struct {
	HostID, Length uint32
}

// Config of an Allocator.
type Config struct {
	// RootDir is the node agent's root; pods lie below its directory pods.
	RootDir string
	// IDsPerPod is a multiple of 65536; that when zero.
	IDsPerPod uint32
	// Host tells which ids of the host may be given out; nil is all above the
	// first IDsPerPod. It is asked once, and again after an error.
	Host func() (Range, error)
}

// Allocator gives out ranges. Safe for concurrent use.
type Allocator struct {
	cfg Config

	// files are turns at the pods' files, and at reading all of them.
	files turn.Turns
	write func(path string, data []byte, mode os.FileMode) error

	mu     sync.Mutex // never held while a file is read or written
	loaded bool
	host   Range
	slots  map[uint64]types.UID // by index in host; the file of some is yet to be written
	pods   map[types.UID]uint64
	kept   map[types.UID]bool // whose file is written
}

// New makes an Allocator; it touches no file.
func New(cfg Config) *Allocator {
	if cfg.IDsPerPod == 0 {
		cfg.IDsPerPod = DefaultIDs
	}
	return &Allocator{
		cfg: cfg, write: fsatomic.WriteFile, slots: map[uint64]types.UID{}, pods: map[types.UID]uint64{}, kept: map[types.UID]bool{},
	}
}

// Mapping is the pod's range: the one it has, or a free one, which is on the
// disk before it is returned. The pod's directory must exist.
func (a *Allocator) Mapping(uid types.UID) (Mapping, error) {
	if err := a.load(); err != nil {
		return Mapping{}, err
	}
	defer a.files.Take(string(uid))()
	m, kept, err := a.reserve(uid)
	if err != nil || kept {
		return m, err
	}
	if err := a.write(a.file(uid), encode(m), 0o644); err != nil {
		// What a write that failed has left in its place keeps the range the pod's.
		if _, there := os.Lstat(a.file(uid)); errors.Is(there, fs.ErrNotExist) {
			a.drop(uid)
		}
		return Mapping{}, fmt.Errorf("keep the pod's user namespace: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept[uid] = true
	return m, nil
}

// reserve is the pod's range, a free one when it has none, and whether that is on the
// disk.
func (a *Allocator) reserve(uid types.UID) (m Mapping, kept bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.pods[uid]; ok {
		return a.mapping(slot), a.kept[uid], nil
	}
	for slot := range a.host.Count / uint64(a.cfg.IDsPerPod) {
		if _, taken := a.slots[slot]; !taken {
			a.slots[slot], a.pods[uid] = uid, slot
			return a.mapping(slot), false, nil
		}
	}
	return Mapping{}, false, fmt.Errorf("no user namespace is free: all %d ranges of %d ids are taken", len(a.slots), a.cfg.IDsPerPod)
}

// Release gives a pod's range back, if it has one, and removes its file, by
// which a next process would take it for taken. Nothing of the pod may run any
// more. Idempotent.
func (a *Allocator) Release(uid types.UID) error {
	if !a.isLoaded() {
		defer a.files.Take("")() // the files are not being read
	}
	defer a.files.Take(string(uid))()
	if err := os.Remove(a.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give the pod's user namespace back: %w", err)
	}
	a.drop(uid)
	return nil
}

// drop frees the pod's range.
func (a *Allocator) drop(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.pods[uid]; ok {
		delete(a.slots, slot)
		delete(a.pods, uid)
		delete(a.kept, uid)
	}
}

func (a *Allocator) mapping(slot uint64) Mapping {
	return Mapping{HostID: uint32(a.host.First + slot*uint64(a.cfg.IDsPerPod)), Length: a.cfg.IDsPerPod}
}

// load takes in, once, what the directories of all pods say. Nobody gets a range
// before that is known.
func (a *Allocator) load() error {
	if a.isLoaded() {
		return nil
	}
	defer a.files.Take("")()
	if a.isLoaded() {
		return nil
	}
	host, err := a.hostRange()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(a.cfg.RootDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the user namespaces that pods have: %w", err)
	}
	slots, pods, kept := map[uint64]types.UID{}, map[types.UID]uint64{}, map[types.UID]bool{}
	for _, e := range entries {
		uid := types.UID(e.Name())
		m, err := read(a.file(uid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // it has none, or is no pod's directory
		}
		var slot uint64
		if err == nil {
			slot, err = a.slotOf(host, m)
		}
		if err == nil && slots[slot] != "" {
			err = fmt.Errorf("pod %s has the same ids", slots[slot])
		}
		if err != nil {
			return fmt.Errorf("%s cannot be believed, and no pod gets a user namespace lest its ids be given out twice; delete that pod, then remove the file: %w", a.file(uid), err)
		}
		slots[slot], pods[uid], kept[uid] = uid, slot, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.host, a.slots, a.pods, a.kept, a.loaded = host, slots, pods, kept, true
	return nil
}

func (a *Allocator) isLoaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded
}

func (a *Allocator) hostRange() (Range, error) {
	size := uint64(a.cfg.IDsPerPod)
	if a.cfg.Host == nil {
		return Range{First: size, Count: math.MaxUint32 + 1 - size}, nil
	}
	host, err := a.cfg.Host()
	switch {
	case err != nil:
		return Range{}, fmt.Errorf("find out which ids may be given to pods: %w", err)
	case host == Range{}:
		return Range{First: size, Count: math.MaxUint32 + 1 - size}, nil
	case host.First < size || host.First%size != 0 || host.Count < size || host.Count%size != 0 || host.First+host.Count > math.MaxUint32+1:
		return Range{}, fmt.Errorf("the ids %d to %d of user kubelet must begin at a multiple of %d and be a multiple of it", host.First, host.First+host.Count, size)
	}
	return host, nil
}

// slotOf is the index of a mapping that this allocator could have made.
func (a *Allocator) slotOf(host Range, m Mapping) (uint64, error) {
	size := uint64(a.cfg.IDsPerPod)
	at := uint64(m.HostID)
	if m.Length != a.cfg.IDsPerPod || at < host.First || at+size > host.First+host.Count || (at-host.First)%size != 0 {
		return 0, fmt.Errorf("the ids %d to %d are none of the ranges of %d ids from %d on; userNamespaces.idsPerPod and the ids of user kubelet must not change while pods have user namespaces",
			at, at+uint64(m.Length), size, host.First)
	}
	return (at - host.First) / size, nil
}

func (a *Allocator) file(uid types.UID) string {
	return filepath.Join(a.cfg.RootDir, "pods", string(uid), "userns")
}

// document is the file's shape, the kubelet's.
type document struct {
	UIDMappings []idMapping `json:"uidMappings"`
	GIDMappings []idMapping `json:"gidMappings"`
}

type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func encode(m Mapping) []byte {
	ids := []idMapping{{HostID: m.HostID, Length: m.Length}}
	data, _ := json.Marshal(document{ids, ids}) // numbers cannot fail
	return data
}

func read(path string) (Mapping, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Mapping{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return Mapping{}, errors.New("it is not a small file")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Mapping{}, err
	}
	return decode(data)
}

func decode(data []byte) (Mapping, error) {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	var d document
	if err := strict.Decode(&d); err != nil {
		return Mapping{}, err
	}
	if len(d.UIDMappings) != 1 || len(d.GIDMappings) != 1 || d.UIDMappings[0] != d.GIDMappings[0] || d.UIDMappings[0].ContainerID != 0 {
		return Mapping{}, errors.New("it must map one range of users and the same of groups, from zero on")
	}
	return Mapping{HostID: d.UIDMappings[0].HostID, Length: d.UIDMappings[0].Length}, nil
}
