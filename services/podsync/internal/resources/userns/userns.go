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

	mu     sync.Mutex
	loaded bool
	host   Range
	slots  map[uint64]types.UID // by index in host
	pods   map[types.UID]uint64
}

// New makes an Allocator; it touches no file.
func New(cfg Config) *Allocator {
	if cfg.IDsPerPod == 0 {
		cfg.IDsPerPod = DefaultIDs
	}
	return &Allocator{cfg: cfg, slots: map[uint64]types.UID{}, pods: map[types.UID]uint64{}}
}

// Mapping is the pod's range: the one it has, or a free one, which is on the
// disk before it is returned. The pod's directory must exist.
func (a *Allocator) Mapping(uid types.UID) (Mapping, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.load(); err != nil {
		return Mapping{}, err
	}
	if slot, ok := a.pods[uid]; ok {
		return a.mapping(slot), nil
	}
	for slot := range a.host.Count / uint64(a.cfg.IDsPerPod) {
		if _, taken := a.slots[slot]; taken {
			continue
		}
		m := a.mapping(slot)
		if err := fsatomic.WriteFile(a.file(uid), encode(m), 0o644); err != nil {
			return Mapping{}, fmt.Errorf("keep the pod's user namespace: %w", err)
		}
		a.slots[slot], a.pods[uid] = uid, slot
		return m, nil
	}
	return Mapping{}, fmt.Errorf("no user namespace is free: all %d ranges of %d ids are taken", len(a.slots), a.cfg.IDsPerPod)
}

// Release gives a pod's range back, if it has one, and removes its file, by
// which a next process would take it for taken. Nothing of the pod may run any
// more. Idempotent.
func (a *Allocator) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.Remove(a.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give the pod's user namespace back: %w", err)
	}
	if slot, ok := a.pods[uid]; ok {
		delete(a.slots, slot)
		delete(a.pods, uid)
	}
	return nil
}

func (a *Allocator) mapping(slot uint64) Mapping {
	return Mapping{HostID: uint32(a.host.First + slot*uint64(a.cfg.IDsPerPod)), Length: a.cfg.IDsPerPod}
}

// load takes in, once, what the directories of all pods say.
func (a *Allocator) load() error {
	if a.loaded {
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
	a.host = host
	slots, pods := map[uint64]types.UID{}, map[types.UID]uint64{}
	for _, e := range entries {
		uid := types.UID(e.Name())
		m, err := read(a.file(uid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // it has none, or is no pod's directory
		}
		var slot uint64
		if err == nil {
			slot, err = a.slotOf(m)
		}
		if err == nil && slots[slot] != "" {
			err = fmt.Errorf("pod %s has the same ids", slots[slot])
		}
		if err != nil {
			return fmt.Errorf("%s cannot be believed, and no pod gets a user namespace lest its ids be given out twice; delete that pod, then remove the file: %w", a.file(uid), err)
		}
		slots[slot], pods[uid] = uid, slot
	}
	a.slots, a.pods, a.loaded = slots, pods, true
	return nil
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
func (a *Allocator) slotOf(m Mapping) (uint64, error) {
	size := uint64(a.cfg.IDsPerPod)
	at := uint64(m.HostID)
	if m.Length != a.cfg.IDsPerPod || at < a.host.First || at+size > a.host.First+a.host.Count || (at-a.host.First)%size != 0 {
		return 0, fmt.Errorf("the ids %d to %d are none of the ranges of %d ids from %d on; userNamespaces.idsPerPod and the ids of user kubelet must not change while pods have user namespaces",
			at, at+uint64(m.Length), size, a.host.First)
	}
	return (at - a.host.First) / size, nil
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
