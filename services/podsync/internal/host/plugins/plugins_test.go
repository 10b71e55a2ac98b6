package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taker is a Handler that keeps what it is told.
type taker struct {
	refuse func(Plugin) error

	mu    sync.Mutex
	calls []string
}

func (h *taker) Register(_ context.Context, p Plugin) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		if err := h.refuse(p); err != nil {
			h.calls = append(h.calls, "refuse "+p.Name)
			return err
		}
	}
	h.calls = append(h.calls, "register "+p.Name+" "+filepath.Base(p.Endpoint))
	return nil
}

func (h *taker) Deregister(p Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, "deregister "+p.Name+" "+filepath.Base(p.Endpoint))
}

func (h *taker) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.calls, "; ")
}

// plugin serves the registration API.
type plugin struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
	hang bool

	mu   sync.Mutex
	told []string
	deaf error
}

func (p *plugin) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if p.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint(s.GetPluginRegistered(), " ", s.GetError()))
	return &registration.RegistrationStatusResponse{}, p.deaf
}

func (p *plugin) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.told, "; ")
}

func (p *plugin) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = nil
}

// serve has a plugin at a socket until the test ends or stop is called.
func serve(t *testing.T, socket string, p *plugin) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop() // removes the socket
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func csi(name, endpoint string) *plugin {
	return &plugin{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}}
}

// run runs a Registry of a new directory until the test ends or stop is called.
func run(t *testing.T, dir string, h Handler) (stop func()) {
	t.Helper()
	r := New(Config{Dir: dir, Handlers: map[string]Handler{registration.CSIPlugin: h}, FirstRetry: 5 * time.Millisecond}, Deps{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func becomes(t *testing.T, h *taker, want string) {
	t.Helper()
	eventually.True(t, "it says another thing", func() bool { return h.said() == want || t.Failed() })
	if got := h.said(); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestAPluginIsRegisteredAsLongAsItsSocketIsThere(t *testing.T) {
	dir, h := filepath.Join(t.TempDir(), "plugins_registry"), &taker{}
	if err := os.MkdirAll(filepath.Join(dir, "before"), 0o755); err != nil {
		t.Fatal(err)
	}
	early := csi("early", "/x/early.sock")
	serve(t, filepath.Join(dir, "before", "early-reg.sock"), early)
	stopRun := run(t, dir, h)
	becomes(t, h, "register early early.sock")

	late := csi("late", "") // serves at the same socket
	stop := serve(t, filepath.Join(dir, "late-reg.sock"), late)
	becomes(t, h, "register early early.sock; register late late-reg.sock")
	eventually.True(t, "the plugin is not told", func() bool { return late.said() == "true " })
	stop()
	becomes(t, h, "register early early.sock; register late late-reg.sock; deregister late late-reg.sock")
	stopRun()
	if got := h.said(); strings.Contains(got, "deregister early") {
		t.Errorf("a plugin must stay registered when this process ends: %s", got)
	}
}

func TestAPluginThatStartsAnewIsRegisteredAnew(t *testing.T) {
	dir, h := t.TempDir(), &taker{}
	socket := filepath.Join(dir, "a-reg.sock")
	stop := serve(t, socket, csi("a", "/x/1.sock"))
	run(t, dir, h)
	becomes(t, h, "register a 1.sock")
	// Killed: the socket stays until the next one takes its place.
	if err := os.Rename(socket, socket+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(socket + ".old"); err != nil {
		t.Fatal(err)
	}
	stop()
	serve(t, socket, csi("a", "/x/2.sock"))
	becomes(t, h, "register a 1.sock; deregister a 1.sock; register a 2.sock")
}

func TestAPluginThatIsNotTakenIsToldWhyAndAskedAgain(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	refusing := true
	h := &taker{refuse: func(Plugin) error {
		mu.Lock()
		defer mu.Unlock()
		if refusing {
			return errors.New("not today")
		}
		return nil
	}}
	a, device := csi("a", "/x/a.sock"), &plugin{info: &registration.PluginInfo{Type: registration.DevicePlugin, Name: "gpu"}}
	serve(t, filepath.Join(dir, "a.sock"), a)
	serve(t, filepath.Join(dir, "gpu.sock"), device)
	run(t, dir, h)
	eventually.True(t, "it is not asked again", func() bool { return strings.Count(h.said(), "refuse a") > 2 })
	if got := a.said(); !strings.Contains(got, "false RegisterPlugin error -- plugin registration failed with err: not today") {
		t.Errorf("the plugin is told %q", got)
	}
	eventually.True(t, "the device plugin is not told", func() bool {
		return strings.Contains(device.said(), "false RegisterPlugin error -- no handler registered for plugin type: DevicePlugin at socket "+filepath.Join(dir, "gpu.sock")+"; types that this node takes: CSIPlugin")
	})
	mu.Lock()
	refusing = false
	mu.Unlock()
	eventually.True(t, "it is never taken", func() bool { return strings.HasSuffix(h.said(), "register a a.sock") })
}

func TestAPluginThatCannotBeToldIsNotTaken(t *testing.T) {
	dir, h, a := t.TempDir(), &taker{}, csi("a", "/x/a.sock")
	a.deaf = errors.New("broken")
	serve(t, filepath.Join(dir, "a.sock"), a)
	run(t, dir, h)
	eventually.True(t, "it is not taken back", func() bool { return strings.HasPrefix(h.said(), "register a a.sock; deregister a a.sock") })
	a.hear()
	eventually.True(t, "it is not taken", func() bool {
		return strings.HasSuffix(a.said(), "true ") && strings.HasSuffix(h.said(), "; register a a.sock")
	})
}

func TestWhatElseLiesInTheDirectoryHurtsNobody(t *testing.T) {
	dir, h := t.TempDir(), &taker{}
	outside := t.TempDir()
	other := csi("outside", "/x/outside.sock")
	serve(t, filepath.Join(outside, "s.sock"), other)
	for name, target := range map[string]string{"link": outside, "link.sock": filepath.Join(outside, "s.sock"), "dangling": "/nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, filepath.Join(dir, ".hidden.sock"), csi("hidden", "/x/hidden.sock"))
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		hanging := csi("hanging", "")
		hanging.hang = true
		serve(t, filepath.Join(dir, fmt.Sprintf("hanging-%d.sock", i)), hanging)
	}
	serve(t, filepath.Join(dir, "good.sock"), csi("good", "/x/good.sock"))
	run(t, dir, h)
	becomes(t, h, "register good good.sock")
	if got := other.said(); got != "" {
		t.Errorf("a plugin behind a link is told %q", got)
	}
}

func TestAKnownSocketIsFoundAmongThousands(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 * mostSockets {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("%d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	for i := range 3 * mostSockets {
		known := filepath.Join(dir, fmt.Sprintf("%d.sock", i))
		found, err := look(t.Context(), dir, func(path string) bool { return path == known })
		if err != nil {
			t.Fatal(err)
		}
		if len(found.list) != mostSockets || found.list[0].path != known || found.more == "" {
			t.Fatalf("%d sockets, the first is %s, %q", len(found.list), found.list[0].path, found.more)
		}
	}
}

func TestDirectoriesAreLookedAtOnlySoDeep(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for range mostDepth {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(filepath.Join(deep, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{deep, filepath.Join(deep, "d")} {
		l, err := net.Listen("unix", filepath.Join(at, "s.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for i := range 2 * mostDirs {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("e", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found, err := look(t.Context(), dir, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if len(found.dirs) > mostDirs || found.more == "" {
		t.Errorf("%d directories, %q", len(found.dirs), found.more)
	}
	for _, s := range found.list {
		if s.path != filepath.Join(deep, "s.sock") {
			t.Errorf("found %s", s.path)
		}
	}
}

func TestASocketThatHasTakenANameIsNotSpokenToAsTheOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.sock")
	serve(t, path, csi("a", ""))
	found, err := look(t.Context(), dir, func(string) bool { return false })
	if err != nil || len(found.list) != 1 {
		t.Fatal(found, err)
	}
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	serve(t, path, csi("b", ""))
	if conn, err := found.list[0].connect(t.Context()); err == nil {
		_ = conn.Close()
		t.Error("connected to another socket")
	}
}

func TestTheDirectoryMayBeMadeAnew(t *testing.T) {
	dir, h := filepath.Join(t.TempDir(), "r"), &taker{}
	run(t, dir, h)
	eventually.True(t, "it is not made", func() bool { _, err := os.Stat(dir); return err == nil })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it is not made again", func() bool { _, err := os.Stat(dir); return err == nil })
	serve(t, filepath.Join(dir, "a.sock"), csi("a", "/x/a.sock"))
	becomes(t, h, "register a a.sock")
}
