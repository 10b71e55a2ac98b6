package observe

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

const (
	// maxMessageBytes of the termination message file are shown.
	maxMessageBytes = 4096
	// maxLogBytes and maxLogLines of the log are shown instead, when the
	// container's policy asks for it.
	maxLogBytes = 2048
	maxLogLines = 80
	// leastRead and mostRead are how much of the log's end is read for that: runtimes write a
	// line in pieces of 16 KiB, or whole.
	leastRead, mostRead = 8 << 10, 512 << 10
)

// messages reads what containers have left.
type messages struct {
	// podsDir holds the pods' directories, logsDir their logs; nothing is read
	// where one is empty.
	podsDir, logsDir string
}

// of is what a container that has exited said last: the runtime's own message,
// then what the container wrote to its termination message file, or the end of
// its log.
func (m messages) of(st *runtimeapi.ContainerStatus) string {
	said := string(m.file(st))
	policy := st.GetAnnotations()[cri.AnnotationTerminationMessagePolicy]
	if said == "" && policy == string(v1.TerminationMessageFallbackToLogsOnError) && st.GetExitCode() != 0 && st.GetLogPath() != "" {
		said = m.log(st.GetLogPath())
	}
	// What is no text would change on its way to the apiserver.
	said = strings.ToValidUTF8(said, "\uFFFD")
	if said == "" || st.GetMessage() == "" {
		return st.GetMessage() + said
	}
	return st.GetMessage() + ": " + said
}

// log is the end of a log. A line of it has a prefix of about 40 bytes, so that most are read
// once; of one long line more is.
func (m messages) log(path string) string {
	for limit := int64(leastRead); ; limit *= 8 {
		data, whole := tail(m.logsDir, path, limit)
		text, enough := lastLines(data, !whole)
		if enough || whole || limit >= mostRead {
			return text
		}
	}
}

// file reads the container's termination message file, which lies in its own
// directory in the pod's. A volume of the pod may be mounted at the same path in
// the container: it says nothing, and what its host path leads to is the pod's
// choice. The path as the spec has it need not be absolute; the mount's is.
func (m messages) file(st *runtimeapi.ContainerStatus) []byte {
	at := st.GetAnnotations()[cri.AnnotationTerminationMessagePath]
	uid, name := st.GetLabels()[cri.LabelPodUID], st.GetLabels()[cri.LabelContainerName]
	if at == "" || uid == "" || name == "" {
		return nil
	}
	own := filepath.Join("pods", uid, "containers", name)
	for _, mount := range st.GetMounts() {
		// Some runtimes say where links on the way to the root directory lead.
		dir, file := filepath.Split(mount.GetHostPath())
		if filepath.Join("/", mount.GetContainerPath()) == filepath.Join("/", at) && strings.HasSuffix(filepath.Clean(dir), "/"+own) {
			said, _ := tail(m.podsDir, filepath.Join(m.podsDir, uid, "containers", name, file), maxMessageBytes)
			return said
		}
	}
	return nil
}

// tail reads the last limit bytes of a regular file below root, and says whether they are all of
// it; nothing, and that, when it cannot.
func tail(root, path string, limit int64) (data []byte, whole bool) {
	if root == "" {
		return nil, true
	}
	f, err := beneath.Open(root, path)
	if err != nil {
		return nil, true
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, true
	}
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, true
	}
	if data, err = io.ReadAll(io.LimitReader(f, limit)); err != nil {
		return nil, true
	}
	return data, info.Size() <= limit
}

// lastLines takes the text out of CRI log lines ("time stream tag text") and
// keeps the end of it, within both limits; enough says that one of them is
// reached. If data is cut, the first line is the end of one: its text, if nothing
// else is there.
func lastLines(data []byte, cut bool) (text string, enough bool) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	var first []byte
	if cut {
		first, lines = lines[0], lines[1:]
	}
	if last := len(lines) - 1; last >= 0 && len(lines[last]) == 0 {
		lines = lines[:last]
	}
	if len(lines) >= maxLogLines {
		lines, first, enough = lines[len(lines)-maxLogLines:], nil, true
	}
	var out []byte
	for _, line := range lines {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 {
			continue // no line of a log
		}
		text := parts[3]
		if bytes.Equal(parts[2], []byte("P")) {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		out = append(out, text...)
	}
	if len(out) >= maxLogBytes {
		return string(out[len(out)-maxLogBytes:]), true
	}
	if len(first) >= mostRead/2 { // its prefix is far away
		out = append(first, out...)
		out = out[len(out)-maxLogBytes:]
	}
	return string(out), enough
}
