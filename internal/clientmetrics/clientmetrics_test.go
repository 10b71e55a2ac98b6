package clientmetrics

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
)

func TestRequestsAndQueuesAreCountedInTheSeriesThatDashboardsKnow(t *testing.T) {
	r := metricdoc.New()
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := rest.RESTClientFor(&rest.Config{Host: server.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{
		GroupVersion: &v1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get().Resource("pods").Do(t.Context()).Error(); err == nil {
		t.Fatal("a server without pods answers")
	}
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](), workqueue.TypedRateLimitingQueueConfig[string]{Name: "test"})
	queue.Add("x")
	defer queue.ShutDown()
	host, _ := url.Parse(server.URL)
	want := `
# HELP rest_client_requests_total Number of requests, by status code, method and host.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="404",host="` + host.Host + `",method="GET"} 1
# HELP workqueue_depth Length of the queue.
# TYPE workqueue_depth gauge
workqueue_depth{name="test"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "rest_client_requests_total", "workqueue_depth"); err != nil {
		t.Error(err)
	}
	var requests, queues []byte
	for line := range bytes.Lines(r.Text()) {
		if bytes.HasPrefix(line, []byte("workqueue_")) {
			queues = append(queues, line...)
		} else {
			requests = append(requests, line...)
		}
	}
	golden.Lines(t, "testdata/requests.golden", requests)
	golden.Lines(t, "testdata/queues.golden", queues) // who asks no apiserver has these alone
}

func TestTheTTLOfACertificateFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end time.Time
		c := CertificateTTL("x_ttl_seconds", "X.", func() time.Time { return end })
		if got := testutil.ToFloat64(c); !math.IsInf(got, 1) {
			t.Errorf("no certificate has %v s left", got)
		}
		end = time.Now().Add(time.Minute)
		time.Sleep(90 * time.Second)
		if got := testutil.ToFloat64(c); got != -30 {
			t.Errorf("a certificate that ended 30 s ago has %v s left", got)
		}
	})
}
