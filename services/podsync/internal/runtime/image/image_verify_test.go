package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/credentialprovider"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
)

// secretFor is a pull secret for reg.io with this password.
func secretFor(uid, name, password string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(uid)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"reg.io":{"username":"u","password":"` + password + `"}}}`)},
	}
}

// private lets only the password "right" pull what is on reg.io.
func private(_ string, auth *runtimeapi.AuthConfig) error {
	if auth.GetPassword() != "right" {
		return errors.New("denied")
	}
	return nil
}

// verifier is a puller with records in dir.
func verifier(f *fake, dir string) *Puller {
	return New(Config{}, Deps{Client: f, Secrets: f, Events: f, Records: pullrecord.New(pullrecord.Config{RootDir: dir})})
}

func (f *fake) wants(t *testing.T, p *Puller, policy v1.PullPolicy, secrets ...string) (string, int) {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	before := len(f.pulls)
	_, err := p.Ensure(t.Context(), Request{Pod: pod, Container: "c", Image: "reg.io/app:1", Policy: policy})
	return reason.Of(err), len(f.pulls) - before
}

func TestAPodMayUseAPrivateImageThatIsPresentOnlyWithCredentialsThatPullIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f, _ := setup(0)
		f.pull = private
		f.secrets = map[string]*v1.Secret{
			"a": secretFor("1", "a", "right"), "wrong": secretFor("2", "wrong", "x"), "copy": secretFor("3", "copy", "right"),
		}
		p := verifier(f, dir)
		for _, step := range []struct {
			what    string
			policy  v1.PullPolicy
			secrets []string
			reason  string
			pulls   int
		}{
			{"the first pulls", v1.PullIfNotPresent, []string{"a"}, "", 1},
			{"the same again does not", v1.PullIfNotPresent, []string{"a"}, "", 0},
			{"nor with Never", v1.PullNever, []string{"a"}, "", 0},
			{"none has to ask the registry", v1.PullIfNotPresent, nil, ErrImagePull, 1},
			{"none may not ask with Never", v1.PullNever, nil, ErrNeverPull, 0},
			{"wrong ones are refused by the registry", v1.PullIfNotPresent, []string{"wrong"}, ErrImagePull, 1},
			{"the same credentials in another secret are known", v1.PullIfNotPresent, []string{"copy"}, "", 0},
		} {
			if reason, pulls := f.wants(t, p, step.policy, step.secrets...); reason != step.reason || pulls != step.pulls {
				t.Errorf("%s: reason %q after %d pulls, want %q after %d", step.what, reason, pulls, step.reason, step.pulls)
			}
		}
		f.secrets["a"] = secretFor("1", "a", "rotated")
		if reason, pulls := f.wants(t, verifier(f, dir), v1.PullIfNotPresent, "a"); reason != "" || pulls != 0 {
			t.Errorf("after a restart, with the secret rotated: reason %q after %d pulls", reason, pulls)
		}
	})
}

func TestAnImageThatAnybodyCanPullIsForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := setup(0)
		f.secrets = map[string]*v1.Secret{"a": secretFor("1", "a", "right")}
		p := verifier(f, t.TempDir())
		for i, want := range []struct {
			secrets []string
			pulls   int
		}{{[]string{"a"}, 1}, {nil, 1}, {nil, 0}} {
			if reason, pulls := f.wants(t, p, v1.PullIfNotPresent, want.secrets...); reason != "" || pulls != want.pulls {
				t.Errorf("step %d: reason %q after %d pulls, want %d", i, reason, pulls, want.pulls)
			}
		}
	})
}

func TestAnImageThatWasThereBeforeIsForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := setup(0)
		f.present["reg.io/app:1"] = true
		f.pull = private
		if reason, pulls := f.wants(t, verifier(f, t.TempDir()), v1.PullNever); reason != "" || pulls != 0 {
			t.Errorf("reason %q after %d pulls", reason, pulls)
		}
		if want := `Normal Pulled Container image "reg.io/app:1" already present on machine and can be accessed by the pod`; !slices.Contains(f.events, want) {
			t.Errorf("events %q, want %s", f.events, want)
		}
	})
}

func TestAnImageWhosePullNobodySawTheEndOfIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f, _ := setup(0)
		f.pull = private
		if err := pullrecord.New(pullrecord.Config{RootDir: dir}).Begin("reg.io/app:1"); err != nil {
			t.Fatal(err)
		}
		f.present["reg.io/app:1"] = true // and then the process was killed
		if reason, pulls := f.wants(t, verifier(f, dir), v1.PullIfNotPresent); reason != ErrImagePull || pulls != 1 {
			t.Errorf("reason %q after %d pulls, want the registry to be asked", reason, pulls)
		}
	})
}

func TestAnImageWhosePullWasGivenUpIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := setup(0)
		f.pull = private
		p := verifier(f, t.TempDir())
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.Ensure(short, want("reg.io/app:1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		f.present["reg.io/app:1"] = true // the runtime was done already
		if reason, pulls := f.wants(t, p, v1.PullIfNotPresent); reason != ErrImagePull || pulls != 1 {
			t.Errorf("reason %q after %d pulls, want the registry to be asked", reason, pulls)
		}
	})
}

func TestWithoutADiskToNoteThePullNothingIsPulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "image_manager"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := setup(0)
		if reason, pulls := f.wants(t, verifier(f, dir), v1.PullAlways); reason != ErrImagePull || pulls != 0 {
			t.Errorf("reason %q after %d pulls", reason, pulls)
		}
	})
}

type plugins struct{ answers []credentialprovider.Answer }

func (p plugins) Answers(context.Context, *v1.Pod, string) ([]credentialprovider.Answer, []error) {
	return p.answers, []error{errors.New("another plugin is broken")}
}

func TestWhatAPluginGaveForAServiceAccountIsForThatAccountOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := setup(0)
		f.pull = private
		records := pullrecord.New(pullrecord.Config{RootDir: t.TempDir()})
		as := func(uid string) *Puller {
			answer := credentialprovider.Answer{
				Auth:    map[string]credentialproviderv1.AuthConfig{"reg.io": {Username: "u", Password: "right"}, "other.io": {Username: "o"}},
				Account: &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: types.UID(uid)}},
			}
			return New(Config{}, Deps{Client: f, Secrets: f, Events: f, Records: records, Providers: plugins{[]credentialprovider.Answer{answer}}})
		}
		for i, want := range []struct {
			uid   string
			pulls int
		}{{"1", 1}, {"1", 0}, {"2", 1}} {
			if reason, pulls := f.wants(t, as(want.uid), v1.PullIfNotPresent); reason != "" || pulls != want.pulls {
				t.Errorf("step %d: reason %q after %d pulls, want %d", i, reason, pulls, want.pulls)
			}
		}
	})
}

func TestTheFirstFileOfTheNodeThatCanBeReadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := func(name, content string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		f, _ := setup(0)
		p := New(Config{CredentialFiles: []string{
			filepath.Join(dir, "none"), file("broken.json", "{"), file("config.json", `{"auths":{"reg.io":{"username":"first"}}}`), file(".dockercfg", `{"reg.io":{"username":"second"}}`),
		}}, Deps{Client: f, Secrets: f, Events: f})
		if reason, _ := f.wants(t, p, v1.PullIfNotPresent); reason != "" || len(f.pulls) != 1 || f.pulls[0].GetUsername() != "first" {
			t.Errorf("reason %q, tried %v", reason, f.pulls)
		}
	})
}
