package logs

import (
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Path is the log of one instance of a container, below the directory of all logs.
func Path(root string, pod *v1.Pod, container string, restartCount int32) string {
	dir := pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	return filepath.Join(root, dir, container, strconv.Itoa(int(restartCount))+".log")
}
