package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/node"
)

// Certificates that are good for two minutes, the client's signed and approved by the
// real controller manager, the serving one's approved by the test. Pods, logs, commands,
// metrics and probes go on while they are renewed again and again and the five are
// killed; a kubelet is not.
func TestNothingIsNoticedOfCertificatesThatLastTwoMinutes(t *testing.T) {
	pods, last := 5, 150*time.Second
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		pods, last = 20, 10*time.Minute
	}
	h := build(t, plan{
		controllers: true, supervised: true, bootstrap: true, signing: 2 * time.Minute, noNode: true, within: last + 15*time.Minute,
		overrides: map[string]any{"rotateCertificates": true, "serverTLSBootstrap": true},
	})
	h.must(h.cluster.ApproveNodes(h.ctx))
	h.approveServing()
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	for n := range pods {
		h.create(webApp(fmt.Sprintf("bystander-%d", n)))
	}
	for n := range pods {
		h.waitReady(fmt.Sprintf("bystander-%d", n), 3*time.Minute)
	}
	h.eventually(time.Minute, "the apiserver trusts the node", func() error { return h.readsLog("bystander-0") })
	guard := h.guard()
	clients := h.askAllTheTime()
	if onKubelet() { // which promises nothing of its own end
		time.Sleep(last) // what is asked for meanwhile is the test
	} else {
		h.killNowAndThen(clients, time.Now().Add(last))
	}
	for _, complaint := range append(guard.stop(), clients.end()...) {
		t.Error(complaint)
	}
	t.Logf("asked: %v", clients.asked)
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
		least := int(last / (80 * time.Second))
		got := len(h.requested(signer))
		t.Logf("%d certificates of %s", got, signer)
		if got <= least {
			t.Errorf("%d certificates of %s in %v; want more than %d", got, signer, last, least)
		}
	}
	log, err := os.ReadFile(h.inst.Path("cluster", "kube-apiserver.log"))
	h.must(err)
	for _, line := range bytes.Split(log, []byte("\n")) {
		if bytes.Contains(line, []byte("certificate has expired")) {
			t.Errorf("a certificate was shown that had ended: %s", line)
		}
	}
}

// approveServing approves what nodes ask for as servers, until the test ends.
func (h *house) approveServing() {
	ctx, cancel := context.WithCancel(h.ctx)
	done := make(chan struct{})
	h.Cleanup(func() { cancel(); <-done })
	api := h.cluster.Client.CertificatesV1().CertificateSigningRequests()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, r := range h.requested(certificatesv1.KubeletServingSignerName) {
				if len(r.Status.Conditions) > 0 {
					continue
				}
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
					Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "approved by the test",
				}}
				if _, err := api.UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
					h.Log(err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
}

func (h *house) readsLog(pod string) error {
	ctx, cancel := context.WithTimeout(h.ctx, 10*time.Second)
	defer cancel()
	lines := int64(1)
	return h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(pod, &corev1.PodLogOptions{TailLines: &lines}).Do(ctx).Error()
}

// startsWithin is how long after a kill requests may fail: the process starts again, as
// soon as the machine lets it. From the first answer to each on none may.
const startsWithin = 30 * time.Second

// askers ask the node through the apiserver, each again and again.
type askers struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	dying  bool                 // something is being killed
	killed time.Time            // when something was killed last
	since  map[string]time.Time // when what was answered first after that was asked
	asked  map[string]int
	failed []string
}

// askAllTheTime starts to ask for logs, commands, metrics and statistics through the
// apiserver, which trusts the node's authority only, and to look at the certificate.
func (h *house) askAllTheTime() *askers {
	h.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	a := &askers{cancel: cancel, killed: time.Now(), since: map[string]time.Time{}, asked: map[string]int{}}
	ca, err := os.ReadFile(h.cluster.ClientCAFile())
	h.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	proxied := func(path string) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return h.cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + nodeName + "/proxy" + path).Do(ctx).Error()
		}
	}
	for name, ask := range map[string]func() error{
		"logs":    func() error { return h.readsLog("bystander-0") },
		"metrics": proxied("/metrics"), "statistics": proxied("/stats/summary"), "pods": proxied("/pods"),
		"exec": func() error {
			_, err := h.kubectl("exec", "bystander-1", "--", "/testapp", "stat", "path=/")
			return err
		},
		"certificate": func() error {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", strings.TrimPrefix(h.node.URL, "https://"), &tls.Config{RootCAs: roots})
			if err != nil {
				return err
			}
			return conn.Close()
		},
	} {
		a.done.Go(func() { a.keepAsking(ctx, name, ask) })
	}
	return a
}

func (a *askers) keepAsking(ctx context.Context, name string, ask func() error) {
	for ctx.Err() == nil {
		began := time.Now()
		err := ask()
		a.mu.Lock()
		a.asked[name]++
		answered, again := a.since[name]
		switch {
		case ctx.Err() != nil || a.dying || began.Before(a.killed):
		case err == nil && !again:
			a.since[name] = began
		case err != nil && again && began.After(answered):
			a.failed = append(a.failed, fmt.Sprintf("%s: %s: %v", began.Format("15:04:05.000"), name, err))
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// kill forgives what fails while something is killed, and until its answer after that.
func (a *askers) kill(something func()) {
	a.set(true)
	something()
	a.set(false)
}

func (a *askers) set(dying bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dying, a.killed, a.since = dying, time.Now(), map[string]time.Time{}
}

// asks are what is asked for.
func asks() []string {
	return []string{"logs", "metrics", "statistics", "pods", "exec", "certificate"}
}

// answered says what was not answered yet since something was killed.
func (a *askers) answered() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range asks() {
		if _, ok := a.since[name]; !ok {
			return fmt.Errorf("%s is not answered", name)
		}
	}
	return nil
}

// end returns what failed though nothing was killed.
func (a *askers) end() []string {
	a.cancel()
	a.done.Wait()
	if err := a.answered(); err != nil {
		a.failed = append(a.failed, err.Error())
	}
	for _, name := range asks() {
		if a.asked[name] < 20 {
			a.failed = append(a.failed, fmt.Sprintf("%s was asked for only %d times", name, a.asked[name]))
		}
	}
	return a.failed
}

// killNowAndThen kills the five in random order until a time, with pauses that are long
// enough to see what fails for another reason.
func (h *house) killNowAndThen(clients *askers, until time.Time) {
	h.Helper()
	seed := uint64(time.Now().UnixNano())
	h.Logf("the order of the kills: seed %d", seed)
	kills := map[string]int{}
	defer func() { h.Logf("killed: %v", kills) }()
	random := rand.New(rand.NewPCG(seed, 0))
	for time.Now().Before(until) {
		order := node.Services()
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, name := range order {
			time.Sleep(12*time.Second + time.Duration(random.IntN(5000))*time.Millisecond)
			if time.Now().After(until) {
				return
			}
			clients.kill(func() { h.killService(name) })
			kills[name]++
			h.quietly(startsWithin, "everything is answered after "+name+" was killed", clients.answered)
		}
	}
	if files, _ := filepath.Glob(h.inst.Path("pki", "*.damaged-*")); len(files) > 0 {
		h.Errorf("damaged: %v", files)
	}
}
