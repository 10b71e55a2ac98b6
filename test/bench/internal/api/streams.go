package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
	"github.com/polylet/polylet/test/harness/images"
)

const (
	streamsPod = "streams"
	// streamBytes goes through every stream that is measured.
	streamBytes = 128 << 20
	mebibyte    = 1 << 20
)

// way is how a client reaches a pod's streams.
type way struct {
	name      string
	webSocket bool
	// direct is to the node's own server instead of through the apiserver.
	direct bool
}

// ways are kubectl's two, and the older one without the apiserver. The node's
// own WebSocket speaks v5 with polylet only, which is no comparison.
func ways() []way {
	return []way{{name: "WebSocket", webSocket: true}, {name: "SPDY"}, {name: "SPDY, node API", direct: true}}
}

// streams measures exec, logs and port-forward on a pod of its own.
func (a *apiStage) streams(ctx context.Context) error {
	o, err := stage.Observe(ctx, a.Stage)
	if err != nil {
		return err
	}
	defer o.Watch.Stop()
	pods := a.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(ctx, filePod(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", streamsPod, err)
	}
	if _, err := o.Wait(ctx, []string{streamsPod}, func(m stage.Moments) bool { return !m.Ready.IsZero() }); err != nil {
		return fmt.Errorf("wait for pod %s: %w", streamsPod, err)
	}
	for _, w := range ways() {
		if err := a.execTrue(ctx, w); err != nil {
			return fmt.Errorf("exec over %s: %w", w.name, err)
		}
	}
	for _, w := range ways() {
		if err := a.execCat(ctx, w); err != nil {
			return fmt.Errorf("exec cat over %s: %w", w.name, err)
		}
	}
	if err := a.logs(ctx); err != nil {
		return err
	}
	for _, w := range ways() {
		if err := a.portForward(ctx, w); err != nil {
			return fmt.Errorf("port-forward over %s: %w", w.name, err)
		}
	}
	if err := pods.Delete(ctx, streamsPod, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", streamsPod, err)
	}
	_, err = o.Wait(ctx, []string{streamsPod}, func(m stage.Moments) bool { return !m.Gone.IsZero() })
	return err
}

// reach is the URL of one of a pod's streams and a configuration for it.
func (a *apiStage) reach(w way, nodePath, subresource string, query url.Values) (*url.URL, *rest.Config, error) {
	config, path := a.Cluster.Rest, "/api/v1/namespaces/default/pods/"+streamsPod+"/"+subresource
	if w.direct {
		config, path = a.node.config, nodePath
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	u.Path, u.RawQuery = path, query.Encode()
	return u, config, nil
}

func (a *apiStage) executor(w way, command []string, stdin bool) (remotecommand.Executor, error) {
	query := url.Values{"command": command, "container": {"app"}, "stdout": {"true"}}
	if stdin {
		query.Set("stdin", "true")
	}
	if w.direct {
		query = url.Values{"command": command, "output": {"1"}}
		if stdin {
			query.Set("input", "1")
		}
	}
	u, config, err := a.reach(w, "/exec/default/"+streamsPod+"/app", "exec", query)
	if err != nil {
		return nil, err
	}
	if w.webSocket {
		return remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	}
	return remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
}

// execTrue runs the shortest command; another one before shows that commands
// are run and their ends told.
func (a *apiStage) execTrue(ctx context.Context, w way) error {
	var exit utilexec.CodeExitError
	err := a.run(ctx, w, []string{"sh", "-c", "exit 7"}, nil, io.Discard)
	if !errors.As(err, &exit) || exit.Code != 7 {
		return fmt.Errorf("a command that ended with 7: %w", err)
	}
	before, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	for range a.s.Samples {
		began := time.Now()
		if err := a.run(ctx, w, []string{"true"}, nil, io.Discard); err != nil {
			return err
		}
		a.c.Add(fmt.Sprintf("exec true, %s, ms", w.name), report.Milliseconds(time.Since(began)))
	}
	after, err := usage.Of(a.Stage.Node)
	a.c.Add(fmt.Sprintf("exec true, %s, CPU of one, ms", w.name), (after.CPU-before.CPU)/float64(a.s.Samples))
	return err
}

func (a *apiStage) run(ctx context.Context, w way, command []string, in io.Reader, out io.Writer) error {
	executor, err := a.executor(w, command, in != nil)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
}

func (a *apiStage) execCat(ctx context.Context, w way) error {
	return a.rate(ctx, fmt.Sprintf("exec stdin → cat → stdout, %s", w.name), func() (int64, error) {
		sent, got := crc32.New(castagnoli()), crc32.New(castagnoli())
		count := &counter{w: got}
		if err := a.run(ctx, w, []string{"cat"}, io.TeeReader(io.LimitReader(&lines{}, streamBytes), sent), count); err != nil {
			return count.n, err
		}
		return count.n, same(count.n, streamBytes, got.Sum32(), sent.Sum32())
	})
}

// rate measures something that moves bytes, several times over: the machine's
// other work is not the same for a second.
func (a *apiStage) rate(ctx context.Context, what string, move func() (int64, error)) error {
	for range a.s.Repeats {
		if err := a.rateOnce(what, move); err != nil {
			return err
		}
	}
	name := strings.NewReplacer(", ", "-", " → ", "-", " ", "-").Replace(what)
	return a.profileWhile(ctx, name, func(context.Context) error {
		_, err := move()
		return err
	})
}

func (a *apiStage) rateOnce(what string, move func() (int64, error)) error {
	before, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	began := time.Now()
	n, err := move()
	took := time.Since(began)
	if errors.Is(err, errWrong) {
		// It has no rate, and is worth knowing.
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		a.c.Add(what+", answers that were not whole", 1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s, %d bytes moved: %w", what, n, err)
	}
	after, err := usage.Of(a.Stage.Node)
	if err != nil {
		return err
	}
	size := float64(n) / mebibyte
	a.c.Add(what+", MiB/s", size/took.Seconds())
	a.c.Add(what+", CPU per 100 MiB, ms", (after.CPU-before.CPU)*100/size)
	return nil
}

// errWrong is about bytes that came well and are not those that were sent.
var errWrong = errors.New("what came is not what was sent")

func same(n, want int64, got, sum uint32) error {
	if n != want || got != sum {
		return fmt.Errorf("%w: %d bytes with CRC %08x, want %d with %08x", errWrong, n, got, want, sum)
	}
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// lines reads as 00000001\n00000002\n …, so that nothing that is lost, doubled or
// out of order goes unnoticed.
type lines struct {
	next int
	rest bytes.Buffer
}

func (l *lines) Read(p []byte) (int, error) {
	for l.rest.Len() < len(p) {
		l.next++
		number := []byte("00000000\n")
		for i, n := len(number)-2, l.next; n > 0 && i >= 0; i, n = i-1, n/10 {
			number[i] = byte('0' + n%10)
		}
		l.rest.Write(number)
	}
	return l.rest.Read(p)
}

// filePod serves a file of lines over HTTP and has a shell's tools for exec.
func filePod() *corev1.Pod {
	grace, no := int64(1), false
	mounts := []corev1.VolumeMount{{Name: "www", MountPath: "/www"}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: streamsPod},
		Spec: corev1.PodSpec{
			NodeName: stage.NodeName, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			InitContainers: []corev1.Container{{
				Name: "fill", Image: images.BusyBox, VolumeMounts: mounts,
				Command: []string{"sh", "-c", fmt.Sprintf("seq -w 1 99999999 | head -c %d > /www/data", streamBytes)},
			}},
			Containers: []corev1.Container{{
				Name: "app", Image: images.BusyBox, VolumeMounts: mounts,
				Command: []string{"httpd", "-f", "-p", "8080", "-h", "/www"},
			}},
			Volumes:     []corev1.Volume{{Name: "www", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}
