package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

// running runs the stand-in until the test ends, and returns what it ended with.
func running(t *testing.T, name string, args ...string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, name, args) }()
	t.Cleanup(cancel)
	return ended
}

// awaitSocket waits until somebody listens there.
func awaitSocket(t *testing.T, path string) net.Conn {
	t.Helper()
	var conn net.Conn
	eventually.Nil(t, func() (err error) {
		conn, err = net.Dial("unix", path)
		return err
	})
	return conn
}

func TestADriverIsRegisteredUntilTheAgentRefusesIt(t *testing.T) {
	dir, plugins := t.TempDir(), t.TempDir()
	driver := fakecsi.New(fakecsi.Config{Name: "csi.test", NodeID: "node"})
	stop, err := driver.Serve(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	ended := running(t, "csi-node-driver-registrar", "--v=5", "--timeout=1m", "--csi-address="+filepath.Join(dir, "csi.test.sock"),
		"--kubelet-registration-path=/node/csi.sock", "--plugin-registration-path="+plugins)
	path := filepath.Join(plugins, "csi.test-reg.sock")
	_ = awaitSocket(t, path).Close() // That somebody listens is all.
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.GetName() != "csi.test" || info.GetEndpoint() != "/node/csi.sock" || info.GetType() != registration.CSIPlugin {
		t.Errorf("it says %v, %v", info, err)
	}
	for _, status := range []*registration.RegistrationStatus{{PluginRegistered: true}, {Error: "no such"}} {
		if _, err := client.NotifyRegistrationStatus(t.Context(), status); err != nil && status.GetPluginRegistered() {
			t.Error(err)
		}
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no such") {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("its socket is still there: %v", err)
	}
}

func TestEachCallerOfADriverReachesTheSuite(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	running(t, "hostpathplugin", "-v=5", "-nodeid=n", "-endpoint="+socket, "-proxy-endpoint=tcp://"+address)
	for _, word := range []string{"one", "two"} {
		caller := awaitSocket(t, socket)
		suite, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(caller, word); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(word))
		if _, err := io.ReadFull(suite, got); err != nil || string(got) != word {
			t.Errorf("the suite hears %q, %v", got, err)
		}
		if err := suite.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := caller.Read(got); err != io.EOF {
			t.Errorf("the caller hears %v of the end", err)
		}
	}
}

func TestAStandInSaysWhatItCannotDo(t *testing.T) {
	for name, args := range map[string][]string{"csi-resizer": nil, "hostpathplugin": {"-endpoint=/csi.sock"}} {
		if err := run(t.Context(), name, args); err == nil {
			t.Errorf("%s %q: got no error", name, args)
		}
	}
}

func TestADriverIsSaidToLiveWhileItAnswers(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	go func() { _ = liveness(t.Context(), filepath.Join(dir, "csi.sock"), address) }() // It ends with the test.
	listener, err := net.Listen("unix", filepath.Join(dir, "csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, answering{})
	go func() { _ = server.Serve(listener) }()
	if got := asked(t, address); got != http.StatusOK {
		t.Errorf("of a driver that answers: %d", got)
	}
	server.Stop()
	if got := asked(t, address); got != http.StatusInternalServerError {
		t.Errorf("of a driver that is gone: %d", got)
	}
}

type answering struct {
	csi.UnimplementedIdentityServer
}

func (answering) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// asked is what is said of the driver, once somebody answers.
func asked(t *testing.T, address string) int {
	t.Helper()
	var code int
	eventually.Nil(t, func() error {
		answer, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			code = answer.StatusCode
			_ = answer.Body.Close() // Its status is all.
		}
		return err
	})
	return code
}
