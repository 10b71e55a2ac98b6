package node_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// loops are the loop devices of files of the instance.
func (h *house) loops() (found []string) {
	h.Helper()
	out, err := exec.Command("losetup", "--noheadings", "--output", "NAME,BACK-FILE").Output()
	h.must(err)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, h.inst.Path("")) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// madeByAKubelet are pods with volumes of a driver on a kubelet's node, by what is to
// become of them: taken over with its container, or gone before polylet has come.
func (h *house) madeByAKubelet() (kept, orphans []*corev1.Pod) {
	h.Helper()
	for _, name := range []string{"disk", "lost-disk"} {
		h.csiDisk(name)
		h.create(onDisk(name, name))
	}
	for _, name := range []string{"raw", "lost-raw"} {
		h.csiDevice(name)
		h.create(onDevice(name, name))
	}
	h.create(withCSI("inline"), withCSI("lost-inline"))
	for _, name := range []string{"disk", "raw", "inline"} {
		kept = append(kept, h.waitReady(name, 2*time.Minute))
		orphans = append(orphans, h.waitReady("lost-"+name, 2*time.Minute))
	}
	return kept, orphans
}

// TestVolumesOfDriversThatAKubeletHasSetUpGoOnUnderPolylet: a disk of a claim, a device and
// a volume of a pod's spec stay as they are with their containers, and are taken back at
// their pods' ends; those whose pods went while no agent ran are taken back by themselves.
func TestVolumesOfDriversThatAKubeletHasSetUpGoOnUnderPolylet(t *testing.T) {
	if onKubelet() {
		t.Skip("takes the kubelet's place itself")
	}
	h := build(t, plan{kubelet: true, controllers: true})
	h.csiWith(storagev1.CSIDriverSpec{
		PodInfoOnMount:       ptr(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}, "-stage")
	h.attach()
	kept, orphans := h.madeByAKubelet()
	h.prints("", "exec", "disk", "--", "sh", "-c", "echo kept > /data/f")
	h.prints("", "exec", "raw", "--", "sh", "-c", "echo kept > /dev/raw")
	h.prints("", "exec", "inline", "--", "sh", "-c", "echo kept > /v/f")
	h.node.Stop()
	for _, p := range orphans {
		h.forceDelete(p.Name)
	}

	h.prepareNode(plan{})
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	for _, p := range orphans {
		h.nothingLeft(p)
	}
	for _, name := range []string{"lost-disk", "lost-raw"} {
		h.released(name)
	}
	h.create(webApp("newcomer")) // polylet has looked at everything once this is Ready
	h.waitReady("newcomer", time.Minute)
	for _, p := range kept {
		h.wantSame(p, h.waitReady(p.Name, time.Minute))
	}
	h.prints("kept\n", "exec", "disk", "--", "cat", "/data/f")
	h.prints("kept", "exec", "raw", "--", "sh", "-c", "head -c 4 /dev/raw")
	h.prints("kept\n", "exec", "inline", "--", "cat", "/v/f")
	h.must(h.mountedTwice()) // the driver was asked once more, as after a start of a kubelet

	for _, p := range kept {
		h.delete(p.Name)
	}
	for _, p := range kept {
		h.waitGone(p.Name, 2*time.Minute)
		h.nothingLeft(p)
	}
	for _, name := range []string{"disk", "raw"} {
		h.released(name)
	}
	h.must(h.csiLeft())
	h.must(h.stagedLeft())
	h.must(h.devicesLeft())
	if left := h.loops(); len(left) > 0 {
		t.Errorf("loop devices are left: %v", left)
	}
	h.delete("newcomer")
	h.waitGone("newcomer", time.Minute)
	h.eventually(time.Minute, "nothing is left", func() error { return h.leftovers().err(nil) })
	h.nothingBelow(filepath.Join(h.node.RootDir, "plugins", "kubernetes.io", "csi"))
}

// released waits until a claim's volume is neither in use nor attached.
func (h *house) released(claim string) {
	h.Helper()
	h.eventually(3*time.Minute, claim+" is detached", func() error {
		used, attached, err := h.inUse("handle-" + claim)
		return boolError(err == nil && !used && !attached, "in use %v, attached %v, %v", used, attached, err)
	})
}

// nothingBelow wants no file and no link below a directory.
func (h *house) nothingBelow(dir string) {
	h.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			h.Errorf("left is %s", path)
		}
		return err
	})
	if !errors.Is(err, os.ErrNotExist) {
		h.must(err)
	}
}
