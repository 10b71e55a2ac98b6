package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// firstSize is how large a volume is at first, in bytes.
const firstSize = int64(1 << 30)

func storageOf(bytes int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)}
}

// growths lets some drivers grow volumes, and some volumes of claims become larger, while
// pods use them or wait for them. It takes its choices from a source of its own.
func (s *scenario) growths(seed int64) {
	if s.csi == nil {
		return
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 17))
	for _, p := range s.csi.drivers {
		p.grows = rng.IntN(3) > 0
	}
	for _, claim := range slices.Sorted(maps.Keys(s.csi.claims)) {
		size := firstSize
		for range rng.IntN(3) {
			size += firstSize
			to, at := size, time.Duration(rng.Int64N(int64(s.noisy)))
			if s.csi.claims[claim].grows {
				s.add(at, fmt.Sprintf("grow the volume of the claim %s to %d GiB", claim, to/firstSize), func(w *world) { w.growDisk(claim, to) })
			}
		}
	}
}

// growDisk does what the controllers of Kubernetes do when a claim wants to be larger, if
// it is bound and wants less.
func (w *world) growDisk(claim string, to int64) {
	if !w.judge.grows(claim, to) {
		return
	}
	core := w.api.Admin().CoreV1()
	w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := core.PersistentVolumeClaims(namespace).Get(w.t.Context(), claim, metav1.GetOptions{})
		w.must(err)
		c.Spec.Resources.Requests = storageOf(to)
		_, err = core.PersistentVolumeClaims(namespace).Update(w.t.Context(), c, metav1.UpdateOptions{})
		return err
	}))
	pv, err := core.PersistentVolumes().Get(w.t.Context(), "of-"+claim, metav1.GetOptions{})
	w.must(err)
	pv.Spec.Capacity = storageOf(to)
	_, err = core.PersistentVolumes().Update(w.t.Context(), pv, metav1.UpdateOptions{})
	w.must(err)
	w.resizePending(claim, to)
}

// resizePending says that the rest is the node's.
func (w *world) resizePending(claim string, to int64) {
	claims := w.api.Admin().CoreV1().PersistentVolumeClaims(namespace)
	w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := claims.Get(w.t.Context(), claim, metav1.GetOptions{})
		w.must(err)
		c.Status.AllocatedResources = storageOf(to)
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
		_, err = claims.UpdateStatus(w.t.Context(), c, metav1.UpdateOptions{})
		return err
	}))
}

// resizes has the node try again what it has given up, as who looks after claims does.
func (a *attacher) resizes() {
	sizes := a.w.judge.sizes()
	for _, claim := range slices.Sorted(maps.Keys(sizes)) {
		c := a.w.api.Claim(namespace, claim)
		if c.Status.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizeInfeasible {
			a.w.resizePending(claim, sizes[claim])
		}
	}
}

// sizes are those that were asked for, by the claims' names.
func (j *judge) sizes() map[string]int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.disks.sizes)
}

// grows notes that the volume of a claim is asked to be larger; false when it is not to be.
func (j *judge) grows(claim string, to int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.disks.bound[claim].IsZero() || to <= j.disks.sizes[claim] {
		return false
	}
	j.disks.sizes[claim] = to
	return true
}

// diskGrown notes that a driver has given a volume another size.
func (j *judge) diskGrown(d *driver, volume string, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.tell("DISK grown", "driver", d.name, "volume", volume, "bytes", bytes)
	claim := strings.TrimPrefix(volume, "h-")
	j.disks.grown[claim] = max(j.disks.grown[claim], bytes)
}

// mayGrowLocked checks a call that gives a volume another size: it is where it is said to
// be, and somebody asked for that size.
func (j *judge) mayGrowLocked(d *driver, what string, q *csi.NodeExpandVolumeRequest) {
	volume := q.GetVolumeId()
	if is := j.w.diskAt(q.GetVolumePath()); is != "csi "+d.name+" "+volume {
		j.violationLocked("%s was asked for on %s, where it is not", what, strings.TrimPrefix(q.GetVolumePath(), j.w.dir))
	}
	if bytes := q.GetCapacityRange().GetRequiredBytes(); bytes > j.disks.sizes[strings.TrimPrefix(volume, "h-")] {
		j.violationLocked("%s was asked for with %d bytes, for which nobody asked", what, bytes)
	}
}

// claimWritten checks that a claim says no size that its volume has not.
func (j *judge) claimWritten(wr fakeapiserver.Write) {
	now, _ := wr.New.(*v1.PersistentVolumeClaim)
	if now == nil || wr.Subresource != "status" || wr.UserAgent != "podsync" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	has := max(j.disks.grown[now.Name], firstSize)
	if says := now.Status.Capacity.Storage().Value(); says > has {
		j.violationLocked("the claim %s says that its volume has %d bytes, and it has %d", now.Name, says, has)
	}
}

// ungrown says which volume that a running pod has is not as large as was asked for.
func (w *world) ungrown(owners map[string]*v1.Pod) string {
	w.judge.mu.Lock()
	sizes, grown := maps.Clone(w.judge.disks.sizes), maps.Clone(w.judge.disks.grown)
	w.judge.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(owners)) {
		pod := owners[uid]
		if pod.Status.Phase != v1.PodRunning {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			claim := v.PersistentVolumeClaim.ClaimName
			size, asked := sizes[claim]
			if !asked {
				continue
			}
			if grown[claim] < size {
				return fmt.Sprintf("the volume of the claim %s of pod %s was asked to have %d bytes and has %d", claim, pod.Name, size, grown[claim])
			}
			c, err := w.api.Admin().CoreV1().PersistentVolumeClaims(namespace).Get(w.t.Context(), claim, metav1.GetOptions{})
			w.must(err)
			if says := c.Status.Capacity.Storage().Value(); says != size || len(c.Status.AllocatedResourceStatuses) > 0 || len(c.Status.Conditions) > 0 {
				return fmt.Sprintf("the claim %s does not say that its volume has %d bytes, but %+v", claim, size, c.Status)
			}
		}
	}
	return ""
}
