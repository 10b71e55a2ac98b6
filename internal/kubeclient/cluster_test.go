package kubeclient

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/health"
)

// runs is what Run of a follower returns in so long a time; nil when it goes on.
func runs(t *testing.T, f *Follower, within time.Duration) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.Run(t.Context(), health.NewTracker(logr.Discard())) }()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		return nil
	}
}

// asked is how many requests came.
func (a *apiserver) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.names)
}

func (a *apiserver) refuse(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = name
}

// reset is what kubeadm reset does to the files.
func reset(t *testing.T, s Source) {
	t.Helper()
	if err := errors.Join(os.Remove(s.Kubeconfig), os.RemoveAll(s.Store.Dir)); err != nil {
		t.Fatal(err)
	}
}

// joined is a node that asks an apiserver as "first", with a bootstrap kubeconfig that is
// not there any more.
func joined(t *testing.T, a *apiserver) (Source, *Follower) {
	t.Helper()
	s := joining(t)
	s.Kubeconfig = a.source(t, time.Now().Add(time.Hour)).Kubeconfig
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	store(t, s, "first", time.Hour)
	f := Follow(s, logr.Discard())
	if got := ask(t, client(t, f), "https://whatever/x"); got != "first" {
		t.Fatalf("asked as %q", got)
	}
	return s, f
}

func store(t *testing.T, s Source, name string, left time.Duration) {
	t.Helper()
	at := time.Now().Add(time.Duration(len(name)) * time.Second) // another file each
	if err := errors.Join(os.MkdirAll(s.Store.Dir, 0o755), s.Store.Write(made(t, name, time.Now().Add(left)), at)); err != nil {
		t.Fatal(err)
	}
}

// kubeadm reset does not stop an agent of a machine without an init system.
func TestANodeWhoseFilesWereRemovedJoinsWhereANewBootstrapKubeconfigLeads(t *testing.T) {
	for name, inOrder := range map[string]bool{"the files go first": true, "the bootstrap kubeconfig comes first": false} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t), serve(t)
			s, f := joined(t, a)
			told := 0
			f.OnBootstrap(func() { told++ })
			steps := []func(){func() { reset(t, s) }, func() { b.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"}) }}
			if !inOrder {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps {
				if f.Rejoins() {
					t.Error("it joins again with one half")
				}
				step()
				f.Look()
			}
			if !f.Rejoins() || inOrder && told != 1 || !inOrder && told != 2 {
				t.Errorf("it joins: %v, told %d times", f.Rejoins(), told)
			}
			if p := f.Credential().Problem; !strings.Contains(p, "nodestatus asks for one with bootstrap kubeconfig "+s.Bootstrap) || !strings.Contains(p, strings.TrimPrefix(a.URL, "https://")+" is asked with what was read before") {
				t.Errorf("while it is waited for: %q", p)
			}
			if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
				t.Errorf("the kubeconfig: %v, %v", written, err)
			}
			if err := os.Remove(s.Bootstrap); err != nil { // kubeadm join gives up
				t.Fatal(err)
			}
			f.Look()
			bootstrap, err := f.BootstrapClient("test")
			if err != nil || !f.Rejoins() {
				t.Fatalf("there is nothing to ask with: %v", err)
			}
			if got := bootstrap.CoreV1().RESTClient().Get().URL().Host; "https://"+got != b.URL {
				t.Errorf("it asks %s", got)
			}
			if got := ask(t, client(t, f), "https://whatever/x"); got != "first" {
				t.Errorf("meanwhile it asks as %q", got)
			}
			if err := runs(t, f, 100*time.Millisecond); err != nil {
				t.Errorf("it ends before it has joined: %v", err)
			}
			store(t, s, "joined", time.Hour)
			f.Look()
			if _, err := client(t, f).Get("https://whatever/x"); !errors.Is(err, ErrLeft) {
				t.Errorf("what the other cluster answers counts for what was read of the first: %v", err)
			}
			if err := runs(t, f, 30*time.Second); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), strings.TrimPrefix(a.URL, "https://")) || !strings.Contains(err.Error(), strings.TrimPrefix(b.URL, "https://")) {
				t.Errorf("it ends with %v", err)
			}
			if got := ask(t, client(t, Follow(s, logr.Discard())), "https://whatever/x"); got != "joined" || b.asked() == 0 {
				t.Errorf("begun anew it asks as %q", got)
			}
		})
	}
}

// Its token may have ended, and it may lead to where the node was once.
func TestABootstrapKubeconfigThatWasLeftFromBeforeIsNotJoinedWithWhenFilesGo(t *testing.T) {
	a, b := serve(t), serve(t)
	s := joining(t)
	b.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	s.Kubeconfig = a.source(t, time.Now().Add(time.Hour)).Kubeconfig
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	store(t, s, "first", time.Hour)
	f := Follow(s, logr.Discard())
	c := client(t, f)
	_ = ask(t, c, "https://whatever/x")
	if err := os.RemoveAll(s.Store.Dir); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if p := f.Credential().Problem; f.Rejoins() || !strings.Contains(p, "put the files back") || strings.Contains(p, "nodestatus asks for one") {
		t.Errorf("it joins: %v; %q", f.Rejoins(), p)
	}
	if got := ask(t, c, "https://whatever/x"); got != "first" {
		t.Errorf("asked as %q", got)
	}
	store(t, s, "again", time.Hour)
	if !f.Look() || f.Credential().Problem != "" {
		t.Errorf("they are there again: %q", f.Credential().Problem)
	}
}

func TestAProcessEndsWhenAnotherClusterAnswersAndGoesOnWithTheSame(t *testing.T) {
	first, other := string(made(t, "authority", time.Now().Add(time.Hour)).Cert), string(made(t, "another authority", time.Now().Add(time.Hour)).Cert)
	text := strings.NewReplacer("A", first, "B", other)
	for name, tc := range map[string]struct {
		ca, next string // in letters: A is the authority of before
		host     string
		rejoined bool
		ends     bool
	}{
		"another address":                       {ca: "A", next: "A", host: "https://b"},
		"another path":                          {ca: "A", next: "A", host: "https://a/k8s/clusters/c-2", ends: true},
		"another authority beside the first":    {ca: "A", next: "BA", host: "https://a"},
		"another authority":                     {ca: "A", next: "B", host: "https://a", ends: true},
		"no authority, and the same address":    {next: "A", host: "https://a"},
		"no authority, and another address":     {host: "https://b", ends: true},
		"the authority is gone, address too":    {ca: "A", host: "https://b", ends: true},
		"the same address and no authority yet": {ca: "A", host: "https://a"},
		"the node has joined again":             {ca: "A", next: "A", host: "https://a", rejoined: true, ends: true},
	} {
		f := Follow(Source{Kubeconfig: "/none"}, logr.Discard())
		of := func(host, ca string) *generation {
			g, err := newGeneration(Credential{Config: &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(text.Replace(ca))}}}, readings{})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		if err := f.hears(of("https://a", tc.ca), true); err != nil {
			t.Errorf("%s: with the first it ends: %v", name, err)
		}
		fresh := of(tc.host, tc.next)
		fresh.rejoined = tc.rejoined
		if err := f.hears(fresh, true); errors.Is(err, ErrLeft) != tc.ends {
			t.Errorf("%s: it ends: %v", name, err)
		}
	}
}

func TestAKubeconfigThatWasWrittenWronglyAndIsCorrectedEndsNothing(t *testing.T) {
	a := serve(t)
	s := a.source(t, time.Now().Add(time.Hour))
	f := Follow(s, logr.Discard())
	c := client(t, f)
	_ = ask(t, c, "https://whatever/x")
	good, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := clientcmd.Load(good)
	if err != nil {
		t.Fatal(err)
	}
	wrong.Clusters["c"].CertificateAuthorityData = made(t, "another", time.Now().Add(time.Hour)).Cert
	if err := clientcmd.WriteToFile(*wrong, s.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if _, err := c.Get("https://whatever/x"); err == nil || errors.Is(err, ErrLeft) {
		t.Errorf("with another authority: %v", err)
	}
	if err := os.WriteFile(s.Kubeconfig, good, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if got := ask(t, c, "https://whatever/x"); got != "first" {
		t.Errorf("asked as %q", got)
	}
	if err := runs(t, f, 100*time.Millisecond); err != nil {
		t.Errorf("it ends: %v", err)
	}
}

// answering answers each request at once.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// Whoever watches lists anew when the credential is another one, all at the same moment.
func TestOfAnswersThatComeTogetherFromAnotherClusterNoneCounts(t *testing.T) {
	for range 2000 {
		f := Follow(Source{Kubeconfig: "/none"}, logr.Discard())
		of := func(host string) *generation {
			return &generation{Credential: Credential{Config: &rest.Config{Host: host}}, base: &url.URL{Scheme: "https", Host: host}, transport: answering{}, requests: newRequests()}
		}
		_ = f.hears(of("a"), true)
		other, begin, counted := of("b"), make(chan struct{}), atomic.Int32{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://whatever/x", nil)
				<-begin
				if resp, err := f.sendOn(other, req); err == nil {
					counted.Add(1)
					_ = resp.Body.Close()
				}
			})
		}
		close(begin)
		all.Wait()
		if n := counted.Load(); n > 0 {
			t.Fatalf("%d answers count for what was read of the first", n)
		}
	}
}

// It may not know the node yet, or the certificate may be another cluster's still.
func TestAnotherClusterThatRefusesEndsNothingUntilItAnswers(t *testing.T) {
	a := serve(t)
	s := a.source(t, time.Now().Add(time.Hour))
	f := Follow(s, logr.Discard())
	c := client(t, f)
	_ = ask(t, c, "https://whatever/x")
	a.URL += "/k8s/clusters/c-2" // another one behind the same server
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	a.refuse("first")
	f.Look()
	if got := ask(t, c, "https://whatever/x"); got != "Unauthorized" || f.leaves() != nil {
		t.Errorf("refused with %q it ends: %v", got, f.leaves())
	}
	a.refuse("")
	if _, err := c.Get("https://whatever/x"); !errors.Is(err, ErrLeft) {
		t.Errorf("answered: %v", err)
	}
	if _, err := c.Get("https://whatever/x"); !errors.Is(err, ErrLeft) {
		t.Errorf("answered again: %v", err)
	}
}

// It is empty for a moment, and where the bootstrap kubeconfig leads is where the node was.
func TestAKubeconfigThatIsBeingWrittenTakesNothingAwayThatWorks(t *testing.T) {
	a, b := serve(t), serve(t)
	s := a.source(t, time.Now().Add(time.Hour))
	s.Bootstrap = s.Kubeconfig + ".bootstrap"
	b.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	f := Follow(s, logr.Discard())
	c := client(t, f)
	if got := ask(t, c, "https://whatever/x"); got != "first" {
		t.Fatalf("asked as %q", got)
	}
	if err := os.Truncate(s.Kubeconfig, 0); err != nil {
		t.Fatal(err)
	}
	if f.Look() {
		t.Error("it is another credential")
	}
	if p := f.Credential().Problem; !strings.Contains(p, s.Kubeconfig+" cannot be used") || !strings.Contains(p, "is asked with what was read before") {
		t.Errorf("it says %q", p)
	}
	if got := ask(t, c, "https://whatever/x"); got != "first" || b.asked() > 0 {
		t.Errorf("asked as %q, the other %d times", got, b.asked())
	}
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	if f.Look(); f.Credential().Problem != "" {
		t.Errorf("it is there, and it says %q", f.Credential().Problem)
	}
}

func TestAProcessThatIsRunningEndsAtOnceWhenAnotherClusterHasAnswered(t *testing.T) {
	a := serve(t)
	s, f := joined(t, a)
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- f.Run(t.Context(), health.NewTracker(logr.Discard())) }()
	a.URL += "/k8s/clusters/c-2" // another one behind the same server
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	f.Look()
	if _, err := client(t, f).Get("https://whatever/x"); !errors.Is(err, ErrLeft) {
		t.Errorf("answered: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrLeft) {
		t.Errorf("it ends with %v", err)
	}
	if time.Since(began) >= lookAgain {
		t.Error("it goes on until the next look at the files")
	}
}
