package cgroup

import (
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	rootName  = "kubepods"
	podPrefix = "pod"
	slice     = ".slice"
)

// name is a cgroup's place as a list of plain names from the root, e.g.
// kubepods, burstable, pod<uid>.
type name []string

// path is the place in cgroupfs' spelling: /kubepods/burstable/pod<uid>.
func (n name) path() string { return "/" + path.Join(n...) }

// unit is the slice of the first parts in systemd's spelling: a-b-c.slice.
func (n name) unit() string {
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + slice
}

// slices are the systemd slice above and the slice itself.
func (n name) slices() (parent, own string) {
	if len(n) == 1 {
		return "-" + slice, n.unit()
	}
	return n[:len(n)-1].unit(), n.unit()
}

// parent is how CRI is told of the cgroup.
func (n name) parent(d Driver) string {
	if d == Systemd {
		return n.unit()
	}
	return n.path()
}

// PodsPath is the cgroup above all pods as it stands in the cgroup filesystem,
// below root (cgroupRoot; "" and "/" are the top).
func PodsPath(root string, driver Driver) string {
	n := kubepods(root)
	if driver != Systemd {
		return n.path()
	}
	at := "/"
	for i := range n {
		at = path.Join(at, n[:i+1].unit())
	}
	return at
}

func (t *tree) kubepods() name { return kubepods(t.cfg.Root) }

func kubepods(root string) name {
	var n name
	for part := range strings.SplitSeq(root, "/") {
		if part != "" {
			n = append(n, part)
		}
	}
	return append(n, rootName)
}

// tier is where the pods of a class live; guaranteed ones directly below kubepods.
func (t *tree) tier(class v1.PodQOSClass) name {
	switch class {
	case v1.PodQOSBurstable:
		return append(t.kubepods(), "burstable")
	case v1.PodQOSBestEffort:
		return append(t.kubepods(), "besteffort")
	}
	return t.kubepods()
}

func (t *tree) pod(class v1.PodQOSClass, uid types.UID) (name, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") {
		return nil, fmt.Errorf("pod UID %q cannot be a cgroup's name", uid)
	}
	return append(t.tier(class), podPrefix+string(uid)), nil
}

// podOf reads the pod's UID from a directory's name.
func (t *tree) podOf(dir string) (types.UID, bool) {
	if t.cfg.Driver == Systemd {
		unit, ok := strings.CutSuffix(dir, slice)
		if !ok {
			return "", false
		}
		dir = strings.ReplaceAll(unit[strings.LastIndex(unit, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(dir, podPrefix)
	return types.UID(uid), ok && uid != ""
}
