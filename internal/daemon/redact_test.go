package daemon

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// What a client of the apiserver sends and gets, and what somebody asks of a proxy.
func TestNoCredentialIsLoggedWhateverTheVerbosity(t *testing.T) {
	const secret = "hunter2"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"stringData":{"password":"` + secret + `"}}`))
	}))
	defer server.Close()
	defer func() { klog.ClearLogger(); _ = InitLogging(Logging{}) }()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		if err := InitLogging(Logging{Format: format, Verbosity: 10, Out: &out}); err != nil {
			t.Fatal(err)
		}
		client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, BearerToken: secret, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		if _, err := client.CoreV1().Secrets("ns").Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		headers := http.Header{"Authorization": {"Bearer " + secret}, "Cookie": {secret}, "Accept": {"anything"}}
		klog.FromContext(t.Context()).V(6).Info("Connecting to backend proxy", "headers", headers)
		klog.Flush()
		got := out.String()
		if strings.Contains(got, secret) {
			t.Errorf("%s:\n%s", format, got)
		}
		for _, want := range []string{"Response Body", "anything", "not logged"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the test shows nothing, %q is not in\n%s", format, want, got)
			}
		}
		if headers.Get("Authorization") != "Bearer "+secret {
			t.Error("the caller's headers have changed")
		}
		klog.ClearLogger()
	}
}

func TestOnlyRootMakesAProcessLogWhatItSends(t *testing.T) {
	defer func() { _ = InitLogging(Logging{}) }()
	if os.Geteuid() != 0 {
		t.Skip("the caller is this test, and must be root for half of it")
	}
	d, conn, _ := begin(t, Options{Service: "stats", SocketDir: filepath.Join(t.TempDir(), "s")}, wait)
	set := func(level int32) error {
		_, err := commonv1.NewCommonServiceClient(conn).SetLogLevel(within(t), &commonv1.SetLogLevelRequest{Verbosity: level}, grpc.WaitForReady(true))
		return err
	}
	if err := set(10); err != nil {
		t.Errorf("root: %v", err)
	}
	c := &common{daemon: d}
	// A caller that is not known is nobody; one that is has its user.
	if _, err := c.SetLogLevel(context.Background(), &commonv1.SetLogLevelRequest{Verbosity: 7}); err != nil {
		t.Errorf("7: %v", err)
	}
	if _, err := c.SetLogLevel(context.Background(), &commonv1.SetLogLevelRequest{Verbosity: 8}); !errors.Is(err, rpcerr.ErrForbidden) || !strings.Contains(err.Error(), "only root") {
		t.Errorf("8: %v", err)
	}
	for uid, want := range map[uint32]bool{0: true, 7: false} {
		if got := mayLogAll(uds.Peer{UID: uid}, true); got != want {
			t.Errorf("uid %d: %v", uid, got)
		}
	}
}
