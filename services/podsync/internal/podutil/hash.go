package podutil

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash identifies a container's definition as the kubelet does: FNV-32a over
// the dump of the JSON of its name and image, in hex. A change of it restarts
// the container.
// Source: the annotation io.kubernetes.container.hash that kubelets write.
func Hash(c *v1.Container) string {
	fields, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil { // strings always marshal
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write(dumped(fields))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// dumped are bytes as the dump that the hash is over shows them, ([]uint8)[123
// 34]. It is written out here because the dumper's reflection takes longer
// than the rest of a plan.
func dumped(data []byte) []byte {
	out := make([]byte, 0, len(data)*len("255 ")+len("([]uint8)[]"))
	out = append(out, "([]uint8)["...)
	for i, b := range data {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendUint(out, uint64(b), 10)
	}
	return append(out, ']')
}

// BackoffKey identifies what a back-off was earned with: an image or resources
// that change begin anew.
func BackoffKey(c *v1.Container) string {
	fields, err := json.Marshal(struct {
		Image     string
		Resources v1.ResourceRequirements
	}{c.Image, c.Resources})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write(fields)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
