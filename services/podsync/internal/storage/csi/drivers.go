package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/host/plugins"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
)

// Info is what a driver says of itself on this node.
type Info struct {
	Name, NodeID string
	// Topology are the labels of where the node is, for the driver.
	Topology map[string]string
	// MaxVolumes is how many of its volumes the node can have; zero when it does not say.
	MaxVolumes int64
}

// State is how a driver stands on this node.
type State struct {
	Info
	// Gone: it was registered and is not any more.
	Gone bool
}

// mostGone is of how many drivers that are gone it is known that they were there: who
// registers ever new names must not fill this process.
const mostGone = 256

// Subscribe tells of all drivers, and then of their changes.
func (c *Volumes) Subscribe(ctx context.Context) *watch.Subscription[string, State] {
	return c.drivers.told.Subscribe(ctx)
}

// registered is a driver that is registered.
type registered struct {
	plugin  plugins.Plugin
	version *version.Version
	said    Info
	room    room
	*peer.Driver
	asked chan struct{} // places for questions about volumes

	// awaited: it is waited for that it is connected again, with ever longer pauses. Guarded by
	// drivers.mu.
	awaited bool
	pause   *backoff.Backoff
}

// close ends what is done with a driver.
func (r *registered) close() {
	r.room.stop()
	r.Driver.Close()
}

// drivers are those that are registered.
type drivers struct {
	cfg  Config
	wake func(driver string, uids []types.UID)
	// forgotten is told of drivers of which nobody needs to know any more.
	forgotten func(name string)

	mu   sync.Mutex
	all  map[string]*registered
	told *watch.Store[string, State]
	gone []string // names that are told as gone, the oldest first
	// refused are names of drivers that were not taken, the oldest first.
	refused []string
	// waiting are the pods that want a driver which is not there.
	waiting map[string]map[types.UID]bool
}

func newDrivers(cfg Config, wake func(string, []types.UID)) *drivers {
	return &drivers{
		cfg: cfg, wake: wake, all: map[string]*registered{}, waiting: map[string]map[types.UID]bool{},
		told: watch.NewStore[string, State](cfg.Epoch, nil),
	}
}

// driverName is what the CSI spec lets a driver be called.
const driverName = `^[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$`

// mostOfANodeID is how long the CSI spec lets a node's name be, in bytes.
const mostOfANodeID = 256

// Register implements plugins.Handler: the driver is asked who it takes this node for.
func (c *Volumes) Register(ctx context.Context, p plugins.Plugin) error {
	highest, err := c.drivers.acceptable(p)
	if err != nil {
		return err
	}
	to, err := c.deps.Dial(p.Endpoint)
	if err != nil {
		return err
	}
	conn := peer.New(to, func(ctx context.Context, done peer.Call) { c.called(ctx, p.Name, done) })
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	info, err := askInfo(limited, p.Name, conn)
	if err != nil {
		conn.Close()
		c.drivers.refuse(p.Name)
		return err
	}
	r := &registered{plugin: p, version: highest, said: info, room: newRoom(), Driver: conn, asked: make(chan struct{}, mostAsked), pause: newPause()}
	c.followRoom(ctx, r)
	if err := c.drivers.add(r); err != nil {
		r.close()
		return err
	}
	return nil
}

// askInfo asks a driver what it says of itself on this node.
func askInfo(ctx context.Context, name string, driver *peer.Driver) (Info, error) {
	said, err := driver.Info(ctx)
	if err == nil {
		err = checkNodeID(said.NodeID)
	}
	return Info{Name: name, NodeID: said.NodeID, Topology: said.Topology, MaxVolumes: said.MaxVolumes}, err
}

// checkNodeID refuses what the CSI spec does not let a node be called.
func checkNodeID(id string) error {
	switch {
	case id == "":
		return errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	case len(id) > mostOfANodeID:
		return fmt.Errorf("the driver's name of the node has %d bytes, more than %d", len(id), mostOfANodeID)
	}
	return nil
}

// Deregister implements plugins.Handler.
func (c *Volumes) Deregister(p plugins.Plugin) {
	if gone := c.drivers.remove(p); gone != nil {
		gone.close()
		if c.deps.Cluster != nil {
			c.deps.Cluster.LeaveDriver(p.Name)
		}
	}
}

// acceptable says why a driver is not taken, or which version of CSI is spoken with it.
func (d *drivers) acceptable(p plugins.Plugin) (*version.Version, error) {
	if ok, _ := regexp.MatchString(driverName, p.Name); !ok {
		return nil, fmt.Errorf("%.80q is no name of a CSI driver", p.Name)
	}
	if !filepath.IsAbs(p.Endpoint) {
		return nil, fmt.Errorf("the endpoint %.128q of CSI driver %s is no path of a socket", p.Endpoint, p.Name)
	}
	if len(p.Versions) > 100 {
		return nil, fmt.Errorf("CSI driver %s supports %d versions", p.Name, len(p.Versions))
	}
	highest, err := version.HighestSupportedVersion(p.Versions)
	if err != nil {
		return nil, fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: none of its versions %q is supported, which must be 1.x: %w", p.Name, p.Endpoint, p.Versions, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return highest, d.conflictLocked(p.Name, highest)
}

// conflictLocked says that another driver has the name.
func (d *drivers) conflictLocked(name string, highest *version.Version) error {
	if old := d.all[name]; old != nil && !old.version.LessThan(highest) {
		return fmt.Errorf("kubernetes.io/csi: RegisterPlugin for CSI driver %q failed. Another driver with the same name is already registered with a higher supported version: %q", name, old.version)
	}
	return nil
}

// refuse notes that a driver was asked and not taken: of who comes with ever new names the
// first are forgotten.
func (d *drivers) refuse(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[name] != nil || slices.Contains(d.gone, name) || slices.Contains(d.refused, name) {
		return
	}
	if d.refused = append(d.refused, name); len(d.refused) > mostGone {
		d.forgotten(d.refused[0])
		d.refused = d.refused[1:]
	}
}

// add takes a driver in, and wakes the pods that wait for it.
func (d *drivers) add(r *registered) error {
	d.mu.Lock()
	if err := d.conflictLocked(r.plugin.Name, r.version); err != nil {
		d.mu.Unlock()
		return err
	}
	old := d.all[r.plugin.Name]
	d.all[r.plugin.Name] = r
	d.gone = slices.DeleteFunc(d.gone, func(name string) bool { return name == r.plugin.Name })
	d.refused = slices.DeleteFunc(d.refused, func(name string) bool { return name == r.plugin.Name })
	d.told.Set(r.plugin.Name, State{Info: r.said})
	wake := d.cameLocked(r.plugin.Name)
	d.mu.Unlock()
	if old != nil {
		old.close()
	}
	d.wake(r.plugin.Name, wake)
	return nil
}

// cameLocked are the pods that wait for a driver, and wait no more.
func (d *drivers) cameLocked(name string) (wake []types.UID) {
	for uid := range d.waiting[name] {
		wake = append(wake, uid)
	}
	delete(d.waiting, name)
	return wake
}

// remove forgets a driver unless another has taken its place; nil then.
func (d *drivers) remove(p plugins.Plugin) *registered {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.all[p.Name]
	if r == nil || r.plugin.Endpoint != p.Endpoint || !slices.Equal(r.plugin.Versions, p.Versions) {
		return nil
	}
	delete(d.all, p.Name)
	d.told.Set(p.Name, State{Info: Info{Name: p.Name}, Gone: true})
	if d.gone = append(d.gone, p.Name); len(d.gone) > mostGone {
		d.told.Delete(d.gone[0])
		d.forgotten(d.gone[0])
		d.gone = d.gone[1:]
	}
	return r
}

// get finds a driver for a pod, which is woken when it comes if it is not there.
func (d *drivers) get(name string, uid types.UID) (*registered, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.findLocked(name)
	if err == nil {
		return r, nil
	}
	d.waitLocked(name, uid)
	return nil, err
}

func (d *drivers) waitLocked(name string, uid types.UID) {
	if d.waiting[name] == nil {
		d.waiting[name] = map[types.UID]bool{}
	}
	d.waiting[name][uid] = true
}

// find finds a driver; nobody is told when it comes.
func (d *drivers) find(name string) (*registered, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findLocked(name)
}

func (d *drivers) findLocked(name string) (*registered, error) {
	if r := d.all[name]; r != nil {
		return r, nil
	}
	return nil, podstate.VolumeDriverAway.Wrap(fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name))
}

// forget drops a pod that waits for drivers no more.
func (d *drivers) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, uids := range d.waiting {
		if delete(uids, uid); len(uids) == 0 {
			delete(d.waiting, name)
		}
	}
}

func (d *drivers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.all {
		r.close()
	}
}
