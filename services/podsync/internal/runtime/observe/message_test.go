package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// hostFiles is a directory with a pod's message and log, others', and links.
func hostFiles(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	line := "2026-11-20T12:00:00.0Z stderr F "
	for path, text := range map[string]string{
		"root/pods/u/containers/c/m": "own",
		"root/pods/u/containers/d/m": "of another container",
		"root/pods/v/containers/c/m": "of another pod",
		"etc/shadow":                 "secret",
		"etc/0.log":                  line + "secret",
		"etc/log/0.log":              line + "secret",
		"logs/ns_u/c/0.log":          line + "own log",
		"logs/ns_v/c/0.log":          line + "log of another pod",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"root/pods/u/containers/c/link": "../../../../../etc/shadow",
		"root/pods/u/volume":            "../../../etc",
		"other-root":                    "root",
		"root/pods/w":                   "v",
		"logs/ns_u/c/1.log":             "../../ns_v/c/0.log",
		"logs/ns_u/c/2.log":             "../../../etc/0.log",
		"logs/ns_u/d":                   "../../etc/log",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestATerminationMessageIsReadFromThePodsOwnFilesOnly(t *testing.T) {
	dir := hostFiles(t)
	m := messages{podsDir: filepath.Join(dir, "other-root/pods"), logsDir: filepath.Join(dir, "logs")}
	for _, tc := range []struct {
		name, uid string
		// mounts are the host paths of what is mounted at the message's path.
		mounts []string
		log    string
		want   string
	}{
		{name: "its file", mounts: []string{"other-root/pods/u/containers/c/m"}, want: "own"},
		{name: "its file, as a runtime says that resolves links", mounts: []string{"root/pods/u/containers/c/m"}, want: "own"},
		{name: "a volume that is mounted there, too", mounts: []string{"etc/shadow", "root/pods/u/containers/c/m"}, want: "own"},
		{name: "a volume and no file", mounts: []string{"etc/shadow"}},
		{name: "a volume through a link", mounts: []string{"root/pods/u/volume/shadow"}},
		{name: "a link in its place", mounts: []string{"root/pods/u/containers/c/link"}},
		{name: "another container's", mounts: []string{"root/pods/u/containers/d/m"}},
		{name: "another pod's", mounts: []string{"root/pods/v/containers/c/m"}},
		{name: "another pod's through a link", uid: "w", mounts: []string{"root/pods/w/containers/c/m"}},
		{name: "its directory", mounts: []string{"root/pods/u/containers/c/"}},
		{name: "its log", log: "logs/ns_u/c/0.log", want: "own log"},
		{name: "a log that leads to another pod's", log: "logs/ns_u/c/1.log"},
		{name: "a log that leads out", log: "logs/ns_u/c/2.log"},
		{name: "a log in a directory that leads out", log: "logs/ns_u/d/0.log"},
		{name: "a log elsewhere", log: "etc/0.log"},
	} {
		uid := tc.uid
		if uid == "" {
			uid = "u"
		}
		st := &runtimeapi.ContainerStatus{
			ExitCode: 1, Labels: map[string]string{cri.LabelPodUID: uid, cri.LabelContainerName: "c"},
			Annotations: map[string]string{
				cri.AnnotationTerminationMessagePath:   "/dev/termination-log",
				cri.AnnotationTerminationMessagePolicy: string(v1.TerminationMessageFallbackToLogsOnError),
			},
		}
		for _, path := range tc.mounts {
			st.Mounts = append(st.Mounts, &runtimeapi.Mount{ContainerPath: "/dev/termination-log", HostPath: dir + "/" + path})
		}
		if tc.log != "" {
			st.LogPath = filepath.Join(dir, tc.log)
		}
		if got := m.of(st); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestATerminationMessageIsFoundThoughThePathOfTheSpecIsNotTheMounts(t *testing.T) {
	dir := hostFiles(t)
	m := messages{podsDir: filepath.Join(dir, "root/pods"), logsDir: filepath.Join(dir, "logs")}
	for at, mounted := range map[string]string{"tmp/log": "/tmp/log", "/tmp//log/": "/tmp/log", "tmp/l": "tmp/l"} {
		st := &runtimeapi.ContainerStatus{
			Labels:      map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"},
			Annotations: map[string]string{cri.AnnotationTerminationMessagePath: at},
			Mounts:      []*runtimeapi.Mount{{ContainerPath: mounted, HostPath: filepath.Join(dir, "root/pods/u/containers/c/m")}},
		}
		if got := m.of(st); got != "own" {
			t.Errorf("%q, mounted at %q: %q", at, mounted, got)
		}
	}
}

func TestWithoutDirectoriesNoMessageIsRead(t *testing.T) {
	dir := hostFiles(t)
	t.Chdir(dir)
	st := &runtimeapi.ContainerStatus{
		ExitCode: 1, Message: "the runtime's", Labels: map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"},
		Annotations: map[string]string{
			cri.AnnotationTerminationMessagePath:   "/m",
			cri.AnnotationTerminationMessagePolicy: string(v1.TerminationMessageFallbackToLogsOnError),
		},
		Mounts:  []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: filepath.Join(dir, "root/pods/u/containers/c/m")}},
		LogPath: filepath.Join(dir, "logs/ns_u/c/0.log"),
	}
	if got := (messages{}).of(st); got != "the runtime's" {
		t.Errorf("message %q", got)
	}
}

func TestTheEndOfTheTerminationMessageIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		time.Sleep(2 * time.Second)
		_, c := r.start("u", map[string]string{cri.AnnotationTerminationMessagePath: "/dev/termination-log"})
		_ = r.rt.Exit(c, 1, "")
		synctest.Wait()
		if got := r.sink.get("u").Containers[0].Message; len(got) != 4096 || !strings.HasSuffix(got, "xbye") {
			t.Errorf("message of %d bytes", len(got))
		}
	})
}

func TestLogLinesAsTerminationMessage(t *testing.T) {
	line := "2026-11-20T12:00:00.0Z stderr "
	for _, tc := range []struct {
		name, log string
		cut       bool
		want      string
	}{
		{"lines", line + "F one\n" + line + "F two\n", false, "one\ntwo\n"},
		{"a long line in parts", line + "P on\n" + line + "F e\n", false, "one\n"},
		{"cut at the beginning", "0Z stderr F one\n" + line + "F two\n", true, "two\n"},
		{"without an end", line + "F one\n" + line + "F tw", false, "one\ntw"},
		{"no lines of a log", "once upon\n", false, ""},
		{"empty", "", false, ""},
	} {
		if got, enough := lastLines([]byte(tc.log), tc.cut); got != tc.want || enough {
			t.Errorf("%s: %q, enough %v, want %q", tc.name, got, enough, tc.want)
		}
	}
	if got, enough := lastLines([]byte(strings.Repeat(line+"F x\n", 200)), true); strings.Count(got, "\n") != maxLogLines || !enough {
		t.Errorf("%d lines, enough %v", strings.Count(got, "\n"), enough)
	}
	if got, enough := lastLines([]byte(line+"F "+strings.Repeat("y", 9999)+"\n"), false); len(got) != maxLogBytes || !enough {
		t.Errorf("%d bytes, enough %v", len(got), enough)
	}
}

func TestALongLastLineOfTheLogIsATerminationMessageToo(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	line := "2026-11-20T12:00:00.000000000Z stderr "
	piece := strings.Repeat("y", 16<<10)
	for name, tc := range map[string]struct{ log, want string }{
		"without spaces":         {line + "F " + piece + "z\n", piece + "z\n"},
		"of words":               {line + "F first second " + strings.Repeat("word ", 3000) + "\n", strings.Repeat("word ", 3000) + "\n"},
		"in pieces":              {line + "P " + piece + "\n" + line + "F end\n", piece + "end\n"},
		"written whole":          {line + "F " + strings.Repeat("w", 2<<20) + "\n", strings.Repeat("w", 4096) + "\n"},
		"with a short one after": {line + "F " + piece + "\n" + line + "F exit 1\n", piece + "\nexit 1\n"},
	} {
		log := filepath.Join(dir, "0.log")
		if err := os.WriteFile(log, []byte(line+"F starting\n"+tc.log), 0o600); err != nil {
			t.Fatal(err)
		}
		st := &runtimeapi.ContainerStatus{
			ExitCode: 1, LogPath: log,
			Annotations: map[string]string{cri.AnnotationTerminationMessagePolicy: string(v1.TerminationMessageFallbackToLogsOnError)},
		}
		want := tc.want[len(tc.want)-maxLogBytes:]
		if got := (messages{logsDir: dir}).of(st); got != want {
			t.Errorf("%s: %d bytes, %.20q …, want %.20q …", name, len(got), got, want)
		}
	}
}
