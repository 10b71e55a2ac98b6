package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// damages has, in some scenarios, what is kept of volumes be damaged, as by a disk that
// loses what it said that it had. It takes its choices from a source of its own.
func (s *scenario) damages(seed int64) {
	if s.csi == nil {
		return
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 19))
	for range rng.IntN(2) * (1 + rng.IntN(2)) {
		pick, at := rng.Uint64(), time.Duration(rng.Int64N(int64(s.noisy)))
		s.add(at, "what is kept of volumes is damaged", func(w *world) { w.damageDisks(pick) })
	}
}

// damageDisks spoils half of what is kept of volumes, beside them and of claims, and has
// podsync read it. What says which volume is staged is left alone where nothing else does:
// that is for people to mend, as podsync tells them.
func (w *world) damageDisks(pick uint64) {
	w.crash("damage of what is kept of volumes")
	root := filepath.Join(w.dir, "root")
	var files []string
	for _, at := range []string{"pods/*/volumes/kubernetes.io~csi/*/vol_data.json", "pods/*/plugins/polylet~claims/*"} {
		found, _ := filepath.Glob(filepath.Join(root, at))
		files = append(files, found...)
	}
	for _, d := range w.disks.drivers {
		if d.attach {
			found, _ := filepath.Glob(filepath.Join(w.stagings(), d.name, "*", "vol_data.json"))
			files = append(files, found...)
		}
	}
	slices.Sort(files)
	rng := rand.New(rand.NewPCG(uint64(w.seed), pick))
	for _, f := range files {
		if rng.IntN(2) == 0 {
			w.tell("DAMAGED", "file", strings.TrimPrefix(f, w.dir))
			w.must(os.WriteFile(f, []byte(`{"half`), 0o600))
		}
	}
}

// unsaid says of which volume of a running pod nothing on the disk says what it is: an
// agent that is started then would not know whom to ask to take it back.
func (w *world) unsaid(owners map[string]*v1.Pod) string {
	for uid, pod := range owners {
		if pod.Status.Phase != v1.PodRunning {
			continue
		}
		dirs, _ := filepath.Glob(filepath.Join(w.dir, "root", "pods", uid, "volumes", "kubernetes.io~csi", "*"))
		for _, dir := range dirs {
			var is struct{ DriverName, VolumeHandle string }
			raw, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
			if err == nil {
				err = json.Unmarshal(raw, &is)
			}
			if on := w.mounts.Source(filepath.Join(dir, "mount")); err != nil || on != "csi "+is.DriverName+" "+is.VolumeHandle {
				return fmt.Sprintf("pod %s has %q on %s, and what lies beside it says %q (%v)", pod.Name, on, dir, raw, err)
			}
		}
	}
	return ""
}
