package sim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// create asks for a pod.
func (w *world) create(sub *subject) {
	w.judge.want(sub)
	if sub.static {
		w.writeManifest(sub)
		return
	}
	_, err := w.api.Admin().CoreV1().Pods(namespace).Create(w.t.Context(), sub.pod, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) manifest(sub *subject) string {
	return filepath.Join(w.dir, "manifests", sub.pod.Name+".yaml")
}

// update changes a pod's object, unless it is being deleted.
func (w *world) update(sub *subject, change func(*v1.Pod)) {
	pods := w.api.Admin().CoreV1().Pods(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod := w.api.Pod(namespace, sub.pod.Name)
		if pod == nil || pod.DeletionTimestamp != nil || ended(pod) {
			return nil
		}
		change(pod)
		_, err := pods.Update(w.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
	w.must(err)
}

func (w *world) changeImage(sub *subject) {
	w.update(sub, func(pod *v1.Pod) {
		w.judge.changed(sub)
		pod.Spec.Containers[0].Image = newImage
	})
}

func (w *world) changeLabel(sub *subject, value string) {
	w.update(sub, func(pod *v1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels["color"] = value
	})
}

// changeManifest gives a static pod another image, if its manifest is there.
func (w *world) changeManifest(sub *subject) {
	if _, err := os.Stat(w.manifest(sub)); err != nil {
		return
	}
	w.judge.rewritten(sub)
	w.writeManifest(sub)
}

func (w *world) writeManifest(sub *subject) {
	data, err := yaml.Marshal(sub.pod)
	w.must(err)
	file := w.manifest(sub)
	w.must(os.WriteFile(file+".new", data, 0o600))
	w.must(os.Rename(file+".new", file))
	w.notifier.tell()
}

// debug adds an ephemeral container, unless the pod is being deleted or over.
func (w *world) debug(sub *subject) {
	pods := w.api.Admin().CoreV1().Pods(namespace)
	w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod := w.api.Pod(namespace, sub.pod.Name)
		if pod == nil || pod.DeletionTimestamp != nil || ended(pod) {
			return nil
		}
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: ephemeral, Image: goodImage},
		})
		_, err := pods.UpdateEphemeralContainers(w.t.Context(), pod.Name, pod, metav1.UpdateOptions{})
		return err
	}))
}

// damage spoils what podsync keeps of probes, and makes it read it.
func (w *world) damage() {
	kept := filepath.Join(w.dir, "root", "polylet")
	files, _ := filepath.Glob(filepath.Join(kept, "*.json"))
	for _, f := range files {
		w.must(os.WriteFile(f, []byte(`{"half`), 0o600))
	}
	w.judge.damaged()
	w.crash("damage")
}

// configMap creates or changes a ConfigMap.
func (w *world) configMap(name, value string) error {
	maps := w.api.Admin().CoreV1().ConfigMaps(namespace)
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"a": value}}
	_, err := maps.Update(w.t.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(w.t.Context(), m, metav1.CreateOptions{})
	}
	return err
}

// remove asks for a pod's end; grace below zero takes the pod's own.
func (w *world) remove(sub *subject, grace int64) {
	if sub.static {
		if err := os.Remove(w.manifest(sub)); errors.Is(err, os.ErrNotExist) {
			return
		}
		w.judge.unwant(sub, -1)
		w.notifier.tell()
		return
	}
	opts := metav1.DeleteOptions{}
	if grace >= 0 {
		opts.GracePeriodSeconds = &grace
	}
	if w.api.Pod(namespace, sub.pod.Name) == nil {
		return
	}
	w.judge.unwant(sub, grace)
	if err := w.api.Admin().CoreV1().Pods(namespace).Delete(w.t.Context(), sub.pod.Name, opts); !apierrors.IsNotFound(err) {
		w.must(err)
	}
}

// removeAll asks for the end of every pod.
func (w *world) removeAll() {
	for _, sub := range w.scenario.subjects {
		w.tell("ACT delete " + sub.pod.Name)
		w.remove(sub, -1)
	}
}

func (w *world) killProcess(pick int) {
	live := slices.DeleteFunc(w.rt.Snapshot().Containers, func(c fakecri.ContainerInfo) bool { return c.State != fakecri.Running })
	if len(live) > 0 {
		c := live[pick%len(live)]
		w.judge.disturb(c.PodUID())
		_ = w.rt.Exit(c.ID, 137, "OOMKilled")
	}
}

func (w *world) killSandbox(pick int) {
	sandboxes := slices.DeleteFunc(w.rt.Snapshot().Sandboxes, func(s fakecri.SandboxInfo) bool { return s.State != fakecri.Ready })
	if len(sandboxes) > 0 {
		s := sandboxes[pick%len(sandboxes)]
		w.judge.disturb(s.Config.GetMetadata().GetUid())
		_ = w.rt.KillSandbox(s.ID)
	}
}

// reboot is a power cut of the whole machine: podsync dies with everything, and
// nothing is mounted any more. When it is wiped, the runtime comes up empty.
func (w *world) reboot(wiped bool) {
	for _, s := range w.rt.Snapshot().Sandboxes {
		w.judge.disturb(s.Config.GetMetadata().GetUid())
	}
	w.crash("reboot")
	synctest.Wait() // nothing of podsync goes on in a machine that is off
	w.rebootDrivers()
	w.must(w.mounts.Reboot())
	if !wiped {
		w.rt.Reboot()
		return
	}
	w.rt.Wipe()
	told := map[string]bool{}
	for _, sub := range w.scenario.subjects {
		if pod := w.api.Pod(namespace, sub.pod.Name); pod != nil {
			for _, st := range append(statuses(pod), pod.Status.EphemeralContainerStatuses...) {
				for _, end := range []*v1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
					if end != nil {
						told[end.ContainerID] = true
					}
				}
			}
		}
	}
	w.judge.wiped(told)
}

// crash kills podsync now, wherever it is.
func (w *world) crash(why string) {
	w.mu.Lock()
	l := w.life
	w.mu.Unlock()
	if l != nil {
		l.crash(why)
	}
}

// longestQuiet is how long everything may take to become as it was asked for,
// once the faults are over: the longest back-off is five minutes.
const longestQuiet = 20 * time.Minute

// converge waits until everything is as it was asked for.
func (w *world) converge(what string) bool {
	began := time.Now()
	for {
		time.Sleep(5 * time.Second)
		if s := w.sabotage; s != nil && s.look != nil {
			s.look(w)
		}
		wrong := w.wrong()
		if wrong == "" {
			w.tell("CONVERGED", "after", time.Since(began).String())
			return true
		}
		if time.Since(began) > longestQuiet {
			w.judge.fail("%v after the last fault not everything is %s: %s", longestQuiet, what, wrong)
			return false
		}
	}
}
