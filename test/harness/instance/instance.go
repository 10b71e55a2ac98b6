// Package instance owns one test instance's directory and everything of the
// machine that the instance may use: its network, its cgroup root, its marks. It
// must never touch what its own record does not name.
package instance

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/polylet/polylet/test/harness/workspace"
)

// recordName is the file that says what belongs to an instance.
const recordName = "instance.json"

// Instance is one directory with the network and cgroup names that go with it.
type Instance struct {
	// Dir is the instance's directory; everything it writes is below.
	Dir string `json:"dir"`
	// ID is a short name, unique on the machine.
	ID string `json:"id"`
	// Subnet is n of the pods' network 10.210.n.0/24 and of the services'
	// network 10.211.n.0/24.
	Subnet int `json:"subnet"`
	// OwnerPid and OwnerStart identify the process that uses the instance.
	OwnerPid   int    `json:"ownerPid"`
	OwnerStart string `json:"ownerStart"`
	// OwnerNamespace is the PID namespace in which OwnerPid is its number.
	OwnerNamespace string `json:"ownerNamespace,omitempty"`
	// Keep says that the instance may outlive its owner.
	Keep bool `json:"keep"`

	release func()
	// inside enters the namespaces that the instance's network is in; empty for
	// the machine's own.
	inside []string
}

// New makes an instance with a directory of its own, after removing what
// crashed earlier runs have left.
func New() (*Instance, error) {
	if err := CleanStale(); err != nil {
		return nil, err
	}
	var raw [3]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, fmt.Errorf("name an instance: %w", err)
	}
	return Named(hex.EncodeToString(raw[:]), false)
}

// Kept makes, or takes over, the instance with this id, which survives its owner until
// Remove is called, after removing what crashed earlier runs have left.
func Kept(id string) (*Instance, error) {
	if err := CleanStale(); err != nil {
		return nil, err
	}
	return Named(id, true)
}

// Named makes, or takes over, the instance with this id (at most 8 letters and
// digits). With keep it survives its owner until Remove is called.
func Named(id string, keep bool) (*Instance, error) {
	dir := filepath.Join(workspace.Instances(), id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make instance %s: %w", id, err)
	}
	inst, err := load(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		inst = &Instance{Dir: dir, ID: id, Subnet: -1}
	case err != nil:
		return nil, err
	case inst.ownerAlive() && inst.OwnerPid != os.Getpid():
		return nil, fmt.Errorf("take over instance %s in %s: process %d uses it; stop that first", id, dir, inst.OwnerPid)
	}
	inst.Keep, inst.OwnerPid = keep, os.Getpid()
	if inst.OwnerStart, err = startTime(os.Getpid()); err != nil {
		return nil, err
	}
	if inst.OwnerNamespace, err = namespaceOf("self"); err != nil {
		return nil, err
	}
	if inst.Subnet, inst.release, err = claimSubnet(inst.Subnet); err != nil {
		return nil, err
	}
	if err := inst.save(); err != nil {
		return nil, err
	}
	return inst, nil
}

// Find returns the instance with this id without taking it over.
func Find(id string) (*Instance, error) {
	return load(filepath.Join(workspace.Instances(), id))
}

// Path returns a path in the instance's directory.
func (i *Instance) Path(parts ...string) string {
	return filepath.Join(append([]string{i.Dir}, parts...)...)
}

// Mkdir makes a directory in the instance and returns its path.
func (i *Instance) Mkdir(parts ...string) (string, error) {
	dir := i.Path(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory of instance %s: %w", i.ID, err)
	}
	return dir, nil
}

// Bridge is the name of the instance's network bridge.
func (i *Instance) Bridge() string { return "pl-" + i.ID }

// Network is the name of the instance's CNI network.
func (i *Instance) Network() string { return "polylet-" + i.ID }

// CgroupRoot is the cgroup under which all pods of the instance stand.
func (i *Instance) CgroupRoot() string { return "/polylet-" + i.ID }

// PodCIDR is the pods' network; the bridge has its first address.
func (i *Instance) PodCIDR() string { return fmt.Sprintf("10.210.%d.0/24", i.Subnet) }

// PodGateway is the bridge's address.
func (i *Instance) PodGateway() string { return fmt.Sprintf("10.210.%d.1", i.Subnet) }

// LAN is the bridge between the machine and the nodes that have a network of
// their own.
func (i *Instance) LAN() string { return "pl-" + i.ID + "-n" }

// LANAddress is an address on the bridge between nodes: the machine's is number 1.
func (i *Instance) LANAddress(n int) string { return fmt.Sprintf("10.212.%d.%d", i.Subnet, n) }

// Inside has the instance's network be in other namespaces from now on: prefix is
// a program with its arguments that enters them.
func (i *Instance) Inside(prefix []string) { i.inside = prefix }

// ServiceCIDR is the services' network. The cluster routes it nowhere.
func (i *Instance) ServiceCIDR() string { return fmt.Sprintf("10.211.%d.0/24", i.Subnet) }

// Release gives the instance up but leaves its directory.
func (i *Instance) Release() {
	if i.release != nil {
		i.release()
		i.release = nil
	}
}

func load(dir string) (*Instance, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, fmt.Errorf("read the record of instance %s: %w", filepath.Base(dir), err)
	}
	inst := new(Instance)
	if err := json.Unmarshal(data, inst); err != nil {
		return nil, fmt.Errorf("read the record of instance %s: %w; remove %s by hand", filepath.Base(dir), err, dir)
	}
	return inst, nil
}

func (i *Instance) save() error {
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return fmt.Errorf("write the record of instance %s: %w", i.ID, err)
	}
	fresh := i.Path(recordName + ".new")
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return fmt.Errorf("write the record of instance %s: %w", i.ID, err)
	}
	return os.Rename(fresh, i.Path(recordName))
}
