package nodestatus

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/selfsigned"
	"github.com/polylet/polylet/services/nodestatus/internal/certificate"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
)

func TestACertificateIsAskedForWithTheOneThatIsGoodAndElseWithTheBootstrapKubeconfig(t *testing.T) {
	const node, bootstrap = "the node's client certificate", "the bootstrap kubeconfig /b"
	valid := func(name string, left time.Duration) *nodecert.Pair {
		return &nodecert.Pair{Leaf: &x509.Certificate{Subject: certificate.Subject(name), NotAfter: time.Now().Add(left)}}
	}
	for name, tc := range map[string]struct {
		current   *nodecert.Pair
		bootstrap bool
		want      []string
	}{
		"a good one":               {valid("n1", time.Hour), true, []string{node, bootstrap}},
		"a good one and no other":  {valid("n1", time.Hour), false, []string{node}},
		"one that has ended":       {valid("n1", -time.Hour), true, []string{bootstrap, node}},
		"one that has ended alone": {valid("n1", -time.Hour), false, []string{node}},
		"one of another node":      {valid("n2", time.Hour), true, []string{bootstrap, node}},
		"none":                     {nil, true, []string{bootstrap}},
		"none of either":           {nil, false, nil},
	} {
		deps := Deps{}
		if tc.bootstrap {
			deps.Bootstrap = func() (kubernetes.Interface, error) { return nil, nil }
		}
		var got []string
		for _, c := range clientsFor(tc.current, certificate.ClientRequest("n1"), "/b", deps) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q; want %q", name, got, tc.want)
		}
	}
}

// kubeadm removes the bootstrap kubeconfig when it gives up, and certificates may come later.
func TestTheKubeconfigIsWrittenForEachBootstrapKubeconfigThatComes(t *testing.T) {
	dir, written := t.TempDir(), make(chan struct{}, 10)
	source := kubeclient.Source{Kubeconfig: dir + "/kubelet.conf", Bootstrap: dir + "/bootstrap.conf", Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
	credential := kubeclient.Follow(source, logr.Discard())
	deps := Deps{Credential: credential, WriteKubeconfig: func() error { written <- struct{}{}; return nil }}
	keeper := certificate.New(certificate.ClientConfig(dir, true), certificate.Deps{
		Want: func() (*x509.CertificateRequest, string) { return nil, "" }, Current: func() (*nodecert.Pair, bool) { return nil, false }, Health: health.NewTracker(logr.Discard()),
	})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	done := make(chan struct{})
	go func() { defer close(done); _ = join(ctx, deps, keeper) }()
	<-written
	const text = `{"clusters":[{"name":"c","cluster":{"server":"https://a"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}],"current-context":"x"}`
	if err := os.WriteFile(source.Bootstrap, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	credential.Look()
	<-written
	if credential.Look(); len(written) > 0 {
		t.Error("the same one counts as another")
	}
	cancel()
	<-done
}

// Each would be issued in vain, one every ten seconds.
func TestNoOtherCertificateIsAskedForWhereTheKubeconfigIsWhatIsMissing(t *testing.T) {
	const broken = `{"clusters":[{"name":"c","cluster":{"server":"https://a","certificate-authority-data":"bm90aGluZw=="}}],"users":[{"name":"u","user":{"client-certificate":"CURRENT","client-key":"CURRENT"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`
	for name, kubeconfig := range map[string]string{"there is none": "", "it cannot be read": "a: [", "its authority is none": broken} {
		dir := t.TempDir()
		source := kubeclient.Source{Kubeconfig: dir + "/kubelet.conf", Bootstrap: dir + "/bootstrap.conf", Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
		if kubeconfig != "" {
			if err := os.WriteFile(source.Kubeconfig, []byte(strings.ReplaceAll(kubeconfig, "CURRENT", source.Store.CurrentPath())), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		current := currentClient(kubeclient.Follow(source, logr.Discard()), source.Store)
		if pair, _ := current(); pair != nil {
			t.Errorf("%s: there is none yet: %v", name, pair.Leaf.Subject)
		}
		for _, left := range []time.Duration{time.Hour, -time.Hour} {
			issued, err := nodecert.Parse(selfsigned.PEM(t, &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(left)}))
			if err != nil {
				t.Fatal(err)
			}
			if err := source.Store.Write(issued, time.Now().Add(left)); err != nil {
				t.Fatal(err)
			}
			if pair, borrowed := current(); (pair != nil) != (left > 0) || borrowed {
				t.Errorf("%s, and the certificate ends in %s: %v, %v", name, left, pair != nil, borrowed)
			}
		}
	}
}

// What the process has read of the one before is of the cluster that the node has left.
func TestWhoJoinsTheNodeAgainHasNoCertificateThatCounts(t *testing.T) {
	const text = `{"clusters":[{"name":"c","cluster":{"server":"https://a"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":USER}],"current-context":"x"}`
	for name, user := range map[string]string{"a certificate": `{"client-certificate":"CURRENT","client-key":"CURRENT"}`, "a token": `{"token":"t"}`} {
		dir := t.TempDir()
		source := kubeclient.Source{Kubeconfig: dir + "/kubelet.conf", Bootstrap: dir + "/bootstrap.conf", Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
		write := func(path, user string) {
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(strings.ReplaceAll(text, "USER", user), "CURRENT", source.Store.CurrentPath())), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(source.Kubeconfig, user)
		has := strings.Contains(user, "CURRENT")
		if has {
			issued, err := nodecert.Parse(selfsigned.PEM(t, &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}))
			if err != nil {
				t.Fatal(err)
			}
			if err := source.Store.Write(issued, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		credential := kubeclient.Follow(source, logr.Discard())
		current, want := currentClient(credential, source.Store), wantServing(Config{NodeName: "n1"}, credential, peer.NewStore(peer.Host()))
		if _, why := want(); why == joinsFirst {
			t.Errorf("%s: before: a serving certificate waits", name)
		}
		if pair, _ := current(); (pair != nil) != has || isIdle(credential) == has {
			t.Errorf("%s: before: %v, idle: %v", name, pair != nil, isIdle(credential))
		}
		if err := errors.Join(os.Remove(source.Kubeconfig), os.RemoveAll(source.Store.CurrentPath())); err != nil {
			t.Fatal(err)
		}
		credential.Look()
		if pair, _ := current(); (pair != nil) != has || isIdle(credential) == has {
			t.Errorf("%s: without its files: %v, idle: %v", name, pair != nil, isIdle(credential))
		}
		write(source.Bootstrap, `{"token":"b"}`)
		credential.Look()
		if pair, _ := current(); pair != nil || isIdle(credential) {
			t.Errorf("%s: who joins it again: %v, idle: %v", name, pair != nil, isIdle(credential))
		}
		if request, why := want(); request != nil || why != joinsFirst {
			t.Errorf("%s: who joins it again asks for a serving certificate: %q", name, why)
		}
	}
}

func TestADamagedCertificateIsNoticedByWhoeverLooksHowLongItIsGood(t *testing.T) {
	store, asked := nodecert.Store{Dir: t.TempDir(), Prefix: nodecert.Client}, 0
	end := time.Now().Add(time.Hour)
	valid := noticing(nodecert.NewReader(store), func() { asked++ }, func() (time.Time, time.Time) { return time.Time{}, end })
	if _, got := valid(); asked != 0 || !got.Equal(end) {
		t.Errorf("without a file: %d times, %v", asked, got)
	}
	if err := os.WriteFile(store.CurrentPath(), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := valid(); asked != 1 || !got.Equal(end) {
		t.Errorf("damaged: %d times, %v", asked, got)
	}
	other, err := nodecert.Parse(selfsigned.PEM(t, &x509.Certificate{NotAfter: end}))
	if err != nil {
		t.Fatal(err)
	}
	for _, asks := range []int{2, 3} { // an operator puts one there, and another
		if err := store.Write(other, time.Now().Add(time.Duration(asks)*time.Second)); err != nil {
			t.Fatal(err)
		}
		valid()
		if valid(); asked != asks {
			t.Errorf("another one: %d times, want %d", asked, asks)
		}
	}
}

func TestACertificateOfAnotherNodeIsNamedWhereNobodyAsksForThisNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		of     string
		rotate bool
		told   bool
	}{
		"this node's":                  {of: "system:node:n1"},
		"another's":                    {of: "system:node:n2", told: true},
		"another's, and one is wanted": {of: "system:node:n2", rotate: true},
		"no node's":                    {of: "kubelet"},
	} {
		c := kubeclient.Credential{From: "kubelet.conf", Pair: &nodecert.Pair{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: tc.of}}}}
		got := amiss(Config{NodeName: "n1", RotateCertificates: tc.rotate}, func() kubeclient.Credential { return c })()
		named := strings.Contains(got, `"system:node:n2"`) && strings.Contains(got, `"system:node:n1" (--hostname-override`) && strings.Contains(got, "kubelet.conf")
		if (got != "") != tc.told || named != tc.told {
			t.Errorf("%s: %q", name, got)
		}
	}
}
