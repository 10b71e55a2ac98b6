package node_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

const csiDriver = "csi.polylet.test"

// csi is a CSI driver on the node, with faults on command.
type csi struct {
	*house
	*process.Process
	faults string
}

// csi starts the driver of volumes in pods' specs and makes its object.
func (h *house) csi(flags ...string) *csi {
	h.Helper()
	return h.csiWith(storagev1.CSIDriverSpec{
		AttachRequired: ptr(false), PodInfoOnMount: ptr(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
	}, flags...)
}

// csiWith starts the driver and makes its object.
func (h *house) csiWith(spec storagev1.CSIDriverSpec, flags ...string) *csi {
	h.Helper()
	builder, err := programs.New(os.Stderr)
	h.must(err)
	binary, err := builder.CSIDriver(h.ctx)
	h.must(err)
	sockets, err := h.inst.Mkdir("csi")
	h.must(err)
	faults, err := h.inst.Mkdir("csi-faults")
	h.must(err)
	registry := filepath.Join(h.node.RootDir, "plugins_registry")
	h.must(os.MkdirAll(registry, 0o750))
	d := &csi{house: h, faults: faults, Process: process.New(process.Config{
		Name: "csidriver", Path: binary, LogFile: h.inst.Path("csidriver.log"),
		Args: append([]string{"-name=" + h.csiName, "-node-id=" + nodeName, "-sockets=" + sockets, "-registry=" + registry, "-faults=" + faults}, flags...),
	})}
	h.must(d.Launch())
	h.Cleanup(d.Process.Stop)
	_, err = h.cluster.Client.StorageV1().CSIDrivers().Create(h.ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: h.csiName}, Spec: spec}, metav1.CreateOptions{})
	h.must(err)
	return d
}

// fault has a call hang, or fail with a code and a message, until undo is called.
func (d *csi) fault(call, how string) (undo func()) {
	d.Helper()
	file := filepath.Join(d.faults, call)
	d.must(os.WriteFile(file, []byte(how), 0o600))
	return func() { d.must(os.Remove(file)) }
}

// killed kills the driver.
func (d *csi) killed() {
	d.Helper()
	d.Process.Kill()
	<-d.Done()
}

// withCSI is an idle pod with a volume of the driver.
func withCSI(name string) *corev1.Pod {
	p := shellPod(name, idle)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: csiDriver}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/v"})
	return p
}

// volumeDir is where a pod's volume lies.
func (h *house) volumeDir(p *corev1.Pod) string {
	return filepath.Join(h.node.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~csi", "v")
}

// killAgent kills what sets volumes up, and starts it again.
func (h *house) killAgent() {
	h.Helper()
	if onKubelet() {
		h.killService("kubelet")
		return
	}
	h.killService("podsync")
}

// csiLeft is what is left of volumes of the driver.
func (h *house) csiLeft() error {
	found, err := filepath.Glob(filepath.Join(h.node.RootDir, "pods", "*", "volumes", "kubernetes.io~csi", "*"))
	if err != nil {
		return err
	}
	mounts, err := h.inst.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if strings.Contains(m, "kubernetes.io~csi") {
			found = append(found, "mount of "+m)
		}
	}
	return boolError(len(found) == 0, "there is %v", found)
}

// TestAVolumeOfACSIDriverOutlivesKillsAndLeavesNothing kills the driver and what asks it
// at the worst moments.
func TestAVolumeOfACSIDriverOutlivesKillsAndLeavesNothing(t *testing.T) {
	h := build(t, plan{})
	d := h.csi()

	h.create(withCSI("victim"))
	before := h.waitReady("victim", time.Minute)
	handle := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(before.UID)+"v")))
	h.prints(handle, "exec", "victim", "--", "cat", "/v/id")
	h.prints("", "exec", "victim", "--", "sh", "-c", "echo kept > /v/data")

	d.killed()
	h.killAgent()
	h.create(webApp("newcomer")) // the agent has looked at everything once this is Ready
	h.waitReady("newcomer", time.Minute)
	after := h.waitReady("victim", time.Minute)
	if a, b := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("the pod was stopped: %s, then %s", describe(before), describe(after))
	}
	h.prints("kept\n", "exec", "victim", "--", "cat", "/v/data")

	h.delete("victim") // and nobody is there who could unpublish its volume
	h.eventually(time.Minute, "its containers have ended", func() error {
		left, err := h.containerIDs()
		if err != nil {
			return err
		}
		for id, pod := range left {
			if strings.Contains(pod, "victim") {
				return fmt.Errorf("container %s runs", id)
			}
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(h.volumeDir(before), "vol_data.json")); err != nil {
		t.Errorf("what says whose the volume is has gone before it was unpublished: %v", err)
	}
	h.must(d.Launch())
	h.waitGone("victim", 3*time.Minute)
	h.eventually(time.Minute, "nothing is left of its volume", h.csiLeft)

	h.killedAtPublish(d)
	h.killedAtUnpublish(d)
	h.delete("newcomer")
	h.waitGone("newcomer", time.Minute)
	h.eventually(time.Minute, "nothing is left", func() error { return h.leftovers().err(nil) })
}

// killedAtPublish: the driver hangs after it has mounted; others start meanwhile.
func (h *house) killedAtPublish(d *csi) {
	h.Helper()
	undo := d.fault("NodePublishVolume done", "")
	h.create(withCSI("hung"))
	h.eventually(time.Minute, "its volume is mounted", func() error {
		return boolError(h.csiLeft() != nil && strings.Contains(h.csiLeft().Error(), "mount of"), "it is not")
	})
	h.create(webApp("other"))
	h.waitReady("other", time.Minute)
	h.killAgent()
	d.killed()
	h.delete("hung")
	undo()
	h.must(d.Launch())
	h.waitGone("hung", 3*time.Minute)
	h.eventually(time.Minute, "nothing is left of the volume that was being published", h.csiLeft)
	h.delete("other")
	h.waitGone("other", time.Minute)
}

// killedAtUnpublish: the driver hangs after it has unmounted.
func (h *house) killedAtUnpublish(d *csi) {
	h.Helper()
	h.create(withCSI("ending"))
	h.waitReady("ending", 2*time.Minute)
	undo := d.fault("NodeUnpublishVolume done", "")
	h.delete("ending")
	h.eventually(time.Minute, "its volume is unmounted", func() error {
		err := h.csiLeft()
		return boolError(err != nil && !strings.Contains(err.Error(), "mount of"), "there is %v", err)
	})
	h.killAgent()
	d.killed()
	undo()
	h.must(d.Launch())
	h.waitGone("ending", 3*time.Minute)
	h.eventually(time.Minute, "nothing is left of the volume that was being unpublished", h.csiLeft)
}

// TestWhatACSIDriverSaysIsShownOnThePod: errors stand in events as users know them, and a
// pod whose driver is not there starts when it comes.
func TestWhatACSIDriverSaysIsShownOnThePod(t *testing.T) {
	h := build(t, plan{})
	d := h.csi()
	undo := d.fault("NodePublishVolume", "Internal no room left")
	h.create(withCSI("full"))
	h.eventually(time.Minute, "an event says why", func() error {
		want := `MountVolume.SetUp failed for volume "v" : rpc error: code = Internal desc = no room left`
		events := h.events("full")
		return boolError(strings.Contains(events, "FailedMount: ") && strings.Contains(events, want), "events are:\n%s", events)
	})
	h.eventually(30*time.Second, "after a final error nothing is left", h.csiLeft)
	undo()
	h.waitReady("full", 3*time.Minute)
	h.delete("full")
	h.waitGone("full", 2*time.Minute)

	d.Process.Stop() // its sockets go
	h.create(withCSI("early"))
	h.eventually(time.Minute, "an event names the driver", func() error {
		events := h.events("early")
		return boolError(strings.Contains(events, "driver name "+csiDriver+" not found in the list of registered CSI drivers"), "events are:\n%s", events)
	})
	h.must(d.Launch())
	h.waitReady("early", 3*time.Minute)
	h.delete("early")
	h.waitGone("early", 2*time.Minute)
	h.eventually(time.Minute, "nothing is left", h.csiLeft)
}

// TestTheCSINodeFollowsADriver: who schedules pods learns of a driver, with how many
// volumes it takes and where the node is for it, and of its end; that podsync is killed is
// no end.
func TestTheCSINodeFollowsADriver(t *testing.T) {
	h := build(t, plan{})
	const zone = "topology.csi.polylet.test/zone"
	d := h.csi("-max-volumes=7", "-topology="+zone+"=z1")
	there := func() error {
		csi, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o := csi.OwnerReferences; len(o) != 1 || o[0].UID != n.UID || !strings.Contains(csi.Annotations[corev1.MigratedPluginsAnnotationKey], "kubernetes.io/aws-ebs") {
			return fmt.Errorf("the CSINode is %+v", csi.ObjectMeta)
		}
		if id, label := n.Annotations["csi.volume.kubernetes.io/nodeid"], n.Labels[zone]; id != `{"`+csiDriver+`":"`+nodeName+`"}` || label != "z1" {
			return fmt.Errorf("the Node says %s, and %q", id, label)
		}
		list := csi.Spec.Drivers
		return boolError(len(list) == 1 && list[0].Name == csiDriver && list[0].NodeID == nodeName && len(list[0].TopologyKeys) == 1 &&
			list[0].TopologyKeys[0] == zone && list[0].Allocatable != nil && *list[0].Allocatable.Count == 7, "the CSINode has %+v", list)
	}
	h.eventually(time.Minute, "the CSINode has the driver", there)
	h.killAgent()
	h.create(webApp("newcomer"))
	h.waitReady("newcomer", time.Minute)
	h.must(there())
	d.Process.Stop()
	h.eventually(time.Minute, "the driver is gone from the CSINode", func() error {
		csi, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		id, has := n.Annotations["csi.volume.kubernetes.io/nodeid"]
		return boolError(len(csi.Spec.Drivers) == 0 && !has, "the CSINode has %v, the Node says %q", csi.Spec.Drivers, id)
	})
	h.must(d.Launch())
	h.eventually(time.Minute, "it is there again", there)
}
