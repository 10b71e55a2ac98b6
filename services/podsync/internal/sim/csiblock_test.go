package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// deviceUser is a pod with volumes that are devices.
const deviceUser = "device user"

// withDevice gives a pod the volume of a claim as a device.
func (s *subject) withDevice(claim string) {
	spec := &s.pod.Spec
	name := fmt.Sprint("device", len(spec.Volumes))
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	for i := range spec.Containers {
		spec.Containers[i].VolumeDevices = append(spec.Containers[i].VolumeDevices, v1.VolumeDevice{Name: name, DevicePath: "/dev/" + name})
	}
}

// devices adds, to some scenarios with CSI drivers, pods that have volumes of these as
// devices, their own and a shared one. It takes its choices from a source of its own.
func (s *scenario) devices(seed int64) {
	if s.csi == nil {
		return
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 23))
	if rng.IntN(2) == 0 {
		return
	}
	when := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
	for i := range 1 + rng.IntN(2) {
		grace := int64([]int{0, 2, 10}[rng.IntN(3)])
		sub := newPod(deviceUser, fmt.Sprint("b", i), &grace, rng)
		p := s.csi.drivers[rng.IntN(len(s.csi.drivers))]
		for _, claim := range [][]string{{"raw-" + p.name}, {"raw-" + sub.pod.Name}, {"raw-" + p.name, "raw-" + sub.pod.Name}}[rng.IntN(3)] {
			s.device(claim, p, when()/2)
			sub.withDevice(claim)
		}
		s.put(sub)
		s.life(rng, sub)
	}
}

// device plans a claim whose volume is a device, once.
func (s *scenario) device(claim string, p *driverPlan, at time.Duration) {
	if s.csi.claims[claim] != nil {
		return
	}
	s.csi.claims[claim] = p
	s.csi.raw = append(s.csi.raw, claim)
	s.add(at, "make and bind the claim "+claim+" of a device", func(w *world) { w.makeDisk(claim) })
}

// isRaw says whether the volume of a claim is a device.
func (p *csiPlan) isRaw(claim string) bool { return slices.Contains(p.raw, claim) }

// allDevices is where volumes are that are devices.
func (w *world) allDevices() string { return filepath.Join(w.stagings(), "volumeDevices") }

// deviceAt is the pod that a device at a path is for; empty for none.
func (w *world) deviceAt(place string) string {
	rest, is := strings.CutPrefix(place, w.allDevices()+"/")
	parts := strings.Split(rest, "/")
	if !is || len(parts) != 3 || parts[0] != "publish" && parts[1] != "dev" {
		return ""
	}
	return parts[2]
}

// diskAt is what a driver has at a path: "csi driver handle".
func (w *world) diskAt(path string) string {
	if w.deviceAt(path) == "" {
		return w.mounts.Source(path)
	}
	is, _ := os.ReadFile(path)
	return string(is)
}

// putDevice makes a device of a volume.
func (d *driver) putDevice(volume, target string) error {
	d.disks.w.judge.diskMounts(d, volume, target)
	return os.WriteFile(target, []byte("csi "+d.name+" "+volume), 0o600)
}

// deviceFiles are those at which a volume of a driver is.
func (w *world) deviceFiles(driver, handle string) (at []string) {
	files, _ := filepath.Glob(filepath.Join(w.allDevices(), "publish", "*", "*"))
	for _, f := range files {
		if w.diskAt(f) == "csi "+driver+" "+handle {
			at = append(at, f)
		}
	}
	return at
}

// hasDevice checks that a container starts with a device of its pod.
func (j *judge) hasDevice(tr fakecri.Transition, v v1.Volume, p *driverPlan) {
	claim := v.PersistentVolumeClaim.ClaimName
	link := filepath.Join(j.w.dir, "root", "pods", tr.PodUID, "volumeDevices", "kubernetes.io~csi", "of-"+claim)
	if is, err := os.ReadFile(link); err != nil || string(is) != "csi "+p.name+" h-"+claim {
		j.violationLocked("container %s of pod %s was started though its device %s is not there", tr.Name, tr.Pod, v.Name)
	}
}

// strayDevices says what is left of devices that no pod has; have are the volumes of pods
// that have not ended, as they are called on the node.
func (w *world) strayDevices(owners map[string]*v1.Pod, have map[string]bool) string {
	all := w.allDevices()
	published, _ := filepath.Glob(filepath.Join(all, "publish", "*", "*"))
	mapped, _ := filepath.Glob(filepath.Join(all, "*", "dev", "*"))
	for _, f := range append(published, mapped...) {
		if pod := owners[filepath.Base(f)]; pod == nil || ended(pod) {
			return "the device of no pod: " + f
		}
	}
	var dirs []string
	for _, at := range []string{"*/data", "staging/*", "publish/*"} {
		found, _ := filepath.Glob(filepath.Join(all, at))
		dirs = append(dirs, found...)
	}
	for _, d := range dirs {
		pv := filepath.Base(d)
		if pv == "data" {
			pv = filepath.Base(filepath.Dir(d))
		}
		claim := strings.TrimPrefix(pv, "of-")
		if p := w.scenario.csi.claims[claim]; p == nil || !have[p.onNode(claim)] {
			return "the directory of a device that no pod has: " + d
		}
	}
	return ""
}
