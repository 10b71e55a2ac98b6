package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/source/validate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Sink, a Reporter and a Mirrors that keeps what it is told.
type recorder struct {
	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	mirrors map[types.UID]*v1.Pod
	ready   []string
	log     []string
	health  map[string]string
	events  []string
	sets    int
}

func newRecorder() *recorder {
	return &recorder{pods: map[types.UID]*v1.Pod{}, mirrors: map[types.UID]*v1.Pod{}, health: map[string]string{}}
}

func (r *recorder) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) Set(pod *v1.Pod, src string) {
	r.do(func() { r.pods[pod.UID] = pod; r.sets++; r.log = append(r.log, "set "+pod.Name) })
}
func (r *recorder) Remove(uid types.UID, src string) {
	r.do(func() {
		if r.pods[uid] != nil {
			r.log = append(r.log, "remove "+r.pods[uid].Name)
		}
		delete(r.pods, uid)
	})
}
func (r *recorder) Ready(src string) {
	r.do(func() { r.ready = append(r.ready, src); r.log = append(r.log, "ready "+src) })
}
func (r *recorder) SetStatic(*v1.Pod)      {}
func (r *recorder) RemoveStatic(types.UID) {}
func (r *recorder) StaticReady()           {}
func (r *recorder) SetMirror(pod *v1.Pod)  { r.do(func() { r.mirrors[pod.UID] = pod }) }
func (r *recorder) RemoveMirror(uid types.UID) {
	r.do(func() { delete(r.mirrors, uid) })
}
func (r *recorder) MirrorsReady() {}

type reporter struct{ *recorder }

// noter is an Events.
type noter struct{ *recorder }

func (n noter) Pod(pod *v1.Pod, _, reason, message string) {
	n.do(func() { n.events = append(n.events, "pod "+pod.Name+" "+reason+" "+message) })
}

func (n noter) Node(_, reason, message string) {
	n.do(func() { n.events = append(n.events, "node "+reason+" "+message) })
}

func (r reporter) Set(name string, ready bool, message string) {
	r.do(func() {
		delete(r.health, name)
		if !ready {
			r.health[name] = message
		}
	})
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, pod := range r.pods {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}

// byHand is a Notifier that tells when the test says so.
type byHand struct{ poke chan struct{} }

func (b byHand) Notify(ctx context.Context, _ string, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.poke:
			changed()
		}
	}
}

type fileBench struct {
	*testing.T
	*recorder
	dir  string
	poke chan struct{}
}

func startFiles(t *testing.T, prepare func(dir string)) *fileBench {
	b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
	if prepare != nil {
		prepare(b.dir)
	}
	s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: byHand{b.poke}, Health: reporter{b.recorder}, Events: noter{b.recorder}, Mirrors: b.recorder})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, b); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return b
}

func (b *fileBench) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	b.changed()
}

func (b *fileBench) remove(name string) {
	if err := os.Remove(filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
	b.changed()
}

func (b *fileBench) changed() {
	b.poke <- struct{}{}
	time.Sleep(settle)
	synctest.Wait()
}

func podText(name, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers: [{name: c, image: \"i:1\"}]\n" + more
}

func (b *fileBench) want(names ...string) {
	b.Helper()
	if got := b.names(); !slices.Equal(got, names) {
		b.Fatalf("pods %v, want %v; health %v", got, names, b.health)
	}
}

func TestFilesBecomeDefaultedPodsBeforeTheSourceIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, func(dir string) {
			os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(podText("a", "")), 0o600)
			os.WriteFile(filepath.Join(dir, ".hidden"), []byte(podText("h", "")), 0o600)
			os.Mkdir(filepath.Join(dir, "sub"), 0o700)
		})
		b.want("a-node")
		if !slices.Equal(b.log, []string{"set a-node", "ready file"}) {
			t.Fatalf("order: %v", b.log)
		}
		for uid, pod := range b.pods {
			if pod.Namespace != "default" || pod.Spec.NodeName != "Node" || pod.Annotations[AnnotationHash] != string(uid) ||
				pod.Annotations[AnnotationSource] != File || pod.Annotations[AnnotationSeen] == "" || len(uid) != 32 {
				t.Errorf("metadata: %+v", pod.ObjectMeta)
			}
			if pod.Spec.DNSPolicy != v1.DNSClusterFirst || pod.Spec.Tolerations[0].Effect != v1.TaintEffectNoExecute || pod.Status.Phase != v1.PodPending {
				t.Errorf("defaults: %+v", pod.Spec)
			}
			if !IsStatic(pod) || IsMirror(pod) {
				t.Error("it does not count as static")
			}
		}
	})
}

func TestAChangedFileIsAnotherPodAndAnUnchangedOneIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		b.write("a.yaml", podText("a", ""))
		b.write("a.yaml", podText("a", ""))
		time.Sleep(time.Hour)
		if b.sets != 1 {
			t.Fatalf("set %d times", b.sets)
		}
		b.write("a.yaml", podText("a", "  hostNetwork: true\n"))
		b.want("a-node")
		if !slices.Equal(b.log[1:], []string{"set a-node", "remove a-node", "set a-node"}) {
			t.Fatalf("order: %v", b.log)
		}
		b.remove("a.yaml")
		b.want()
	})
}

func TestAUIDOfTheManifestIsKeptAndAnUpdateKeepsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: abc}\nspec:\n  containers: [{name: c, image: \"i:1\"}]\n"
		b.write("a.yaml", text)
		b.write("a.yaml", text+"  hostname: x\n")
		if b.pods["abc"] == nil || b.pods["abc"].Spec.Hostname != "x" || slices.Contains(b.log, "remove a-node") {
			t.Fatalf("%v %v", b.log, b.pods)
		}
	})
}

func TestABrokenFileIsOneClearErrorAndStopsNothing(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":         {"a: [", "neither YAML nor JSON"},
		"empty":           {"", "it is empty"},
		"no kind":         {"metadata: {}", "apiVersion, kind"},
		"another kind":    {"apiVersion: v1\nkind: Service\nmetadata: {name: s}", "it holds a Service"},
		"a wrong type":    {podText("x", "  hostNetwork: 3\n"), "hostNetwork"},
		"no name":         {podText("''", ""), "metadata.name: Required"},
		"no containers":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}", "spec.containers: Required"},
		"a bad name":      {podText("A_b", ""), "metadata.name: Invalid"},
		"a missing mount": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}", "spec.containers[0].volumeMounts[0].name: Not found"},
		"two of a name":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}, {name: c, image: i}]}", "spec.containers[1].name: Duplicate"},
		"no image":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}", "spec.containers[0].image: Required"},
		"a secret":        {podText("x", "  volumes: [{name: s, secret: {secretName: x}}]\n"), "spec.volumes[0].secret: Forbidden"},
		"an account":      {podText("x", "  serviceAccountName: x\n"), "spec.serviceAccountName: Forbidden"},
		"a probe":         {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i, livenessProbe: {httpGet: {port: 0}}}]}", "livenessProbe.httpGet.port: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startFiles(t, nil)
				b.write("good.yaml", podText("good", ""))
				b.write("x.yaml", c.text)
				b.want("good-node")
				message := b.health["static pods"]
				if !strings.Contains(message, c.want) || !strings.Contains(message, filepath.Join(b.dir, "x.yaml")) {
					t.Fatalf("health says %q, want the file and %q", message, c.want)
				}
				b.write("z.yaml", podText("z", ""))
				b.want("good-node", "z-node")
				b.write("x.yaml", podText("x", ""))
				b.want("good-node", "x-node", "z-node")
				if b.health["static pods"] != "" {
					t.Fatalf("still unhealthy: %v", b.health)
				}
			})
		})
	}
}

func TestAPodGoesOnWhileItsFileIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		b.write("a.yaml", podText("a", ""))
		b.write("a.yaml", "broken: [")
		b.want("a-node")
		if len(b.events) != 1 || !strings.HasPrefix(b.events[0], "node FailedValidation static pod manifest ") || !strings.Contains(b.events[0], "a.yaml") {
			t.Fatalf("events %q; a broken file is told once on the node", b.events)
		}
		if b.health["static pods"] == "" {
			t.Fatal("nobody is told")
		}
		b.remove("a.yaml")
		b.want()
		if b.health["static pods"] != "" {
			t.Fatal("the error outlives the file")
		}
	})
}

func TestOfTwoFilesOfOneNameTheFirstCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		b.write("b.yaml", podText("a", "  hostNetwork: true\n"))
		b.write("c.yaml", podText("a", ""))
		b.want("a-node")
		if !strings.Contains(b.health["static pods"], "c.yaml") {
			t.Fatalf("health: %v", b.health)
		}
		b.remove("b.yaml")
		b.want("a-node")
		if b.health["static pods"] != "" {
			t.Fatalf("health: %v", b.health)
		}
	})
}

func TestWithoutNotificationsThePathIsListedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		os.WriteFile(filepath.Join(b.dir, "a.yaml"), []byte(podText("a", "")), 0o600)
		time.Sleep(21 * time.Second)
		synctest.Wait()
		b.want("a-node")
	})
}

func TestInotifySeesAPathThatIsMadeLater(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "manifests")
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 100)
	done := make(chan error)
	go func() { done <- Inotify{}.Notify(ctx, path, func() { changed <- struct{}{} }) }()
	expect := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(5 * time.Second):
			t.Fatalf("not told of %s", what)
		}
		for len(changed) > 0 {
			<-changed
		}
	}
	expect("the beginning")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	expect("the new directory")
	if err := os.WriteFile(filepath.Join(path, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("the new file")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(podText("a", "  volumes: [{name: s}]\n")))
	f.Add([]byte("{"))
	f.Add([]byte("[]"))
	decoder, err := newDecoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, _, err := decoder.decode(data)
		if err != nil {
			return
		}
		if err := complete(pod, origin{node: "n", src: File, path: "/p"}); err != nil {
			t.Fatal(err)
		}
		if errs := validate.Pod(pod); len(errs) == 0 && (pod.UID == "" || pod.Name == "" || len(pod.Spec.Containers) == 0) {
			t.Fatalf("accepted: %+v", pod)
		}
	})
}

func TestWhatIsNoManifestIsNamedWithItsMendAndHoldsNothingUp(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a link to nothing": {func(p string) error { return os.Symlink("/nowhere", p) }, "a symbolic link to nothing; correct or remove it"},
		"a named pipe":      {func(p string) error { return syscall.Mkfifo(p, 0o600) }, "not a regular file"},
		"a huge file":       {func(p string) error { return os.Truncate(must(os.Create(p)), 10<<20+1) }, "has 10485761 bytes and may have 10485760"},
		"other characters":  {func(p string) error { return os.WriteFile(p, []byte("kind: Pod\xff\xfe"), 0o600) }, "not UTF-8 text; save it in that encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startFiles(t, nil)
				if err := c.make(filepath.Join(b.dir, "a.yaml")); err != nil {
					t.Fatal(err)
				}
				b.write("b.yaml", podText("b", ""))
				b.want("b-node")
				if got := b.health["static pods"]; !strings.Contains(got, c.want) || !strings.Contains(got, "a.yaml") {
					t.Errorf("health %q, want %q", got, c.want)
				}
				b.remove("a.yaml")
				if len(b.health) != 0 {
					t.Errorf("health %v", b.health)
				}
			})
		})
	}
}

func must(f *os.File, err error) string {
	if err != nil {
		panic(err)
	}
	defer f.Close()
	return f.Name()
}

func TestALinkToAManifestAndADirectoryBehindALinkAreTakenForWhatTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		elsewhere := b.TempDir()
		if err := os.WriteFile(filepath.Join(elsewhere, "x"), []byte(podText("linked", "")), 0o600); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{"a.yaml": filepath.Join(elsewhere, "x"), "dir": elsewhere} {
			if err := os.Symlink(to, filepath.Join(b.dir, from)); err != nil {
				t.Fatal(err)
			}
		}
		b.changed()
		b.want("linked-node")
		if len(b.health) != 0 {
			t.Errorf("health %v", b.health)
		}
	})
}

func TestHundredsOfFilesOfWhichEachThirdIsBrokenRunTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, func(dir string) {
			for i := range 300 {
				text := podText(fmt.Sprintf("p%d", i), "")
				if i%3 == 0 {
					text = text[:len(text)/2]
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n := len(b.names()); n != 200 {
			t.Errorf("%d pods run", n)
		}
		if n := strings.Count(b.health["static pods"], "static pod manifest"); n != 100 || len(b.events) != 100 {
			t.Errorf("%d problems in health, %d events", n, len(b.events))
		}
	})
}

func TestOnlyTheFirstDocumentOfAFileCountsAndThatIsSaid(t *testing.T) {
	decoder, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	pod, unknown, err := decoder.decode([]byte("# c\n---\n" + podText("a", "") + "---\n" + podText("b", "  spelt: wrong\n")))
	if err != nil || pod.Name != "a" || !strings.Contains(unknown, "more than one YAML document") {
		t.Errorf("%v %q %v", pod, unknown, err)
	}
	if _, unknown, err = decoder.decode([]byte("---\n" + podText("a", "  spelt: wrong\n") + "---\n# end\n")); err != nil || unknown != `strict decoding error: unknown field "spec.spelt"` {
		t.Errorf("%q %v", unknown, err)
	}
}
