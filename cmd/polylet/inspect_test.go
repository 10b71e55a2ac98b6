package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

func TestStatusShowsWhoIsDownAndWhatTheOthersWaitFor(t *testing.T) {
	up := &commonv1.GetInfoResponse{
		Service: "stats", Pid: 42, Build: &commonv1.Build{Version: "v9"}, StartTime: timestamppb.New(now.Add(-90 * time.Second)),
		Dependencies: []*commonv1.Dependency{
			{Name: "podsync", Message: "no\nsocket", Since: timestamppb.New(now.Add(-time.Hour))},
			{Name: "cgroups", Ready: true},
		},
	}
	var out strings.Builder
	err := showStatus(&out, []serviceState{{name: "stats", info: up, pssBytes: 3 << 20}, {name: "probes", err: errDown}}, now)
	if err == nil || !strings.Contains(err.Error(), "not running: probes") {
		t.Errorf("err = %v", err)
	}
	has(t, out.String(), "stats up 42 v9 90s 3.0 MiB podsync", "probes down", "stats waits for podsync since 60m: no socket", "probes: is away", "memory of all (PSS): 3.0 MiB")
	if err := showStatus(&out, []serviceState{{name: "stats", info: up}}, now); err != nil {
		t.Errorf("waiting is not a failure: %v", err)
	}
}

// Whether a service is up nobody knows who may not open its socket.
func TestStatusSaysHowToGetInWhoMayNot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // the way there is open to all
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{uds.Path(filepath.Join(dir, "closed"), "stats"): 0o750, uds.Path(filepath.Join(dir, "open"), "stats"): 0o755} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := errors.Join(os.Chmod(path, 0o660), os.Chown(path, 0, 4242), os.Chown(filepath.Dir(path), 0, 4242), os.Chmod(filepath.Dir(path), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"closed", "open"} {
		var state serviceState
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // for good: the thread ends with who it has become
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
				t.Error(errno)
				return
			}
			state = askOne(t.Context(), filepath.Join(dir, name), "stats")
		}()
		<-done
		var out strings.Builder
		err := showStatus(&out, []serviceState{state, {name: "probes", err: errDown}}, now)
		if err == nil || err.Error() != "not running: probes; may not be asked by this user: stats" {
			t.Errorf("%s: err = %v", name, err)
		}
		has(t, out.String(), "stats no access", "become root or a member of group 4242 (usermod -aG 4242", "probes down")
		document, err := statusDocument([]serviceState{state})()
		if err != nil || !strings.Contains(string(document), `"noAccess":true`) {
			t.Errorf("%s: %s, %v", name, document, err)
		}
	}
}

type downError struct{}

func (downError) Error() string { return "is away" }

var errDown = downError{}

func TestTheShareOfMemoryIsRead(t *testing.T) {
	got, err := parsePSS(strings.NewReader("5581f-7ffc [rollup]\nRss:   100 kB\nPss:      12 kB\nPss_Anon: 3 kB\n"))
	if err != nil || got != 12<<10 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := parsePSS(strings.NewReader("Rss: 1 kB\n")); err == nil {
		t.Error("no Pss line is no error")
	}
}

func TestPodsAreListedInOrderWithWhatTheyWaitFor(t *testing.T) {
	deleted := metav1.NewTime(now)
	pods := []*v1.Pod{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "web", UID: "1", CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute))},
			Spec:       v1.PodSpec{Containers: make([]v1.Container, 2)},
			Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []v1.ContainerStatus{
				{Ready: true, RestartCount: 3}, {RestartCount: 1},
			}},
		},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new", UID: "2"}, Spec: v1.PodSpec{Containers: make([]v1.Container, 1)}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "old", UID: "3", DeletionTimestamp: &deleted}, Status: v1.PodStatus{Phase: v1.PodRunning}},
	}
	var out strings.Builder
	if err := showPods(&out, pods, map[string]string{"2": "image nginx: pulling"}, now); err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "z web Running 1/2 4 10.0.0.1 5m -", "a new Pending 0/1 0 - - image nginx: pulling", "a old Terminating")
	if strings.Index(out.String(), "new") > strings.Index(out.String(), "web") {
		t.Errorf("not in order:\n%s", out.String())
	}
}

func TestAnExplanationSaysWhatToDo(t *testing.T) {
	resp := &podsyncv1.ExplainPodResponse{
		Pod: &podsyncv1.PodRef{Namespace: "default", Name: "web", Uid: "u"}, Phase: "Pending",
		Waits: []*podsyncv1.Wait{{
			Kind: "image", Object: "nginx:1", Reason: "not found", Advice: "correct the name",
			Since: timestamppb.New(now.Add(-time.Minute)), RetryTime: timestamppb.New(now.Add(1500 * time.Millisecond)),
		}},
		Timeline: []*podsyncv1.TimelineEntry{{Time: timestamppb.New(now), Step: "pull image", Object: "nginx:1", Duration: durationpb.New(1234 * time.Microsecond), Error: "no"}},
	}
	var out strings.Builder
	if err := showExplanation(&out, resp, now); err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "default/web (uid u): Pending", "waits for image nginx:1: not found, since 60s", "to do: correct the name", "next try in 1.5s", "pull image nginx:1 1ms no")
	out.Reset()
	if err := showExplanation(&out, &podsyncv1.ExplainPodResponse{Pod: resp.GetPod(), Phase: "Running"}, now); err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "waits for nothing")
}

func TestPodsAreNamedWithOrWithoutNamespace(t *testing.T) {
	for text, want := range map[string][2]string{"web": {"default", "web"}, "kube-system/dns": {"kube-system", "dns"}} {
		if ref := podRef(text); ref.GetNamespace() != want[0] || ref.GetName() != want[1] {
			t.Errorf("%s: %v", text, ref)
		}
	}
}

func TestANodeThatIsNotThereIsNamed(t *testing.T) {
	dir := t.TempDir()
	cmd := newRootCommand()
	cmd.SetArgs([]string{"pods", "--socket-dir", dir})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), dir+"/podsync.sock") || !strings.Contains(err.Error(), "start the node") {
		t.Errorf("err = %v", err)
	}
}

// Containers, registries and manifests have a say in what is shown.
func TestNothingThatIsShownMovesATerminal(t *testing.T) {
	now := time.Now()
	evil := "\x1b[2J\x1b]0;title\a half a character \xc3 \u009b31m \u202egnihtemos ü"
	resp := &podsyncv1.ExplainPodResponse{
		Pod: &podsyncv1.PodRef{Namespace: "default", Name: "web"}, Reason: "Failed", Message: evil,
		Waits: []*podsyncv1.Wait{{Kind: "image", Object: evil, Reason: evil, Advice: evil}},
	}
	shows := map[string]func(cmd *cobra.Command) error{
		"table": func(cmd *cobra.Command) error { return showExplanation(cmd.OutOrStdout(), resp, now) },
		"document": func(cmd *cobra.Command) error {
			return writeDocument(cmd.OutOrStdout(), formatJSON, []byte(`{"a":"`+"\u009b \u202e ü"+`"}`))
		},
	}
	for name, show := range shows {
		var out bytes.Buffer
		cmd := inspectCommand("x", "", cobra.NoArgs, func(cmd *cobra.Command, _ string, _ []string) error { return show(cmd) })
		cmd.SetOut(&out)
		cmd.SetArgs([]string{})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || r == '\u202e') }); i >= 0 {
			t.Errorf("%s: %q", name, out.String()[i:])
		}
		if !utf8.Valid(out.Bytes()) || !strings.Contains(out.String(), `\u009b`) || !strings.Contains(out.String(), "ü") {
			t.Errorf("%s: %q", name, out.String())
		}
		if name == "document" && !sameDocument(out.Bytes(), []byte(`{"a":"`+"\u009b \u202e ü"+`"}`)) {
			t.Errorf("another document: %q", out.String())
		}
	}
	var out bytes.Buffer
	v := &visible{out: &out}
	for _, b := range []byte("ü\tü\n") { // characters in parts
		if n, err := v.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := asItIs(v).Write([]byte("\x1b")); err != nil || out.String() != "ü\tü\n\x1b" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// "See polylet status" is no help to who has asked it.
func TestAServiceThatDoesNotAnswerIsSaidToHaveALog(t *testing.T) {
	for _, class := range []error{rpcerr.ErrUnavailable, rpcerr.ErrTimeout} {
		err := explainCall("podsync", fmt.Errorf("%w: error reading server preface", class))
		has(t, err.Error(), "podsync d", "hangs", "ends again and again", "journalctl -u polylet-podsync", "polylet run")
		if strings.Contains(err.Error(), "polylet status") {
			t.Error(err)
		}
	}
}

// A node whose sockets somebody has removed runs, and starting it would not help.
func TestASocketThatIsGoneIsSaidToHaveBeenRemovedPerhaps(t *testing.T) {
	_, err := dial(t.TempDir(), "podsync")
	has(t, fmt.Sprint(err), "podsync.sock", "start the node", "--socket-dir", "its sockets were removed: polylet run makes them anew", "systemctl restart polylet-podsync.socket polylet-podsync.service")
}
