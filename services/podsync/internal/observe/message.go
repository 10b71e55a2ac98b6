package observe

import (
	"bytes"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/cri"
)

const (
	// maxMessageBytes of the termination message file are shown.
	maxMessageBytes = 4096
	// maxLogBytes and maxLogLines of the log are shown instead, when the
	// container's policy asks for it.
	maxLogBytes = 2048
	maxLogLines = 80
)

// terminationMessage is what a container that has exited said last: the
// runtime's own message, then what the container wrote to its termination
// message file, or the end of its log.
func terminationMessage(st *runtimeapi.ContainerStatus) string {
	said := ""
	if path := st.GetAnnotations()[cri.AnnotationTerminationMessagePath]; path != "" {
		for _, m := range st.GetMounts() {
			if m.GetContainerPath() == path {
				said = string(tail(m.GetHostPath(), maxMessageBytes))
				break
			}
		}
	}
	policy := st.GetAnnotations()[cri.AnnotationTerminationMessagePolicy]
	if said == "" && policy == string(v1.TerminationMessageFallbackToLogsOnError) && st.GetExitCode() != 0 && st.GetLogPath() != "" {
		// A line of the log has a prefix of about 40 bytes.
		said = lastLines(tail(st.GetLogPath(), maxLogBytes+maxLogLines*64))
	}
	// What is no text would change on its way to the apiserver.
	said = strings.ToValidUTF8(said, "\uFFFD")
	if said == "" || st.GetMessage() == "" {
		return st.GetMessage() + said
	}
	return st.GetMessage() + ": " + said
}

// tail reads the last limit bytes of a regular file; nothing when it cannot.
func tail(path string, limit int64) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	return data
}

// lastLines takes the text out of CRI log lines ("time stream tag text") and
// keeps the end of it, within both limits.
func lastLines(data []byte) string {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines) > maxLogLines+1 {
		lines = lines[len(lines)-maxLogLines-1:]
	}
	var out []byte
	for _, line := range lines {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 {
			continue // cut at the beginning, or empty
		}
		text := parts[3]
		if bytes.Equal(parts[2], []byte("P")) {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		out = append(out, text...)
	}
	if len(out) > maxLogBytes {
		out = out[len(out)-maxLogBytes:]
	}
	return string(out)
}
