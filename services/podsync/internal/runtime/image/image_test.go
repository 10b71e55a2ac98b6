package image

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/reason"
)

type fake struct {
	mu      sync.Mutex
	present map[string]bool
	pulls   []*runtimeapi.AuthConfig
	most    int
	running int
	pull    func(name string, auth *runtimeapi.AuthConfig) error
	events  []string
	secrets map[string]*v1.Secret
	// asked are the specs of images that were asked for, and sandboxes what they were
	// pulled for.
	asked     []*runtimeapi.ImageSpec
	sandboxes []*runtimeapi.PodSandboxConfig
	policy    func(sandbox *runtimeapi.PodSandboxConfig) error
}

func (f *fake) ImageFor(_ context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := spec.GetImage()
	f.asked = append(f.asked, spec)
	if strings.Contains(name, "odd") {
		return nil, errors.New("disk broken")
	}
	if !f.present[name] {
		return nil, nil
	}
	return &runtimeapi.Image{Id: "sha256:" + name, Size: 7}, nil
}

func (f *fake) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	f.asked, f.sandboxes = append(f.asked, spec), append(f.sandboxes, sandbox)
	f.pulls = append(f.pulls, auth)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.running--; f.mu.Unlock() }()
	took := time.Second
	if strings.HasPrefix(spec.GetImage(), "hung") {
		took = time.Hour
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if f.policy != nil {
		if err := f.policy(sandbox); err != nil {
			return "", err
		}
	}
	if f.pull != nil {
		if err := f.pull(spec.GetImage(), auth); err != nil {
			return "", err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present[spec.GetImage()] = true
	return "sha256:" + spec.GetImage(), nil
}

func (f *fake) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	if s := f.secrets[name]; s != nil {
		return s, nil
	}
	return nil, errors.New("not found")
}

func (f *fake) Pod(_ *v1.Pod, typ, reason, message string) {
	f.Container(nil, "pod", typ, reason, message)
}

func (f *fake) Container(_ *v1.Pod, container, typ, reason, message string) {
	if container == "pod" {
		typ = "pod: " + typ
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, typ+" "+reason+" "+message)
}

func setup(parallel int) (*fake, *Puller) {
	f := &fake{present: map[string]bool{"here:1": true}, secrets: map[string]*v1.Secret{}}
	return f, New(Config{Parallel: parallel}, Deps{Client: f, Secrets: f, Events: f})
}

// want is one container's wish.
func want(image string) Request { return Request{Pod: &v1.Pod{}, Container: "c", Image: image} }

func TestPullPoliciesReasonsAndEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		image       string
		policy      v1.PullPolicy
		pulls       int
		ref, reason string
		events      []string
	}{
		"present":         {"here:1", v1.PullIfNotPresent, 0, "sha256:here:1", "", []string{`Normal Pulled Container image "here:1" already present on machine`}},
		"present, always": {"here:1", v1.PullAlways, 1, "sha256:here:1", "", []string{`Normal Pulling Pulling image "here:1"`, `Normal Pulled Successfully pulled image "here:1" in 1s (1s including waiting). Image size: 7 bytes.`}},
		"absent":          {"there:1", v1.PullIfNotPresent, 1, "sha256:there:1", "", []string{`Normal Pulling Pulling image "there:1"`, `Normal Pulled Successfully pulled image "there:1" in 1s (1s including waiting). Image size: 7 bytes.`}},
		"no tag":          {"there", "", 1, "sha256:there:latest", "", nil},
		"absent, never":   {"there:1", v1.PullNever, 0, "", ErrNeverPull, []string{`Warning ErrImageNeverPull Container image "there:1" is not present with pull policy of Never`, `Warning Failed Error: ErrImageNeverPull`}},
		"broken name":     {"What Is:This", v1.PullAlways, 0, "", ErrInvalidName, nil},
		"unknown":         {"wrong:1", v1.PullIfNotPresent, 1, "", ErrImagePull, []string{`Normal Pulling Pulling image "wrong:1"`, `Warning Failed Failed to pull image "wrong:1": no such image`, `Warning Failed Error: ErrImagePull`}},
		"runtime failure": {"odd:1", v1.PullIfNotPresent, 0, "", ErrInspect, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := setup(0)
				f.pull = func(name string, _ *runtimeapi.AuthConfig) error {
					if strings.HasPrefix(name, "wrong") {
						return errors.New("no such image")
					}
					return nil
				}
				ref, err := p.Ensure(t.Context(), Request{Pod: &v1.Pod{}, Container: "c", Image: tc.image, Policy: tc.policy})
				switch {
				case tc.reason == "" && err != nil:
					t.Errorf("failed: %v", err)
				case tc.reason != "" && reason.Of(err) != tc.reason:
					t.Errorf("error %v, want reason %q", err, tc.reason)
				}
				if tc.reason == ErrNeverPull && err.Error() != `Container image "there:1" is not present with pull policy of Never` {
					t.Errorf("the status says %q", err)
				}
				if what, ok := map[string]string{ErrInvalidName: "Failed to apply default image tag ", ErrInspect: "Failed to inspect image "}[tc.reason]; ok {
					if text := err.Error(); !strings.HasPrefix(text, what) || !slices.Contains(f.events, "Warning InspectFailed "+text) {
						t.Errorf("the status says %q, events %q", text, f.events)
					}
				}
				if ref != tc.ref || len(f.pulls) != tc.pulls {
					t.Errorf("ref %q after %d pulls, want %q after %d", ref, len(f.pulls), tc.ref, tc.pulls)
				}
				if tc.events != nil && !slices.Equal(f.events, tc.events) {
					t.Errorf("events %q, want %q", f.events, tc.events)
				}
			})
		})
	}
}

func TestPullsOfOneImageAreSharedAndOthersBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(2)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				image := []string{"a:1", "b:1", "c:1"}[i%3]
				if _, err := p.Ensure(t.Context(), want(image)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(f.pulls) != 3 || f.most != 2 {
			t.Errorf("%d pulls, %d at once; want 3 and 2", len(f.pulls), f.most)
		}
	})
}

func TestAnImageThatNobodyNeedsYetFailsWithoutAnEvent(t *testing.T) {
	for image, policy := range map[string]v1.PullPolicy{"wrong:1": v1.PullAlways, "odd:1": v1.PullIfNotPresent, "there:1": v1.PullNever, "What Is:This": v1.PullAlways} {
		synctest.Test(t, func(t *testing.T) {
			f, p := setup(0)
			f.pull = func(string, *runtimeapi.AuthConfig) error { return errors.New("no such image") }
			for _, early := range []bool{true, false} {
				f.events = nil
				if _, err := p.Ensure(t.Context(), Request{Pod: &v1.Pod{}, Container: "c", Image: image, Policy: policy, Early: early}); err == nil {
					t.Errorf("%s was found", image)
				}
				if warned := strings.Contains(strings.Join(f.events, "\n"), "Warning"); warned == early {
					t.Errorf("%s, early %v: events %q", image, early, f.events)
				}
			}
		})
	}
}

// What is pulled beforehand is what is not there: a registry that lets a node ask five
// times a second is asked once for each start.
func TestAnImageThatIsThereIsEnoughBeforeItIsNeeded(t *testing.T) {
	for policy, pulls := range map[v1.PullPolicy]int{v1.PullAlways: 1, v1.PullIfNotPresent: 0, v1.PullNever: 0} {
		synctest.Test(t, func(t *testing.T) {
			f, p := setup(0)
			r := Request{Pod: &v1.Pod{}, Container: "c", Image: "here:1", Policy: policy, Early: true}
			if _, err := p.Ensure(t.Context(), r); err != nil || len(f.events) != 0 || len(f.pulls) != 0 {
				t.Errorf("%s, early: error %v, %d pulls, events %q", policy, err, len(f.pulls), f.events)
			}
			r.Early = false
			if _, err := p.Ensure(t.Context(), r); err != nil || len(f.events) == 0 || len(f.pulls) != pulls {
				t.Errorf("%s: error %v, %d pulls, events %q", policy, err, len(f.pulls), f.events)
			}
		})
	}
}

func TestPullsAboveTheRateWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{present: map[string]bool{}}
		p := New(Config{QPS: 2, Burst: 3}, Deps{Client: f, Secrets: f, Events: f})
		began := time.Now()
		var wg sync.WaitGroup
		for _, image := range []string{"a:1", "b:1", "c:1", "d:1", "e:1"} {
			wg.Go(func() {
				if _, err := p.Ensure(t.Context(), want(image)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); len(f.pulls) != 5 || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("%d pulls in %v, want 3 at once and two more half a second apart, of a second each", len(f.pulls), took)
		}
	})
}

func TestTheImageOfAVolumeHasThePodsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		if _, err := p.Ensure(t.Context(), Request{Pod: &v1.Pod{}, Image: "here:1", Policy: v1.PullNever}); err != nil {
			t.Fatal(err)
		}
		if want := []string{`pod: Normal Pulled Container image "here:1" already present on machine`}; !slices.Equal(f.events, want) {
			t.Errorf("events %q, want %q", f.events, want)
		}
	})
}

func TestAPullThatHangsHoldsNoOtherForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := setup(1)
		go func() { _, _ = p.Ensure(t.Context(), want("hung:1")) }()
		synctest.Wait()
		began := time.Now()
		if _, err := p.Ensure(t.Context(), want("a:1")); err != nil || time.Since(began) > slowPull+time.Second {
			t.Errorf("another image came after %v, %v", time.Since(began), err)
		}
	})
}

func TestAPullThatNobodyWantsAnyMoreIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(1)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := p.Ensure(short, want("a:1"))
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || f.running != 0 || f.present["a:1"] {
			t.Errorf("err %v, %d running, present %v", err, f.running, f.present)
		}
		if _, err := p.Ensure(t.Context(), want("a:1")); err != nil {
			t.Errorf("pulled anew: %v", err)
		}
	})
}

func TestCredentialsAreTriedInOrderUntilOneIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		f.secrets["one"] = &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(
			`{"auths":{"reg.example.com":{"auth":"d3Jvbmc6cHc="},"reg.example.com/team":{"username":"right","password":"pw"},"other.example.com":{"username":"x"}}}`)}}
		f.pull = func(_ string, a *runtimeapi.AuthConfig) error {
			if a.GetUsername() != "wrong" {
				return errors.New("denied")
			}
			return nil
		}
		pod := &v1.Pod{Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "gone"}, {Name: "one"}}}}
		if _, err := p.Ensure(t.Context(), Request{Pod: pod, Container: "c", Image: "reg.example.com/team/app:1"}); err != nil {
			t.Fatal(err)
		}
		if len(f.pulls) != 2 || f.pulls[0].GetUsername() != "right" || f.pulls[1].GetPassword() != "pw" {
			t.Errorf("tried %v, want the longest match first", f.pulls)
		}
		if !strings.Contains(strings.Join(f.events, "\n"), "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed.") {
			t.Errorf("events %q", f.events)
		}
	})
}

func TestWhichCredentialsFitAnImage(t *testing.T) {
	for _, tc := range []struct {
		key, image string
		want       bool
	}{
		{"https://index.docker.io/v1/", "busybox", true},
		{"docker.io", "docker.io/library/busybox:1", true},
		{"reg.io", "reg.io:5000/a", false},
		{"reg.io:5000", "reg.io:5000/a", true},
		{"*.reg.io", "a.reg.io/x", true},
		{"*.reg.io", "a.b.reg.io/x", false},
		{"reg*.io/team", "reg7.io/team/x", true},
		{"reg.io/team", "reg.io/other/x", false},
		{"http://reg.io/", "reg.io/x", true},
	} {
		if got := len(keys{tc.key: {Username: "u"}}.match(tc.image)) == 1; got != tc.want {
			t.Errorf("%s for %s: %v, want %v", tc.key, tc.image, got, tc.want)
		}
	}
}
