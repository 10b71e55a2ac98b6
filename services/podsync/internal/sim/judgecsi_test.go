package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// account is what the judge knows of CSI drivers' volumes.
type account struct {
	lives map[*life]*asked
	// used and shown are the volumes that the Node says are in use, and attached, and
	// since when.
	used, shown map[string]time.Time
	// bound are the claims that are bound, since when; drivers those that are registered.
	bound, drivers map[string]time.Time
	// up is when podsync was started last.
	up time.Time
	// down is when the last sandbox of a pod had stopped and its network had gone, by the pod's
	// UID.
	down map[string]time.Time
	// over are the places in which a volume was published and is no more, and first those
	// in which one was asked for.
	over, first map[string]bool
	// sizes are those that claims were asked to have, and grown those that their volumes
	// have, in bytes.
	sizes, grown map[string]int64
	// staged are the volumes that are staged as devices, by their drivers and handles.
	staged map[string]bool
}

// asked is what one life of podsync has asked drivers for.
type asked struct {
	busy map[string]string // volumes with a call under way, by their drivers and handles
	// there are the places in which a driver has said that a volume is.
	there map[string]bool
}

func newAccount() account {
	return account{
		lives: map[*life]*asked{}, used: map[string]time.Time{}, shown: map[string]time.Time{}, bound: map[string]time.Time{},
		drivers: map[string]time.Time{}, over: map[string]bool{}, first: map[string]bool{}, down: map[string]time.Time{},
		sizes: map[string]int64{}, grown: map[string]int64{}, staged: map[string]bool{},
	}
}

// boundAt is since when a claim is bound; zero when it is not.
func (j *judge) boundAt(claim string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.disks.bound[claim]
}

// registered notes that podsync has taken a driver, or has let it go.
func (j *judge) registered(l *life, driver string, is bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if l.dead.Load() {
		return
	}
	delete(j.disks.drivers, driver)
	if is {
		j.disks.drivers[driver] = time.Now()
	}
}

// attached notes that the Node is about to say whether a volume is attached.
func (j *judge) attached(name string, is bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.disks.shown, name)
	if is {
		j.disks.shown[name] = time.Now()
	}
}

// inUse checks which volumes the Node is about to say are in use: all that are there.
func (j *judge) inUse(names map[string]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name := range j.disks.used {
		if names[name] {
			continue
		}
		delete(j.disks.used, name)
		if at := j.w.places(disk(name)); len(at) > 0 && j.w.mustAttach(name) {
			j.violationLocked("the Node does not say any more that volume %s is in use, and it is mounted on %v", name, at)
		}
	}
	for name := range names {
		if j.disks.used[name].IsZero() {
			j.disks.used[name] = time.Now()
		}
	}
}

// mustAttach says whether a volume is one that is attached to nodes.
func (w *world) mustAttach(onNode string) bool {
	driver, _ := disk(onNode)
	d := w.disks.of(driver)
	return d != nil && d.attach
}

// places are where a volume of a driver is mounted.
func (w *world) places(driver, handle string) (at []string) {
	for _, m := range w.mounts.Mounts() {
		if w.mounts.Source(m) == "csi "+driver+" "+handle {
			at = append(at, m)
		}
	}
	return append(at, w.deviceFiles(driver, handle)...)
}

// podAt is the pod that has a place, by its UID; empty for the place of all.
func (w *world) podAt(place string) string {
	if uid := w.deviceAt(place); uid != "" {
		return uid
	}
	rest, ok := strings.CutPrefix(place, filepath.Join(w.dir, "root", "pods")+"/")
	uid, _, _ := strings.Cut(rest, "/")
	if !ok {
		return ""
	}
	return uid
}

// diskCall checks what podsync asks a driver for; ended is told of the answer.
func (j *judge) diskCall(l *life, d *driver, name string, req any) (ended func(error)) {
	if !changing(name) {
		return func(error) {}
	}
	volume, place := volumeOf(req), placeOf(req)
	of := d.name + " " + volume
	what := fmt.Sprintf("%s of volume %s on %s", name, of, strings.TrimPrefix(place, j.w.dir))
	j.mu.Lock()
	defer j.mu.Unlock()
	mine := j.disks.lives[l]
	if mine == nil {
		mine = &asked{busy: map[string]string{}, there: map[string]bool{}}
		j.disks.lives[l] = mine
	}
	if other := mine.busy[of]; other != "" {
		j.violationLocked("%s was asked for during %s", what, other)
	}
	mine.busy[of] = what
	switch name {
	case "NodeStageVolume", "NodePublishVolume":
		j.mayComeLocked(d, mine, what, req)
	case "NodeUnpublishVolume":
		j.mayGoLocked(what, place)
		j.goesInTimeLocked(d, what, place)
	case "NodeExpandVolume":
		j.mayGrowLocked(d, what, req.(*csi.NodeExpandVolumeRequest))
	case "NodeUnstageVolume":
		for _, at := range j.w.places(d.name, volume) {
			if at != place {
				j.violationLocked("%s was asked for while it is mounted on %s", what, at)
			}
		}
	}
	return func(err error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(mine.busy, of)
		switch {
		case strings.HasPrefix(name, "NodeUn"):
			delete(mine.there, place) // also after an error: nobody knows
			if err == nil && name == "NodeUnpublishVolume" {
				j.disks.over[place] = true
			}
		case err == nil && name != "NodeExpandVolume":
			mine.there[place] = true
		}
		if strings.HasSuffix(name, "tageVolume") && (err == nil || name == "NodeUnstageVolume") {
			j.disks.staged[of] = name == "NodeStageVolume"
		}
	}
}

// mayComeLocked checks a call that brings a volume to a place.
func (j *judge) mayComeLocked(d *driver, mine *asked, what string, req any) {
	volume, place := volumeOf(req), placeOf(req)
	uid := j.w.podAt(place)
	persistent := strings.HasPrefix(volume, "h-")
	if mine.there[place] && !(uid != "" && d.republish) {
		j.violationLocked("%s was asked for again", what)
	}
	if source := j.w.mounts.Source(place); source != "" && source != "csi "+d.name+" "+volume {
		j.violationLocked("%s was asked for where %s is", what, source)
	}
	if persistent {
		j.claimedLocked(d, what, volume)
	}
	if uid == "" {
		for _, at := range j.w.places(d.name, volume) {
			if j.w.podAt(at) == "" && at != place {
				j.violationLocked("%s was asked for while it is staged on %s", what, at)
			}
		}
		return
	}
	if q, ok := req.(*csi.NodePublishVolumeRequest); ok && persistent && d.stages && j.w.mounts.Source(q.GetStagingTargetPath()) == "" && !(q.GetVolumeCapability().GetBlock() != nil && j.disks.staged[d.name+" "+volume]) {
		j.violationLocked("%s was asked for before it was staged", what)
	}
	if j.disks.over[place] {
		j.violationLocked("%s was asked for after it had been taken back", what)
	}
	j.inTimeLocked(d, what, volume, place)
}

// claimedLocked checks that a claim's volume may be used.
func (j *judge) claimedLocked(d *driver, what, volume string) {
	claim := strings.TrimPrefix(volume, "h-")
	name := d.onNode(claim)
	switch {
	case j.disks.bound[claim].IsZero():
		j.violationLocked("%s was asked for, and its claim is not bound", what)
	case !d.attach:
	case j.disks.used[name].IsZero():
		j.violationLocked("%s was asked for before the Node says that it is in use", what)
	case j.disks.shown[name].IsZero():
		j.violationLocked("%s was asked for, and it is not attached", what)
	}
}

// mayGoLocked checks a call that takes a volume from its pod.
func (j *judge) mayGoLocked(what, place string) {
	uid := j.w.podAt(place)
	if live := j.live(uid); live > 0 {
		j.violationLocked("%s was asked for while %d containers of its pod run", what, live)
	}
	if len(j.ready[uid]) > 0 {
		j.violationLocked("%s was asked for before its pod's sandbox was stopped", what)
	}
}

// diskMounts checks that a driver mounts nothing where something is, and what may be used.
func (j *judge) diskMounts(d *driver, volume, target string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	what := fmt.Sprintf("the mount of volume %s %s on %s", d.name, volume, strings.TrimPrefix(target, j.w.dir))
	j.w.tell("DISK mounted", "driver", d.name, "volume", volume, "target", target)
	if j.w.mounts.Source(target) != "" {
		j.violationLocked("%s is the second one there", what)
	}
	if strings.HasPrefix(volume, "h-") {
		j.claimedLocked(d, what, volume)
	}
}

// soonAsked is how long after all that it needs is there a driver may be asked for a volume.
const soonAsked = 10 * time.Second

// inTimeLocked checks that no pod waits for another's driver: where nothing else goes
// wrong, a driver that is as it should be is asked at once.
func (j *judge) inTimeLocked(d *driver, what, volume, place string) {
	f := j.owners[j.w.podAt(place)]
	if j.disks.first[place] || f == nil {
		return
	}
	j.disks.first[place] = true
	since := latest(f.since, j.disks.up, j.disks.drivers[d.name])
	for _, v := range f.sub.pod.Spec.Volumes {
		p := j.w.scenario.planOf(v)
		if p == nil || !p.steady() || !j.w.scenario.calm {
			return
		}
		if v.PersistentVolumeClaim != nil {
			claim := v.PersistentVolumeClaim.ClaimName
			since = latest(since, j.disks.bound[claim], j.disks.used[p.onNode(claim)], j.disks.shown[p.onNode(claim)])
		}
	}
	if late := time.Since(since); late > soonAsked {
		j.violationLocked("%s was asked for %v after all was there that it needs; whom did it wait for? (%s)", what, late, volume)
	}
}

// goesInTimeLocked checks that no volume waits at its pod's end for another's driver: where
// nothing else goes wrong, a driver that is as it should be is asked at once for its volume,
// however the pod's others are.
func (j *judge) goesInTimeLocked(d *driver, what, place string) {
	uid := j.w.podAt(place)
	f := j.owners[uid]
	gone := "gone " + place
	if j.disks.first[gone] || f == nil {
		return
	}
	j.disks.first[gone] = true
	if f.unwanted.IsZero() || j.disks.down[uid].IsZero() || !d.steady() || !j.w.scenario.calm {
		return
	}
	if late := time.Since(latest(f.unwanted, j.disks.down[uid], j.disks.up, j.disks.drivers[d.name])); late > soonAsked {
		j.violationLocked("%s was asked for %v after its pod was down; whose volume did it wait for?", what, late)
	}
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// planOf is the driver of a volume in a spec; nil for one of no driver.
func (s *scenario) planOf(v v1.Volume) *driverPlan {
	switch {
	case s.csi == nil:
	case v.PersistentVolumeClaim != nil:
		return s.csi.claims[v.PersistentVolumeClaim.ClaimName]
	case v.CSI != nil:
		for _, p := range s.csi.drivers {
			if p.name == v.CSI.Driver {
				return p
			}
		}
	}
	return nil
}

// equipped checks that a container starts with the volumes of its pod's CSI drivers.
func (j *judge) equipped(tr fakecri.Transition, f *facts) {
	for _, v := range f.sub.pod.Spec.Volumes {
		p := j.w.scenario.planOf(v)
		if p == nil {
			continue
		}
		name := v.Name
		if v.PersistentVolumeClaim != nil && j.w.scenario.csi.isRaw(v.PersistentVolumeClaim.ClaimName) {
			j.hasDevice(tr, v, p)
			continue
		}
		if v.PersistentVolumeClaim != nil {
			name = "of-" + v.PersistentVolumeClaim.ClaimName
		}
		at := filepath.Join(j.w.dir, "root", "pods", tr.PodUID, "volumes", "kubernetes.io~csi", name, "mount")
		if source := j.w.mounts.Source(at); !strings.HasPrefix(source, "csi "+p.name+" ") {
			j.violationLocked("container %s of pod %s was started though its volume %s is not published", tr.Name, tr.Pod, v.Name)
		}
	}
}

// strayDisks says what is left of volumes that no pod has.
func (w *world) strayDisks(owners map[string]*v1.Pod) string {
	if w.scenario.csi == nil {
		return ""
	}
	have := map[string]bool{}
	for _, pod := range owners {
		for _, v := range pod.Spec.Volumes {
			if p := w.scenario.planOf(v); p != nil && v.PersistentVolumeClaim != nil && !ended(pod) {
				have[p.onNode(v.PersistentVolumeClaim.ClaimName)] = true
			}
		}
	}
	for _, why := range []string{w.strayDevices(owners, have), w.ungrown(owners), w.unsaid(owners)} {
		if why != "" {
			return why
		}
	}
	stagings := w.stagings()
	for _, m := range w.mounts.Mounts() {
		if !strings.HasPrefix(m, stagings) || w.deviceAt(m) != "" {
			continue
		}
		if parts := strings.Fields(w.mounts.Source(m)); len(parts) != 3 || !have["kubernetes.io/csi/"+parts[1]+"^"+parts[2]] {
			return fmt.Sprintf("%v is staged on %s for no pod", parts, m)
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(stagings, "*", "*", "vol_data.json"))
	for _, d := range dirs {
		raw, _ := os.ReadFile(d)
		known := false
		for name := range have {
			_, handle := disk(name)
			known = known || strings.Contains(string(raw), `"`+handle+`"`)
		}
		if !known {
			return "the directory of a volume that no pod has: " + d
		}
	}
	node := w.api.Node(nodeName)
	for _, name := range node.Status.VolumesInUse {
		if !have[string(name)] {
			return fmt.Sprintf("volume %s is in use by no pod", name)
		}
	}
	for _, a := range node.Status.VolumesAttached {
		if !have[string(a.Name)] {
			return fmt.Sprintf("volume %s is attached for no pod", a.Name)
		}
	}
	return ""
}

// stagings is where volumes are staged.
func (w *world) stagings() string {
	return filepath.Join(w.dir, "root", "plugins", "kubernetes.io", "csi") + "/"
}
