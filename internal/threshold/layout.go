package threshold

import "strings"

// Layout says which filesystems the node has beside that of the root directory.
type Layout struct {
	// ImagesApart is whether images are on a filesystem of their own;
	// ContainersApart whether containers' layers are on another than images.
	ImagesApart, ContainersApart bool
}

// For returns the thresholds of a node with this layout. The filesystem of
// containers' layers is always that of the node or that of the images, and has its
// thresholds: what the configuration says of containerfs counts for nothing.
func For(thresholds []Threshold, layout Layout) []Threshold {
	from := "nodefs."
	if layout.ImagesApart && !layout.ContainersApart {
		from = "imagefs."
	}
	var out, derived []Threshold
	for _, t := range thresholds {
		if strings.HasPrefix(t.Signal, "containerfs.") {
			continue
		}
		out = append(out, t)
		if kind, found := strings.CutPrefix(t.Signal, from); found {
			t.Signal = "containerfs." + kind
			derived = append(derived, t)
		}
	}
	return append(out, derived...)
}
