package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimant is a pod whose volumes are claims: of a directory of the node, which is
// mounted for it, and of the host's.
const claimant = "claimant"

func (m *maker) claiming() {
	c := m.main(m.forever())
	for _, kind := range []string{"local", "host"} {
		m.spec.Volumes = append(m.spec.Volumes, v1.Volume{Name: kind, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: m.pod.Name + "-" + kind},
		}})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: kind, MountPath: "/" + kind})
	}
}

// claims adds, to some scenarios, pods that wait for claims and for what they are bound
// to, which come at any time and in any order.
func (s *scenario) claims(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 11))
	if rng.IntN(3) > 0 {
		return
	}
	for i := range 1 + rng.IntN(2) {
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(claimant, fmt.Sprint("v", i), &grace, rng)
		s.put(sub)
		s.life(rng, sub)
		any := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
		for _, v := range sub.pod.Spec.Volumes {
			claim, a, b := v.PersistentVolumeClaim.ClaimName, any(), any()
			s.add(a, "create the claim "+claim, func(w *world) { w.createClaim(claim) })
			s.add(b, "create the volume of "+claim, func(w *world) { w.createVolume(claim) })
			s.add(min(max(a, b)+time.Duration(rng.IntN(20000))*time.Millisecond, s.noisy), "bind "+claim, func(w *world) { w.bindClaim(claim) })
		}
	}
}

func (w *world) createClaim(name string) {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}}
	_, err := w.api.Admin().CoreV1().PersistentVolumeClaims(namespace).Create(w.t.Context(), claim, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) createVolume(claim string) {
	dir := filepath.Join(w.dir, "disks", claim)
	w.must(os.MkdirAll(dir, 0o755))
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-" + claim}}
	if strings.HasSuffix(claim, "local") {
		pv.Spec.Local = &v1.LocalVolumeSource{Path: dir}
	} else {
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: dir}
	}
	_, err := w.api.Admin().CoreV1().PersistentVolumes().Create(w.t.Context(), pv, metav1.CreateOptions{})
	w.must(err)
}

// bindClaim does what the binder of Kubernetes does, in its order.
func (w *world) bindClaim(name string) {
	core := w.api.Admin().CoreV1()
	claim, err := core.PersistentVolumeClaims(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	pv, err := core.PersistentVolumes().Get(w.t.Context(), "of-"+name, metav1.GetOptions{})
	w.must(err)
	w.judge.bound(name)
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: namespace, Name: name, UID: claim.UID}
	_, err = core.PersistentVolumes().Update(w.t.Context(), pv, metav1.UpdateOptions{})
	w.must(err)
	claim.Spec.VolumeName = pv.Name
	claim, err = core.PersistentVolumeClaims(namespace).Update(w.t.Context(), claim, metav1.UpdateOptions{})
	w.must(err)
	claim.Status.Phase, claim.Status.Capacity = v1.ClaimBound, pv.Spec.Capacity
	_, err = core.PersistentVolumeClaims(namespace).UpdateStatus(w.t.Context(), claim, metav1.UpdateOptions{})
	w.must(err)
}

// bindAll makes and binds the claims of all pods.
func (w *world) bindAll() {
	for _, sub := range w.scenario.subjects {
		for _, v := range sub.pod.Spec.Volumes {
			name := v.PersistentVolumeClaim.ClaimName
			w.createClaim(name)
			w.createVolume(name)
			w.bindClaim(name)
		}
	}
}

// bound notes that the volume of a claim may be used from now on.
func (j *judge) bound(claim string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bounds["of-"+claim], j.disks.bound[claim] = true, time.Now()
}

// unboundLocked says whether a mount is of a volume whose claim is not bound; the caller
// has mu.
func (j *judge) unboundLocked(target string) bool {
	return strings.Contains(target, "kubernetes.io~local-volume") && !j.bounds[filepath.Base(target)]
}

// mountLocal mounts a pod's local volume, bound or not.
func mountLocal(w *world, claim string) {
	for _, pod := range w.api.Pods() {
		at := filepath.Join(w.dir, "root", "pods", string(pod.UID), "volumes", "kubernetes.io~local-volume", "of-"+claim)
		w.must(os.MkdirAll(at, 0o750))
		w.must(mounter{w.life, w.mounts}.Bind("/", at))
	}
}
