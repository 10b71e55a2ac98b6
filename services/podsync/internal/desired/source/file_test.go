package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/desired/validate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	// quiet: nobody listens yet.
	quiet bool
	// sources are those that run.
	sources *Sources
}

// unlistable puts a link that leads nowhere but to itself in place of the directory.
func (b *fileBench) unlistable() {
	b.Helper()
	if err := errors.Join(os.RemoveAll(b.dir), os.Symlink(b.dir, b.dir)); err != nil {
		b.Fatal(err)
	}
	b.changed()
}

// listable undoes it; the directory is empty.
func (b *fileBench) listable() {
	b.Helper()
	if err := errors.Join(os.Remove(b.dir), os.Mkdir(b.dir, 0o700)); err != nil {
		b.Fatal(err)
	}
	b.changed()
}

func startFiles(t *testing.T, prepare func(dir string)) *fileBench {
	return startFilesWith(t, func(poke chan struct{}) Notifier { return byHand{poke} }, prepare)
}

func startFilesWith(t *testing.T, notifier func(poke chan struct{}) Notifier, prepare func(dir string)) *fileBench {
	b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
	if prepare != nil {
		prepare(b.dir)
	}
	s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir}, Deps{Notifier: notifier(b.poke), Health: reporter{b.recorder}, Events: noter{b.recorder}, Mirrors: b.recorder})
	if err != nil {
		t.Fatal(err)
	}
	b.run(s)
	return b
}

// run lets s run until the test ends.
func (b *fileBench) run(s *Sources) {
	b.sources = s
	t := b.T
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
	if b.quiet {
		return
	}
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
			if pod.Namespace != "default" || pod.Spec.NodeName != "Node" || pod.Annotations[podutil.AnnotationHash] != string(uid) ||
				pod.Annotations[podutil.AnnotationSource] != File || pod.Annotations[podutil.AnnotationSeen] == "" || len(uid) != 32 {
				t.Errorf("metadata: %+v", pod.ObjectMeta)
			}
			if pod.Spec.DNSPolicy != v1.DNSClusterFirst || pod.Spec.Tolerations[0].Effect != v1.TaintEffectNoExecute || pod.Status.Phase != v1.PodPending {
				t.Errorf("defaults: %+v", pod.Spec)
			}
			if !podutil.Static(pod) || podutil.Mirror(pod) {
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
		found := time.Now()
		// What was read above was read before the files are read again.
		b.do(func() {})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.write("a.yaml", "broken otherwise: [")
		uid := slices.Collect(maps.Keys(b.pods))[0]
		if why, ok := b.sources.Stale(uid); !ok || !strings.Contains(fmt.Sprint(why.Err), "a.yaml") || why.Since.After(found) {
			t.Fatalf("the pod is stale: %v, %+v", ok, why)
		}
		b.write("a.yaml", podText("a", ""))
		if why, ok := b.sources.Stale(uid); ok {
			t.Fatalf("the pod of a good manifest is stale: %+v", why)
		}
		b.write("a.yaml", "broken: [")
		b.remove("a.yaml")
		if why, ok := b.sources.Stale(uid); ok {
			t.Fatalf("a pod that is gone is stale: %+v", why)
		}
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

// A copy that comes before the manifest in the order of names, as
// kube-apiserver-backup.yaml does, is not what runs.
func TestACopyThatIsLaidBesideAManifestStopsNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		b.write("pod.yaml", podText("a", ""))
		b.log = nil
		b.write("pod-backup.yaml", podText("a", ""))
		if len(b.log) > 0 || !strings.Contains(b.health["static pods"], "pod-backup.yaml: pod default/a-node") {
			t.Fatalf("the sink was told %q; health: %v", b.log, b.health)
		}
		// What is written into the manifest counts as before.
		b.write("pod.yaml", "broken: [")
		b.write("pod.yaml", podText("a", "  hostNetwork: true\n"))
		if !slices.Equal(b.log, []string{"remove a-node", "set a-node"}) {
			t.Fatalf("the sink was told %q", b.log)
		}
		for _, pod := range b.pods {
			if !pod.Spec.HostNetwork {
				t.Error("the copy counts")
			}
		}
		b.remove("pod.yaml")
		b.want("a-node")
		if b.health["static pods"] != "" {
			t.Fatalf("health: %v", b.health)
		}
	})
}

// A slice of systemd has a dash where a UID has an underscore and where it has a dash: one
// pod's end would kill what runs of the other.
func TestOfTwoFilesWhoseUIDsNameTheSameCgroupOneCounts(t *testing.T) {
	for _, other := range []string{"x-y", "x_y"} {
		synctest.Test(t, func(t *testing.T) {
			withUID := func(name, uid string) string {
				return strings.Replace(podText(name, ""), "{name: "+name, "{name: "+name+", uid: "+uid, 1)
			}
			b := startFiles(t, nil)
			b.write("b.yaml", withUID("b", "x-y"))
			b.write("a.yaml", withUID("a", other))
			b.want("b-node")
			if got := b.health["static pods"]; !strings.Contains(got, "a.yaml") || !strings.Contains(got, "b.yaml") || !strings.Contains(got, "metadata.uid") {
				t.Fatalf("health: %v", b.health)
			}
			b.remove("b.yaml")
			b.want("a-node")
			if b.health["static pods"] != "" {
				t.Fatalf("health: %v", b.health)
			}
		})
	}
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
		case <-time.After(30 * time.Second):
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

func FuzzDecodeAll(f *testing.F) {
	f.Add([]byte(podList))
	f.Add([]byte(podText("a", "")))
	f.Add([]byte(`{"kind": "PodList", "items": [null, {"metadata": null}, {"kind": null}]}`))
	decoder, err := newDecoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decoder.decodeAll(data)
		if err != nil && list != nil {
			t.Errorf("%d elements and an error: %v", len(list), err)
		}
		for i, el := range list {
			if (el.pod == nil) == (el.err == nil) {
				t.Errorf("element %d: pod %v, error %v", i, el.pod, el.err)
			}
		}
	})
}
