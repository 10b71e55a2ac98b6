package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/realtest"
)

// manifestAnswer is a line of `polylet manifest -o json`.
type manifestAnswer struct {
	Pod   *corev1.Pod `json:"pod"`
	Error string      `json:"error"`
}

// TestStaticPodsAreDefaultedAndJudgedAsTheApiserverDoes gives the same
// manifests to a real kube-apiserver and to polylet, and compares the verdict
// and every field of what comes out.
func TestStaticPodsAreDefaultedAndJudgedAsTheApiserverDoes(t *testing.T) {
	ctx := realtest.Begin(t, "runs a real apiserver and takes minutes", testWithin)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Start(ctx, cluster.Config{Instance: realtest.Instance(t), Progress: os.Stderr})
	must(err)
	defer c.Stop()

	cases := manifestCases(t)
	ours := checkManifests(ctx, t, cases)
	for i, m := range cases {
		pod := &corev1.Pod{}
		must(yaml.Unmarshal([]byte(m.text()), pod))
		pod.Namespace = metav1.NamespaceDefault
		theirs, err := c.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
			t.Fatalf("%s: %v", m.Spec, err)
		}
		name := strings.Join(strings.Fields(m.Metadata+" "+m.Spec+" "+m.Container), " ")
		switch mine := ours[i]; {
		case err == nil && mine.Error != "":
			t.Errorf("the apiserver takes it, polylet does not: %s\n\tpolylet: %s", name, mine.Error)
		case err != nil && mine.Error == "":
			t.Errorf("polylet takes it, the apiserver does not: %s\n\tapiserver: %v", name, err)
		case err == nil:
			compareManifest(t, name, mine.Pod, theirs)
		case !m.bad:
			t.Errorf("both refuse what the test has for good: %s\n\tapiserver: %v", name, err)
		}
		if err == nil && m.bad {
			t.Errorf("the apiserver takes what the test has for bad: %s", name)
		}
	}
}

// checkManifests asks polylet about all of them at once.
func checkManifests(ctx context.Context, t *testing.T, cases []manifestCase) []manifestAnswer {
	t.Helper()
	binary := os.Getenv("POLYLET_BINARY")
	if binary == "" {
		builder, err := programs.New(os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		if binary, err = builder.Polylet(ctx); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"manifest", "--node-name", nodeName, "-o", "json"}
	for i, m := range cases {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(m.text()), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, _ := exec.CommandContext(ctx, binary, args...).Output() // it fails, for some manifests are bad
	var answers []manifestAnswer
	for line := range strings.Lines(string(out)) {
		var a manifestAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("polylet manifest prints %q: %v", line, err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(cases) {
		t.Fatalf("polylet manifest answers for %d of %d manifests", len(answers), len(cases))
	}
	return answers
}

// compareManifest compares two pods field by field, without what only one of
// the two ways adds: a static pod's identity and toleration, and what the
// apiserver's admission plugins put in.
func compareManifest(t *testing.T, name string, mine, theirs *corev1.Pod) {
	t.Helper()
	fromPlugins := func(tol corev1.Toleration) bool {
		return tol.Effect == corev1.TaintEffectNoExecute && (tol.Key == "" || tol.TolerationSeconds != nil && *tol.TolerationSeconds == 300)
	}
	for _, p := range []*corev1.Pod{mine, theirs} {
		p.Spec.Tolerations = slices.DeleteFunc(p.Spec.Tolerations, fromPlugins)
		if len(p.Spec.Tolerations) == 0 {
			p.Spec.Tolerations = nil
		}
		p.Spec.NodeName = ""
		p.Spec.PreemptionPolicy = nil
		if p.Spec.Priority != nil && *p.Spec.Priority == 0 {
			p.Spec.Priority = nil
		}
	}
	theirs.Spec.ServiceAccountName, theirs.Spec.DeprecatedServiceAccount = "", ""
	if !equality.Semantic.DeepEqual(mine.Spec, theirs.Spec) {
		a, _ := json.Marshal(mine.Spec)
		b, _ := json.Marshal(theirs.Spec)
		t.Errorf("another definition: %s\n\tpolylet   %s\n\tapiserver %s", name, a, b)
	}
	if mine.Status.QOSClass != theirs.Status.QOSClass || mine.Status.Phase != theirs.Status.Phase {
		t.Errorf("another status: %s\n\tpolylet %s %s, apiserver %s %s", name, mine.Status.QOSClass, mine.Status.Phase, theirs.Status.QOSClass, theirs.Status.Phase)
	}
}

// manifestCase is a pod with one container, and YAML fields in flow style that
// are added to each of its parts.
type manifestCase struct {
	Metadata, Spec, Container string
	bad                       bool
}

// manifestCases are what people write into static pods: with much left open,
// with everything set, and wrong in each way that is checked. podsync's own
// tests read the same file.
func manifestCases(t *testing.T) []manifestCase {
	t.Helper()
	data, err := os.ReadFile("../../services/podsync/internal/desired/validate/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lists struct{ Good, Bad []manifestCase }
	if err := yaml.UnmarshalStrict(data, &lists); err != nil {
		t.Fatal(err)
	}
	for i := range lists.Bad {
		lists.Bad[i].bad = true
	}
	return slices.Concat(lists.Good, lists.Bad)
}

func (m manifestCase) text() string {
	metadata, container := m.Metadata, m.Container
	if metadata == "" {
		metadata = "{name: p}"
	}
	if !strings.HasPrefix(container, "{") {
		container = "{name: c, image: \"i:1\"" + comma(container) + "}"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: " + metadata +
		"\nspec: {automountServiceAccountToken: false, containers: [" + container + "]" + comma(m.Spec) + "}\n"
}

func comma(text string) string {
	if text == "" {
		return ""
	}
	return ", " + text
}
