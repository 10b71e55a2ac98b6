package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// csiKills is how much is killed among how many pods.
type csiKills struct {
	// residents are pods that live through it, and guests those that come and go.
	residents, guests int
	// podsync and driver are how often each is killed.
	podsync, driver int
	// shared is how many volumes of claims there are, each of several pods.
	shared int
}

// driven is an idle pod with a volume of the driver's for it alone, and one of a claim that
// others have, too.
func driven(name, claim string) *corev1.Pod {
	p := withCSI(name)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: claimed(claim)})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/shared"})
	return p
}

// mountedTwice is what is mounted more than once at one of the driver's places.
func (h *house) mountedTwice() error {
	mounts, err := h.inst.Mounts()
	if err != nil {
		return err
	}
	slices.Sort(mounts)
	var twice []string
	for i, m := range mounts {
		if i > 0 && m == mounts[i-1] && (strings.Contains(m, "kubernetes.io~csi") || strings.Contains(m, "plugins/kubernetes.io/csi")) {
			twice = append(twice, m)
		}
	}
	return boolError(len(twice) == 0, "mounted twice is %v", twice)
}

// TestPodsWithVolumesOutliveKillsOfTheirDriverAndOfPodsync: podsync and the driver are
// killed again and again while pods with volumes come and go. Those that stay do not
// notice, no pod is stuck, nothing is mounted twice, and in the end nothing is left.
func TestPodsWithVolumesOutliveKillsOfTheirDriverAndOfPodsync(t *testing.T) {
	k := csiKills{residents: 4, guests: 4, podsync: 7, driver: 3, shared: 2}
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		k = csiKills{residents: 15, guests: 15, podsync: 50, driver: 20, shared: 5}
	}
	h := build(t, plan{controllers: true, within: 40 * time.Minute})
	d := h.csiWith(storagev1.CSIDriverSpec{
		PodInfoOnMount:       ptr(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}, "-stage")
	h.attach()
	for n := range k.shared {
		h.csiDisk(fmt.Sprint("shared-", n))
	}
	var all []string
	for n := range k.residents {
		all = append(all, fmt.Sprint("resident-", n))
		h.create(driven(all[n], fmt.Sprint("shared-", n%k.shared)))
	}
	for _, name := range all {
		h.waitReady(name, 5*time.Minute)
		h.prints("", "exec", name, "--", "sh", "-c", "echo kept > /v/data")
	}
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()
	guests := h.killAmongGuests(d, k)
	for _, name := range guests {
		h.waitReady(name, 5*time.Minute)
	}
	h.must(h.mountedTwice())
	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}
	after, err := h.containerIDs()
	h.must(err)
	for id, pod := range before {
		if after[id] != pod {
			t.Errorf("container %.12s of pod %s does not run any more", id, pod)
		}
	}
	h.eventually(time.Minute, "podsync is there after the last kill", func() error { return h.node.Healthy(h.ctx) })
	for n, name := range all {
		h.prints("kept\n", "exec", name, "--", "cat", "/v/data")
		h.prints(fmt.Sprint("handle-shared-", n%k.shared), "exec", name, "--", "cat", "/shared/id")
	}
	all = append(all, guests...)
	for _, name := range all {
		h.delete(name)
	}
	for _, name := range all {
		h.waitGone(name, 5*time.Minute)
	}
	h.eventually(time.Minute, "nothing is published", h.csiLeft)
	h.eventually(3*time.Minute, "nothing is staged", h.stagedLeft)
	for n := range k.shared {
		h.eventually(3*time.Minute, "it is detached", func() error {
			used, attached, err := h.inUse(fmt.Sprint("handle-shared-", n))
			return boolError(err == nil && !used && !attached, "in use %v, attached %v, %v", used, attached, err)
		})
	}
	h.unstickRuntime()
	h.eventually(3*time.Minute, "nothing is left", func() error { return h.withoutLostTasks(h.leftovers()).err(nil) })
}

// withoutLostTasks leaves out the mounts of sandboxes that containerd has removed without
// their tasks, as it says itself: see unstickRuntime.
func (h *house) withoutLostTasks(l leftovers) leftovers {
	h.Helper()
	said, err := os.ReadFile(h.runtime.Process.LogFile())
	h.must(err)
	l["mount"] = slices.DeleteFunc(l["mount"], func(m string) bool {
		id := filepath.Base(filepath.Dir(m))
		return strings.HasPrefix(m, h.inst.Path("state")+"/") && strings.Contains(string(said), "cannot delete running task "+id)
	})
	return l
}

// killAmongGuests kills podsync and the driver in random order, while pods come and go, and
// returns those that are there in the end. The order's seed is printed and can be given
// again.
func (h *house) killAmongGuests(d *csi, k csiKills) (guests []string) {
	h.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POLYLET_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		h.must(err)
	}
	h.Logf("the order of the kills: POLYLET_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	order := append(slices.Repeat([]string{"podsync"}, k.podsync), slices.Repeat([]string{"driver"}, k.driver)...)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	made := 0
	var leaving []string
	for n, victim := range order {
		for len(guests) < k.guests*(n+1)/len(order)+1 && len(guests) < k.guests {
			name := fmt.Sprint("guest-", made)
			h.create(driven(name, fmt.Sprint("shared-", made%k.shared)))
			guests, made = append(guests, name), made+1
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond) // a random moment of what goes on
		if len(guests) > 1 && random.IntN(2) == 0 {
			gone := random.IntN(len(guests))
			h.delete(guests[gone])
			leaving, guests = append(leaving, guests[gone]), slices.Delete(guests, gone, gone+1)
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		}
		if victim == "driver" {
			d.killed()
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			h.must(d.Launch())
		} else {
			h.killAgent()
		}
		h.must(h.mountedTwice())
	}
	for _, name := range leaving {
		h.waitGone(name, 5*time.Minute)
	}
	h.Logf("%d pods came, %d of them went", made, len(leaving))
	return guests
}
