package pullrecord

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const image, ref = "reg.io:5000/team/app:1", "sha256:1"

func secret(uid, hash string) Grant {
	return Grant{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{{UID: uid, Namespace: "ns", Name: "s" + uid, CredentialHash: hash}}}
}

func pulled(t *testing.T, l *Ledger, by Grant) {
	t.Helper()
	if err := errors.Join(l.Begin(image), l.Pulled(image, ref, by)); err != nil {
		t.Fatal(err)
	}
}

func TestRecordsHaveTheKubeletsShapeAndPlace(t *testing.T) {
	dir := t.TempDir()
	l := New(Config{RootDir: dir})
	if err := l.Begin("docker.io/hello-world:latest"); err != nil {
		t.Fatal(err)
	}
	// The hash of KEP-2535's example.
	intent := filepath.Join(dir, "image_manager", "pulling", "sha256-"+Hash([]byte("docker.io/hello-world:latest")))
	data, err := os.ReadFile(intent)
	if want := `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"docker.io/hello-world:latest"}` + "\n"; err != nil || string(data) != want {
		t.Errorf("intent %s, %v; want %s", data, err, want)
	}
	if err := l.Pulled("docker.io/hello-world:latest", ref, Grant{NodePodsAccessible: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(intent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the intent is still there: %v", err)
	}
	path := filepath.Join(dir, "image_manager", "pulled", "sha256-"+Hash([]byte(ref)))
	data, err = os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), `"imageRef":"sha256:1","credentialMapping":{"docker.io/hello-world":{"nodePodsAccessible":true}}}`) {
		t.Errorf("record %s, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory's mode %v, %v", info.Mode(), err)
	}
}

func TestWhoMayUseAnImageThatIsPresent(t *testing.T) {
	known := secret("1", "h1")
	for name, tc := range map[string]struct {
		policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		allow  []string
		by     *Grant // nil: preloaded
		has    Grant
		must   bool
	}{
		"never verified":                {kubeletv1beta1.NeverVerify, nil, &known, Grant{}, false},
		"preloaded":                     {"", nil, nil, Grant{}, false},
		"ours, nothing to show":         {"", nil, &known, Grant{}, true},
		"ours, the same":                {"", nil, &known, secret("1", "h1"), false},
		"ours, rotated":                 {"", nil, &known, secret("1", "h2"), false},
		"ours, rotated to the unknown":  {"", nil, &known, secret("1", ""), true},
		"ours, copied":                  {"", nil, &known, secret("2", "h1"), false},
		"ours, another":                 {"", nil, &known, secret("2", "h2"), true},
		"ours, for all":                 {"", nil, &Grant{NodePodsAccessible: true}, Grant{}, false},
		"ours, for nobody":              {"", nil, &Grant{}, secret("1", "h1"), true},
		"preloaded, always verified":    {kubeletv1beta1.AlwaysVerify, nil, nil, secret("1", "h1"), true},
		"ours for all, always verified": {kubeletv1beta1.AlwaysVerify, nil, &Grant{NodePodsAccessible: true}, Grant{}, false},
		"preloaded, listed":             {kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.io:5000/team/app"}, nil, Grant{}, false},
		"preloaded, below a listed one": {kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.io:5000/*"}, nil, Grant{}, false},
		"preloaded, not listed":         {kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.io/*", "reg.io:5000/te*", "reg.io:5000/team"}, nil, Grant{}, true},
		"ours, listed":                  {kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.io:5000/*"}, &known, Grant{}, true},
		"account": {
			"", nil, &Grant{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{UID: "1", Name: "a"}}},
			Grant{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{UID: "1", Name: "a"}}},
			false,
		},
		"account made anew": {
			"", nil, &Grant{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{UID: "1", Name: "a"}}},
			Grant{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{UID: "2", Name: "a"}}},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{RootDir: t.TempDir(), Policy: tc.policy, Allowlist: tc.allow})
			if tc.by != nil {
				pulled(t, l, *tc.by)
			}
			if got := l.MustPull(logr.Discard(), image, ref, func() Grant { return tc.has }); got != tc.must {
				t.Errorf("must pull: %v, want %v", got, tc.must)
			}
		})
	}
}

func TestAnotherNameOfTheSameImageIsVerifiedForItself(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	pulled(t, l, Grant{NodePodsAccessible: true})
	if l.MustPull(logr.Discard(), "reg.io:5000/team/app@sha256:"+strings.Repeat("a", 64), ref, func() Grant { return Grant{} }) {
		t.Error("the same repository by digest is verified again")
	}
	if !l.MustPull(logr.Discard(), "mirror.io/app:1", ref, func() Grant { return Grant{} }) {
		t.Error("another repository is not verified")
	}
}

func TestADamagedRecordGrantsNothingAndIsReplacedByThePull(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "cut": `{"kind":"ImagePulledRecord"`, "unknown field": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:1","all":true}`,
		"other version": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v9","imageRef":"sha256:1"}`,
		"other image":   `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:2","credentialMapping":{"reg.io:5000/team/app":{"nodePodsAccessible":true}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{RootDir: t.TempDir()})
			pulled(t, l, Grant{NodePodsAccessible: true})
			if err := os.WriteFile(file(l.pulled, ref), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			ask := func() bool {
				return l.MustPull(logr.Discard(), image, ref, func() Grant { return secret("1", "h") })
			}
			if !ask() {
				t.Error("it granted access")
			}
			pulled(t, l, secret("1", "h"))
			if ask() {
				t.Error("it was not replaced")
			}
		})
	}
}

func TestWhatWasBeingPulledAtACrashIsTrackedWithoutAGrant(t *testing.T) {
	dir := t.TempDir()
	crashed := New(Config{RootDir: dir})
	if err := errors.Join(crashed.Begin(image), crashed.Begin("reg.io/absent:1")); err != nil {
		t.Fatal(err)
	}
	l := New(Config{RootDir: dir})
	away := errors.New("the runtime is away")
	if err := l.Recover(logr.Discard(), func(string) (string, error) { return "", away }); !errors.Is(err, away) {
		t.Fatalf("error %v", err)
	}
	if n, _ := l.Count(); n != 2 {
		t.Errorf("%d intents are left though nothing is known", n)
	}
	err := l.Recover(logr.Discard(), func(name string) (string, error) {
		return map[string]string{image: ref}[name], nil
	})
	intents, records := l.Count()
	if err != nil || intents != 0 || records != 1 {
		t.Errorf("%d intents, %d records, %v", intents, records, err)
	}
	if !l.MustPull(logr.Discard(), image, ref, func() Grant { return secret("1", "h") }) {
		t.Error("it is not verified")
	}
}

func TestRecordsOfTheFirstVersionAreBroughtUpToDate(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	pulled(t, l, Grant{NodePodsAccessible: true})
	path := file(l.pulled, ref)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "v1beta1", "v1alpha1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Recover(logr.Discard(), func(string) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(path)
	if err != nil || string(again) != string(data) {
		t.Errorf("%s, %v; want %s", again, err, data)
	}
}

func TestOnePullOfSeveralThatFailsLeavesTheIntentOfTheOthers(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	if err := errors.Join(l.Begin(image), l.Begin(image), l.Failed(image)); err != nil {
		t.Fatal(err)
	}
	if n, _ := l.Count(); n != 1 {
		t.Errorf("%d intents after one of two", n)
	}
	if err := l.Failed(image); err != nil {
		t.Fatal(err)
	}
	if n, _ := l.Count(); n != 0 {
		t.Errorf("%d intents after both", n)
	}
}

func TestAPullWhoseEndNobodyKnowsIsVerifiedUntilOneSucceeds(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	must := func() bool { return l.MustPull(logr.Discard(), image, ref, func() Grant { return Grant{} }) }
	if err := errors.Join(l.Begin(image), l.Unsure(image)); err != nil {
		t.Fatal(err)
	}
	if !must() {
		t.Error("the image passes for preloaded")
	}
	if err := errors.Join(l.Begin(image), l.Failed(image)); err != nil {
		t.Fatal(err)
	}
	if !must() {
		t.Error("after another pull that failed for sure, the image passes for preloaded")
	}
	pulled(t, l, Grant{NodePodsAccessible: true})
	if n, _ := l.Count(); n != 0 || must() {
		t.Errorf("%d intents after a pull that succeeded", n)
	}
}

func TestRecordsGoWithTheirImagesUnlessTheyAreNew(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	pulled(t, l, Grant{NodePodsAccessible: true})
	for _, step := range []struct {
		refs  []string
		until time.Time
		left  int
	}{{[]string{ref}, time.Now().Add(time.Hour), 1}, {nil, time.Now().Add(-time.Hour), 1}, {nil, time.Now().Add(time.Hour), 0}} {
		if err := l.Prune(step.refs, step.until); err != nil {
			t.Fatal(err)
		}
		if _, n := l.Count(); n != step.left {
			t.Errorf("with %v until %v %d records are left, want %d", step.refs, step.until, n, step.left)
		}
	}
}

func TestTheNamesOfRepositories(t *testing.T) {
	for image, want := range map[string]string{
		"busybox": "busybox", "busybox:1": "busybox", "reg:5000/a": "reg:5000/a", "reg:5000/a:1": "reg:5000/a",
		"hello-world:latest@sha256:91fb4b041da273d5a3273b6d587d62d518300a6ad268b28628f74997b93171b2": "hello-world",
		"Not An Image": "Not An Image",
	} {
		if got := Repository(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:2","credentialMapping":{"a":{"nodePodsAccessible":true}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := parse[kubeletv1beta1.ImagePulledRecord](data, "f", kindPulled)
		if err == nil && rec.Kind != kindPulled {
			t.Errorf("took a %q", rec.Kind)
		}
	})
}

func TestDamagedRecordsAreSetAsideAndGrantNothingMeanwhile(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut":   func(path string) error { return os.Truncate(path, 20) },
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o755))
		},
		"a pipe": func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{RootDir: t.TempDir()})
			pulled(t, l, Grant{NodePodsAccessible: true})
			if err := errors.Join(l.Begin("gone:1"), l.Pulled("gone:1", "sha256:2", Grant{}), damage(file(l.pulled, ref)), damage(file(l.pulled, "sha256:2"))); err != nil {
				t.Fatal(err)
			}
			verified := func(when string) {
				if !l.MustPull(logr.Discard(), image, ref, func() Grant { return secret("1", "h") }) {
					t.Errorf("%s: it grants access", when)
				}
			}
			verified("damaged")
			err := l.Prune([]string{ref}, time.Now().Add(-time.Hour))
			for _, want := range []string{file(l.pulled, ref), file(l.pulled, "sha256:2"), "set aside as", "verified"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
			verified("set aside")
			if err := l.Prune([]string{ref}, time.Now().Add(-time.Hour)); err != nil {
				t.Errorf("it is told again: %v", err)
			}
			if aside, _ := filepath.Glob(filepath.Join(l.pulled, "*.damaged-*")); len(aside) != 2 {
				t.Errorf("set aside are %q", aside)
			}
			if _, n := l.Count(); n != 1 {
				t.Errorf("%d records are left, want that of the image that is present", n)
			}
			pulled(t, l, Grant{NodePodsAccessible: true})
			if l.MustPull(logr.Discard(), image, ref, func() Grant { return Grant{} }) {
				t.Error("it is not rebuilt by a pull")
			}
		})
	}
}

func TestADirectoryInTheIntentsPlaceStopsNoPull(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	if err := os.MkdirAll(filepath.Join(file(l.pulling, image), "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	pulled(t, l, Grant{NodePodsAccessible: true})
	if l.MustPull(logr.Discard(), image, ref, func() Grant { return Grant{} }) {
		t.Error("the image is still verified")
	}
}

// Whoever makes pods names one image as often as they like, and makes secrets for it.
func TestARecordIsBoundedHoweverManyNamesAndSecretsAnImageHas(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	many := secret("0", "h0")
	for i := range mostPulledWith + 50 {
		many.KubernetesSecrets = append(many.KubernetesSecrets, secret(fmt.Sprintf("5%05d", i), fmt.Sprint("o", i)).KubernetesSecrets...)
	}
	rec := &kubeletv1beta1.ImagePulledRecord{TypeMeta: typeMeta(kindPulled), ImageRef: ref, CredentialMapping: map[string]Grant{Repository(image): many}}
	for i := range mostNames + 50 {
		rec.CredentialMapping[fmt.Sprintf("reg.io/n%04d", i)] = secret("1", "h")
	}
	if err := l.write(l.pulled, ref, rec); err != nil {
		t.Fatal(err)
	}
	must := func(name string, has Grant) bool {
		return l.MustPull(logr.Discard(), name, ref, func() Grant { return has })
	}
	// The newest comes first in the order in which they are left out.
	for name, by := range map[string]Grant{"a.io/new:1": secret("1", "h"), image: secret("1", "new")} {
		if err := errors.Join(l.Begin(name), l.Pulled(name, ref, by)); err != nil {
			t.Fatal(err)
		}
		if must(name, by) {
			t.Errorf("%s is not in the record right after its pull", name)
		}
	}
	got, err := l.read(ref)
	if err != nil || len(got.CredentialMapping) != mostNames {
		t.Errorf("%d names, %v", len(got.CredentialMapping), err)
	}
	if n := len(got.CredentialMapping[Repository(image)].KubernetesSecrets); n > mostPulledWith {
		t.Errorf("%d secrets", n)
	}
	if !must("reg.io/n0000:1", secret("1", "h")) {
		t.Error("a name that is in no record grants access")
	}
	if refs, err := l.Refs(); err != nil || !slices.Equal(refs, []string{ref}) {
		t.Errorf("references %v, %v", refs, err)
	}
}

// What the system says when it cannot read says nothing of the record.
func TestARecordThatCannotBeReadIsToldFromADamagedOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(path, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, damaged := decode[kubeletv1beta1.ImagePulledRecord](path, kindPulled)
	_, odd := decode[kubeletv1beta1.ImagePulledRecord](filepath.Dir(path), kindPulled)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no JSON": {damaged, false}, "a directory": {odd, false}, "none": {nil, false},
		"the disk": {&os.PathError{Op: "read", Path: path, Err: unix.EIO}, true}, "no descriptors": {fmt.Errorf("read: %w", unix.EMFILE), true},
	} {
		if got := unread(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestARecordThatIsSlowToWriteKeepsNoOtherPullWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{RootDir: t.TempDir()})
		store, slow := l.store, make(chan struct{})
		l.store = func(path string, data []byte, mode os.FileMode) error {
			if strings.Contains(string(data), "slow") {
				<-slow
			}
			return store(path, data, mode)
		}
		began := make(chan error, 1)
		go func() { began <- l.Begin("slow:1") }()
		synctest.Wait()
		if err := l.Begin("fast:1"); err != nil {
			t.Error(err)
		}
		if err := l.Pulled("fast:1", "sha256:fast", Grant{NodePodsAccessible: true}); err != nil {
			t.Error(err)
		}
		if l.MustPull(logr.Discard(), "fast:1", "sha256:fast", func() Grant { return Grant{} }) {
			t.Error("what was pulled for all is pulled again")
		}
		close(slow)
		if err := <-began; err != nil {
			t.Error(err)
		}
		if err := l.Failed("slow:1"); err != nil {
			t.Error(err)
		}
		if intents, pulled := l.Count(); intents != 0 || pulled != 1 {
			t.Errorf("%d intents and %d records are left", intents, pulled)
		}
	})
}

// A record that is written while old ones are looked for is none of them.
func TestARecordThatBecomesNewWhileOldOnesAreRemovedStays(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	if err := l.Pulled("app:1", "sha256:app", Grant{NodePodsAccessible: true}); err != nil {
		t.Fatal(err)
	}
	if err := l.prune("sha256:app", time.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	if _, pulled := l.Count(); pulled != 1 {
		t.Error("a record newer than the list was removed")
	}
	if err := l.prune("sha256:app", time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if _, pulled := l.Count(); pulled != 0 {
		t.Error("an old record stayed")
	}
}

func TestEveryCredentialOfPullsAtOnceIsRemembered(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := l.Begin("app:1"); err != nil {
				t.Error(err)
			}
			by := Grant{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{{UID: fmt.Sprint(i), Namespace: "n", Name: "s", CredentialHash: fmt.Sprint(i)}}}
			if err := l.Pulled("app:1", "sha256:app", by); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	rec, err := l.read("sha256:app")
	if err != nil || len(rec.CredentialMapping["app"].KubernetesSecrets) != 8 {
		t.Errorf("remembered %+v, %v", rec, err)
	}
	if intents, _ := l.Count(); intents != 0 {
		t.Errorf("%d intents are left", intents)
	}
}

func TestAnImageWhosePullEndsRightNowIsNoPreloadedOne(t *testing.T) {
	l := New(Config{RootDir: t.TempDir()})
	for i := range 400 {
		// One look at the moment when the record is there and the intent still goes.
		image, ref := fmt.Sprintf("reg.io/app%d:1", i), fmt.Sprint("sha256:", i)
		if err := l.Begin(image); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- l.Pulled(image, ref, secret("1", "h1")) }()
		for looking := true; looking; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				looking = false
			default:
			}
			if !l.MustPull(logr.Discard(), image, ref, func() Grant { return Grant{} }) {
				t.Fatalf("image %d passed for a preloaded one while its pull ended", i)
			}
		}
	}
}
