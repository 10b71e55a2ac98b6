package credentialprovider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
)

// behaviour names, in the environment, what the test binary does when it is
// run as a plugin.
const behaviour = "POLYLET_TEST_PLUGIN"

// asPodsync has it run a plugin, as podsync does.
const asPodsync = "podsync"

// TestMain makes the test binary a plugin when it is asked to be one.
func TestMain(m *testing.M) {
	switch how := os.Getenv(behaviour); how {
	case "":
	case asPodsync:
		_, err := run(context.Background(), filepath.Join(os.Getenv("PLUGIN_DIR"), "plugin"), newProvider("pid", os.Getenv("PLUGIN_LOG")), &credentialproviderv1.CredentialProviderRequest{})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		os.Exit(plugin(how))
	}
	os.Exit(m.Run())
}

// plugin notes each run and the request in a file beside the program, and
// answers as its behaviour says.
func plugin(how string) int {
	request := make([]byte, 1<<16)
	n, _ := os.Stdin.Read(request)
	log, err := os.OpenFile(os.Getenv("PLUGIN_LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintf(log, "%s %s\n", strings.Join(os.Args[1:], " "), request[:n])
	_ = log.Close()
	version, kind, more := pluginV1, "Image", ""
	switch how {
	case "pid":
		if err := os.WriteFile(os.Getenv("PLUGIN_LOG")+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return 1
		}
		time.Sleep(time.Hour)
	case "fail":
		fmt.Fprintln(os.Stderr, "the cloud is away")
		return 3
	case "nothing":
		return 0
	case "garbage":
		fmt.Print("hunter2")
		return 0
	case "flood":
		fmt.Print(strings.Repeat("x", 2<<20))
		return 0
	case "hang":
		time.Sleep(time.Hour)
	case "until told":
		for range 3000 {
			if _, err := os.Stat(os.Getenv("PLUGIN_LOG") + ".end"); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	case "Registry", "Global", "Other":
		kind = how
	case "no cache":
		more = `,"cacheDuration":"0s"`
	case "old version":
		version = pluginGroup + "v1alpha1"
	}
	fmt.Printf(`{"kind":"CredentialProviderResponse","apiVersion":%q,"cacheKeyType":%q%s,"auth":{"reg.io":{"username":"u","password":"p"}}}`, version, kind, more)
	return 0
}

// bench is one plugin with its log.
type bench struct {
	log      string
	provider kubeletconfigv1.CredentialProvider
	dir      string
	accounts map[string]*v1.ServiceAccount
	tokens   []serviceaccount.Request
}

func newBench(t *testing.T, how string) *bench {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "plugin")); err != nil {
		t.Fatal(err)
	}
	b := &bench{log: filepath.Join(dir, "log"), dir: dir, accounts: map[string]*v1.ServiceAccount{}}
	b.provider = *newProvider(how, b.log)
	return b
}

// newProvider is what is configured of a plugin.
func newProvider(how, log string) *kubeletconfigv1.CredentialProvider {
	return &kubeletconfigv1.CredentialProvider{
		Name: "plugin", MatchImages: []string{"reg.io", "*.reg.io"}, APIVersion: pluginV1, Args: []string{"--flag"},
		DefaultCacheDuration: &metav1.Duration{Duration: time.Hour},
		Env:                  []kubeletconfigv1.ExecEnvVar{{Name: behaviour, Value: how}, {Name: "PLUGIN_LOG", Value: log}},
	}
}

func (b *bench) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if a := b.accounts[namespace+"/"+name]; a != nil {
		return a, nil
	}
	return nil, errors.New("not found")
}

func (b *bench) Get(_ context.Context, r serviceaccount.Request) (serviceaccount.Token, error) {
	b.tokens = append(b.tokens, r)
	return serviceaccount.Token{Value: "token-of-" + r.PodName}, nil
}

func (b *bench) set() *Set {
	return New(Config{
		BinDir: b.dir, Providers: []kubeletconfigv1.CredentialProvider{b.provider},
		Fits: func(pattern, image string) bool { return strings.HasPrefix(image, strings.TrimPrefix(pattern, "*.")) },
	}, Deps{Accounts: b, Tokens: b})
}

// runs are the requests that the plugin has seen.
func (b *bench) runs(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(b.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func podOf(name, account string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{ServiceAccountName: account}}
}

func TestAPluginIsAskedForItsImagesAndItsAnswerIsKept(t *testing.T) {
	for how, want := range map[string]int{"Image": 3, "Registry": 2, "Global": 1, "no cache": 4} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, how)
			s := b.set()
			for _, image := range []string{"reg.io/a:1", "reg.io/a:2", "reg.io/b@sha256:" + strings.Repeat("a", 64), "reg.io:5000/a:1", "other.io/a:1"} {
				answers, errs := s.Answers(t.Context(), podOf("p", ""), image)
				if image == "other.io/a:1" {
					if len(answers) != 0 || len(errs) != 0 {
						t.Errorf("%s: %v, %v", image, answers, errs)
					}
					continue
				}
				if len(errs) != 0 || len(answers) != 1 || answers[0].Auth["reg.io"].Password != "p" || answers[0].Account != nil {
					t.Fatalf("%s: %v, %v", image, answers, errs)
				}
			}
			runs := b.runs(t)
			if len(runs) != want {
				t.Errorf("it ran %d times, want %d: %q", len(runs), want, runs)
			}
			if want := `--flag {"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"reg.io/a"}`; runs[0] != want {
				t.Errorf("it was asked %s, want %s", runs[0], want)
			}
		})
	}
}

func TestAPluginThatMisbehavesGivesNothingAndItsAnswerIsNotShown(t *testing.T) {
	for how, want := range map[string]string{
		"fail": `exit status 3; it complained: "the cloud is away"`, "nothing": "answered nothing", "garbage": "not a CredentialProviderResponse",
		"flood": "larger than", "Other": "cacheKeyType", "old version": "as the request was",
	} {
		t.Run(how, func(t *testing.T) {
			answers, errs := newBench(t, how).set().Answers(t.Context(), podOf("p", ""), "reg.io/a:1")
			if len(answers) != 0 || len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), `credential provider "plugin"`) {
				t.Fatalf("%v, %v; want %q", answers, errs, want)
			}
			if text := errs[0].Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "xxx") || strings.Contains(text, `"p"`) {
				t.Errorf("the answer is shown: %s", text)
			}
		})
	}
}

func TestAPluginThatHangsIsKilledWithWhatItStarted(t *testing.T) {
	b := newBench(t, "hang")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := run(ctx, filepath.Join(b.dir, "plugin"), &b.provider, &credentialproviderv1.CredentialProviderRequest{Image: "reg.io/a"})
	if err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("error %v after %v", err, time.Since(began))
	}
}

func TestThoseWhoWantTheSameAtOnceShareOneRun(t *testing.T) {
	b := newBench(t, "no cache")
	s := b.set()
	done := make(chan []error, 8)
	for range 8 {
		go func() {
			_, errs := s.Answers(t.Context(), podOf("p", ""), "reg.io/a:1")
			done <- errs
		}()
	}
	for range 8 {
		if errs := <-done; len(errs) != 0 {
			t.Error(errs)
		}
	}
	if n := len(b.runs(t)); n == 0 || n == 8 {
		t.Errorf("it ran %d times for eight who asked at once", n)
	}
}

// withTokens makes the plugin want tokens.
// TestAPodOfManyImagesStartsFewPluginsAtOnce: all images of a pod are pulled at once,
// and each run of a plugin is a process with as much protection from the kernel's
// out-of-memory killer as podsync has.
func TestAPodOfManyImagesStartsFewPluginsAtOnce(t *testing.T) {
	b := newBench(t, "Registry")
	s := b.set()
	const images = 48
	done := make(chan []error, images)
	for i := range images {
		go func() {
			_, errs := s.Answers(t.Context(), podOf("p", ""), fmt.Sprintf("reg.io/image-%d:1", i))
			done <- errs
		}()
	}
	for range images {
		if errs := <-done; len(errs) != 0 {
			t.Error(errs)
		}
	}
	if n := len(b.runs(t)); n == 0 || n > namespacelimit.Most {
		t.Errorf("it ran %d times for %d images of one registry, want %d times at most", n, images, namespacelimit.Most)
	}
}

// TestARunThatNobodyWaitsForKeepsItsPlace: a run goes on when its pod is deleted, and
// who makes pods and deletes them would have as many under way as he likes.
func TestARunThatNobodyWaitsForKeepsItsPlace(t *testing.T) {
	b := newBench(t, "until told")
	s := b.set()
	ctx, deleted := context.WithCancel(t.Context())
	defer deleted()
	left := make(chan []error, namespacelimit.Most)
	for i := range namespacelimit.Most {
		go func() {
			_, errs := s.Answers(ctx, podOf("p", ""), fmt.Sprintf("reg.io/first-%d:1", i))
			left <- errs
		}()
	}
	for begin := time.Now(); len(b.runs(t)) < namespacelimit.Most; time.Sleep(10 * time.Millisecond) { // waits for processes
		if time.Since(begin) > 50*time.Second {
			t.Fatalf("%d runs have begun, want %d", len(b.runs(t)), namespacelimit.Most)
		}
	}
	deleted()
	for range namespacelimit.Most {
		<-left
	}
	if _, errs := s.Answers(ctx, podOf("q", ""), "reg.io/second:1"); len(errs) != 1 || !strings.Contains(errs[0].Error(), "many runs for namespace ns are under way") {
		t.Errorf("beside %d runs that go on for the namespace: %v", namespacelimit.Most, errs)
	}
	if err := os.WriteFile(b.log+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := s.Answers(t.Context(), podOf("q", ""), "reg.io/third:1"); len(errs) != 0 {
		t.Errorf("when they have ended: %v", errs)
	}
	for begin := time.Now(); s.asking.Namespaces() != 0; time.Sleep(10 * time.Millisecond) { // waits for processes
		if time.Since(begin) > 50*time.Second {
			t.Fatal("places are held, though all runs have ended")
		}
	}
}

func TestAnswersForImagesWithoutEndAreNotAllKept(t *testing.T) {
	s := newBench(t, "Image").set()
	until := time.Now().Add(time.Hour)
	for i := range 3 * mostKept {
		s.keep(fmt.Sprint(i), cached{expires: until})
	}
	if n := len(s.cache); n > mostKept {
		t.Errorf("%d answers are kept, want %d at most", n, mostKept)
	}
	if _, ok := s.cache[fmt.Sprint(3*mostKept-1)]; !ok {
		t.Error("the newest is not among them")
	}
}

func (b *bench) withTokens(kind kubeletconfigv1.ServiceAccountTokenCacheType, required bool, keys ...string) {
	b.provider.TokenAttributes = &kubeletconfigv1.ServiceAccountTokenAttributes{
		ServiceAccountTokenAudience: "my-registry", CacheType: kind, RequireServiceAccount: &required,
		RequiredServiceAccountAnnotationKeys: keys, OptionalServiceAccountAnnotationKeys: []string{"example.com/extra"},
	}
	b.accounts["ns/sa"] = &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "sa", UID: "1", Annotations: map[string]string{"example.com/role": "r", "example.com/other": "o"},
	}}
}

func TestAPluginGetsATokenOfThePodsServiceAccount(t *testing.T) {
	for kind, want := range map[kubeletconfigv1.ServiceAccountTokenCacheType]int{
		kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType: 2, kubeletconfigv1.TokenServiceAccountTokenCacheType: 3,
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t, "Image")
			b.withTokens(kind, true, "example.com/role")
			s := b.set()
			ask := func(pod string) {
				answers, errs := s.Answers(t.Context(), podOf(pod, "sa"), "reg.io/a:1")
				if len(errs) != 0 || len(answers) != 1 || answers[0].Account.Name != "sa" {
					t.Fatalf("%v, %v", answers, errs)
				}
			}
			ask("p1")
			ask("p2")
			b.accounts["ns/sa"].Annotations["example.com/role"] = "changed"
			ask("p2")
			runs := b.runs(t)
			if len(runs) != want {
				t.Errorf("it ran %d times, want %d: %q", len(runs), want, runs)
			}
			if want := `"image":"reg.io/a","serviceAccountToken":"token-of-p1","serviceAccountAnnotations":{"example.com/role":"r"}}`; !strings.HasSuffix(runs[0], want) {
				t.Errorf("it was asked %s, want …%s", runs[0], want)
			}
			if want := (serviceaccount.Request{Namespace: "ns", ServiceAccount: "sa", Audience: "my-registry", PodName: "p1", PodUID: "p1"}); b.tokens[0] != want {
				t.Errorf("token %+v, want %+v", b.tokens[0], want)
			}
		})
	}
}

func TestWithoutWhatItRequiresAPluginIsNotAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		required bool
		keys     []string
		account  string
		answers  int
		err      string
	}{
		"no account, required":     {true, nil, "", 0, ""},
		"no account, not required": {false, nil, "", 1, ""},
		"no annotation":            {true, []string{"example.com/none"}, "sa", 0, `no annotation "example.com/none"`},
		"no such account":          {true, nil, "gone", 0, "get service account ns/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "Image")
			b.withTokens(kubeletconfigv1.TokenServiceAccountTokenCacheType, tc.required, tc.keys...)
			answers, errs := b.set().Answers(t.Context(), podOf("p", tc.account), "reg.io/a:1")
			if len(answers) != tc.answers || (tc.err == "") != (len(errs) == 0) || tc.err != "" && !strings.Contains(errs[0].Error(), tc.err) {
				t.Errorf("%v, %v", answers, errs)
			}
			if n := len(b.runs(t)); n != tc.answers {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

const header = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

const one = "- name: one\n  matchImages: [reg.io]\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n"

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestTheConfigurationIsAFileOrADirectoryInOrder(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"one", "two", "three"} {
		write(t, filepath.Join(bin, name), "", 0o755)
	}
	write(t, filepath.Join(dir, "20.yaml"), header+one, 0o600)
	write(t, filepath.Join(dir, "10.json"), `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"CredentialProviderConfig","providers":[
		{"name":"two","matchImages":["x.io"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1"}]}`, 0o600)
	write(t, filepath.Join(dir, "30.yml"), header+strings.Replace(one, "one", "three", 1), 0o600)
	write(t, filepath.Join(dir, "README"), "not one of them", 0o600)
	list, err := Load(dir, bin)
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if err != nil || !slices.Equal(names, []string{"two", "one", "three"}) {
		t.Errorf("%v, %v", names, err)
	}
	if list, err = Load(filepath.Join(dir, "20.yaml"), bin); err != nil || len(list) != 1 {
		t.Errorf("a file: %v, %v", list, err)
	}
}

func TestWhatIsWrongWithAConfigurationIsSaid(t *testing.T) {
	tokens := func(more string) string {
		return one + "  tokenAttributes:\n    serviceAccountTokenAudience: a\n    cacheType: Token\n    requireServiceAccount: true\n" + more
	}
	for name, tc := range map[string]struct{ content, want string }{
		"empty":           {"", "not a CredentialProviderConfig"},
		"other kind":      {"apiVersion: v1\nkind: Pod\n", `"Pod"`},
		"no providers":    {strings.TrimSuffix(header, "providers:\n"), "at least one"},
		"unknown field":   {header + one + "  frob: 1\n", "frob"},
		"twice":           {header + one + one, "there twice"},
		"path as name":    {header + strings.Replace(one, "one", "../one", 1), "name must be"},
		"old protocol":    {header + strings.Replace(one, ".k8s.io/v1", ".k8s.io/v7", 1), "apiVersion"},
		"no images":       {header + strings.Replace(one, "[reg.io]", "[]", 1), "matchImages"},
		"no duration":     {header + strings.Replace(one, "  defaultCacheDuration: 1h\n", "", 1), "defaultCacheDuration is required"},
		"negative":        {header + strings.Replace(one, "1h", "-1h", 1), "negative"},
		"no program":      {header + strings.Replace(one, "one", "absent", 1), "--image-credential-provider-bin-dir"},
		"not executable":  {header + strings.Replace(one, "one", "plain", 1), "not an executable"},
		"token, old":      {header + strings.Replace(tokens(""), ".k8s.io/v1", ".k8s.io/v1beta1", 1), "needs apiVersion"},
		"token, no cache": {header + strings.Replace(tokens(""), "Token\n", "Pod\n", 1), "cacheType"},
		"token, key twice": {
			header + tokens("    requiredServiceAccountAnnotationKeys: [a]\n    optionalServiceAccountAnnotationKeys: [a]\n"), `"a" is empty or there twice`,
		},
		"token, keys of nobody": {
			header + strings.Replace(tokens("    requiredServiceAccountAnnotationKeys: [a]\n"), "requireServiceAccount: true", "requireServiceAccount: false", 1), "requireServiceAccount: true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "one"), "", 0o755)
			write(t, filepath.Join(dir, "plain"), "", 0o644)
			write(t, filepath.Join(dir, "config"), tc.content, 0o600)
			if _, err := Load(filepath.Join(dir, "config"), dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := Load(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no") {
		t.Errorf("an empty directory: %v", err)
	}
}

func FuzzUnderstand(f *testing.F) {
	f.Add([]byte(`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"a":{"username":"u"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := understand(data, pluginV1); err == nil && out.APIVersion != pluginV1 {
			t.Errorf("took %v", out)
		}
	})
}
