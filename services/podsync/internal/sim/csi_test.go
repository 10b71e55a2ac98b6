package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// diskUser is a pod with volumes of CSI drivers.
const diskUser = "disk user"

// withDisk gives a pod the volume of a claim.
func (s *subject) withDisk(claim string) {
	s.withVolume(v1.Volume{Name: fmt.Sprint("disk", len(s.pod.Spec.Volumes)), VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
}

// withInline gives a pod a volume that a driver makes for it alone.
func (s *subject) withInline(driver string) {
	s.withVolume(v1.Volume{Name: fmt.Sprint("inline", len(s.pod.Spec.Volumes)), VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driver}}})
}

func (s *subject) withVolume(v v1.Volume) {
	spec := &s.pod.Spec
	spec.Volumes = append(spec.Volumes, v)
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
}

// storage adds, to some scenarios, CSI drivers and pods with volumes of these, their own
// and shared ones.
func (s *scenario) storage(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 13))
	if rng.IntN(3) > 0 {
		return
	}
	heavy := []float64{0, .3, 1, 2}[rng.IntN(4)]
	s.csi = &csiPlan{claims: map[string]*driverPlan{}, dies: rng.IntN(3) * rng.IntN(12), after: rng.IntN(2) == 0}
	for i, name := range []string{"a.csi.test", "b.csi.test"} {
		p := &driverPlan{name: name, stages: rng.IntN(3) > 0, attach: rng.IntN(2) == 0, republish: rng.IntN(5) == 0}
		if i == 0 || rng.IntN(2) == 0 {
			p.heavy, p.hangs = heavy, rng.IntN(2) == 0
		}
		s.csi.drivers = append(s.csi.drivers, p)
	}
	when := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
	claim := func(name string, p *driverPlan, by time.Duration) string {
		if s.csi.claims[name] == nil {
			s.csi.claims[name] = p
			s.add(by, "make and bind the claim "+name, func(w *world) { w.makeDisk(name) })
		}
		return name
	}
	for i := range 2 + rng.IntN(3) {
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(diskUser, fmt.Sprint("d", i), &grace, rng)
		one := s.csi.drivers[rng.IntN(2)]
		for n := range 1 + rng.IntN(3) {
			if rng.IntN(4) == 0 {
				one = s.csi.drivers[rng.IntN(2)]
			}
			switch rng.IntN(3) {
			case 0:
				sub.withDisk(claim("shared-"+one.name, one, when()/2))
			case 1:
				sub.withDisk(claim(fmt.Sprintf("%s-%d", sub.pod.Name, n), one, when()))
			case 2:
				sub.withInline(one.name)
			}
		}
		sub.distinct()
		s.put(sub)
		s.life(rng, sub)
	}
	for i, p := range s.csi.drivers {
		for range int(2 * p.heavy * rng.Float64() * 2) {
			pause, stale, moved := time.Duration(rng.IntN(30000))*time.Millisecond, time.Duration(rng.IntN(30000))*time.Millisecond, rng.IntN(2) == 0
			s.add(when(), fmt.Sprintf("driver %s is killed, for %v, moved: %v", p.name, pause, moved), func(w *world) { w.disks.drivers[i].kill(pause, moved, stale) })
		}
		if p.hangs {
			for range 1 + rng.IntN(3) {
				long := time.Duration(10+rng.IntN(150)) * time.Second
				s.add(when(), fmt.Sprintf("driver %s hangs for %v", p.name, long), func(w *world) { w.disks.drivers[i].hang(long) })
			}
		}
	}
}

// distinct drops what names a claim twice.
func (s *subject) distinct() {
	seen := map[string]bool{}
	spec := &s.pod.Spec
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool {
		c := v.PersistentVolumeClaim
		twice := c != nil && seen[c.ClaimName]
		if c != nil {
			seen[c.ClaimName] = true
		}
		if twice {
			for i := range spec.Containers {
				spec.Containers[i].VolumeMounts = slices.DeleteFunc(spec.Containers[i].VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name })
			}
		}
		return twice
	})
}

// makeDisk makes a claim, its volume, and binds them.
func (w *world) makeDisk(claim string) {
	p := w.scenario.csi.claims[claim]
	w.createClaim(claim)
	mode := ptr.To(v1.PersistentVolumeFilesystem)
	if w.scenario.csi.isRaw(claim) {
		mode = ptr.To(v1.PersistentVolumeBlock)
	}
	_, err := w.api.Admin().CoreV1().PersistentVolumes().Create(w.t.Context(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + claim},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, Capacity: storageOf(firstSize), VolumeMode: mode,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: p.name, VolumeHandle: "h-" + claim}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.bindClaim(claim)
}

// prepareDrivers makes what the cluster says of the drivers, and starts them.
func (w *world) prepareDrivers() {
	if w.scenario.csi == nil {
		return
	}
	for _, p := range w.scenario.csi.drivers {
		_, err := w.api.Admin().StorageV1().CSIDrivers().Create(w.t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: p.name},
			Spec: storagev1.CSIDriverSpec{
				AttachRequired: &p.attach, RequiresRepublish: &p.republish,
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
			},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	for _, d := range w.disks.drivers {
		d.launch(false, 0)
	}
	w.lives.Go(w.attacher.run)
}

// calmDrivers ends all that goes wrong with drivers.
func (w *world) calmDrivers() {
	close(w.disks.calm)
	for _, d := range w.disks.drivers {
		d.mu.Lock()
		if d.goes != nil {
			close(d.goes)
			d.goes = nil
		}
		d.mu.Unlock()
	}
}

// rebootDrivers is their end with the machine's, and their start with it.
func (w *world) rebootDrivers() {
	for _, d := range w.disks.drivers {
		d.kill(2*time.Second, false, 0)
	}
}
