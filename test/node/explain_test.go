package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
)

// explainedWithin is how long explain may take once a cause can be known.
const explainedWithin = time.Second

// fault is one thing that goes wrong with a pod on a real node.
type fault struct {
	name string
	pod  *corev1.Pod
	// seed breaks something before the pod is created; undo mends it. May be nil.
	seed func() (undo func())
	// ends: the pod is deleted once it runs.
	ends bool
	// known says, by other means than explain, that the cause can be known.
	known func(n *asked) bool
	// kind and words are of the wait that names the cause; advice is a part of
	// what is to be done.
	kind   string
	words  []string
	advice string
}

// The ten faults are on real parts, none is made up: eight with pods that need
// no apiserver, two that only an apiserver can have.

func TestExplainNamesTheCauseOfFaultsWithinASecond(t *testing.T) {
	h := build(t, plan{standalone: true})
	n := h.ask()
	for _, f := range h.nodeFaults() {
		undo := func() {}
		if f.seed != nil {
			undo = f.seed()
		}
		file, name := f.pod.Name+".yaml", f.pod.Name
		f.pod.APIVersion, f.pod.Kind = "v1", "Pod"
		f.pod.Spec.NodeName = ""
		manifest, err := json.Marshal(f.pod)
		h.must(err)
		f.pod.Name += "-" + nodeName // as the node names static pods
		h.must(h.node.AddStaticPod(file, string(manifest)))
		if f.ends {
			h.eventually(time.Minute, name+" is Ready", func() error { return boolError(isReady(n.pod(f.pod.Name)), "%s", describe(n.pod(f.pod.Name))) })
			h.must(h.removeStaticPod(file))
		}
		h.explained(n, f)
		undo()
		if !f.ends {
			h.must(h.removeStaticPod(file))
		}
	}
}

func TestExplainNamesTheCauseOfFaultsOfAnApiserverWithinASecond(t *testing.T) {
	h := build(t, plan{})
	n := h.ask()
	h.refuseStatusesOf("refused")
	noSecret := app("no-secret", "sleep")
	noSecret.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "not-there"}}}}
	noSecret.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
	for _, f := range []fault{
		{
			name: "secret missing", pod: noSecret, known: event("no-secret", "FailedMount"),
			kind: "volume", words: []string{"keys", "not-there"}, advice: "create what the error names",
		},
		{
			name: "apiserver that refuses the status", pod: app("refused", "sleep"),
			known: func(*asked) bool { return strings.Contains(h.logs(), "Status refused by the apiserver") },
			kind:  "apiserver", words: []string{"refused", "nobody may know how it is"}, advice: "policy",
		},
	} {
		h.create(f.pod)
		h.explained(n, f)
		h.forceDelete(f.pod.Name)
	}
}

// asked is the node's podsync.
type asked struct {
	h    *house
	sync podsyncv1.PodSyncServiceClient
	pods podsapi.PodsClient
}

func (h *house) ask() *asked {
	h.Helper()
	conn, err := rpc.Dial(filepath.Join(h.node.SocketDir, "podsync.sock"))
	h.must(err)
	h.Cleanup(func() { conn.Close() })
	return &asked{h, podsyncv1.NewPodSyncServiceClient(conn), podsapi.NewPodsClient(conn)}
}

// pod is the node's pod of this name; an empty one when there is none.
func (n *asked) pod(name string) *corev1.Pod {
	list, err := n.pods.ListPods(n.h.ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return &corev1.Pod{}
	}
	for _, raw := range list.GetPods() {
		var pod corev1.Pod
		if pod.Unmarshal(raw) == nil && pod.Name == name {
			return &pod
		}
	}
	return &corev1.Pod{}
}

// event says whether podsync has recorded an event of this reason, with the words
// in its message.
func event(pod, reason string, words ...string) func(*asked) bool {
	return func(n *asked) bool {
		resp, err := n.sync.ListRecentEvents(n.h.ctx, &podsyncv1.ListRecentEventsRequest{})
		return err == nil && slices.ContainsFunc(resp.GetEvents(), func(e *podsyncv1.RecentEvent) bool {
			return e.GetReason() == reason && strings.HasPrefix(e.GetName(), pod) && strings.Contains(e.GetMessage(), strings.Join(words, " "))
		})
	}
}

// waiting says whether the pod's status shows a container with one of the reasons.
func waiting(pod string, reasons ...string) func(*asked) bool {
	return func(n *asked) bool {
		text := describe(n.pod(pod + "-" + nodeName))
		return slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(text, "waiting "+reason) })
	}
}

// explained waits until explain names the fault's cause, and wants that of every
// question that is asked more than a second after the cause could be known.
func (h *house) explained(n *asked, f fault) {
	h.Helper()
	var known, named, missed time.Time
	var last string
	end := time.Now().Add(90 * time.Second)
	for time.Now().Before(end) && h.ctx.Err() == nil && (named.IsZero() || known.IsZero()) {
		if known.IsZero() && f.known(n) {
			known = time.Now()
		}
		asked := time.Now()
		var ok bool
		if ok, last = n.names(f); ok && named.IsZero() {
			named = asked
		} else if !ok {
			missed = asked
		}
		if !known.IsZero() && time.Since(known) > 10*explainedWithin {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	switch {
	case known.IsZero():
		h.Errorf("%s: the fault did not show; explain says:\n%s", f.name, last)
	case named.IsZero():
		h.Errorf("%s: explain does not name the cause %v:\n%s", f.name, f.words, last)
	case missed.Sub(known) > explainedWithin:
		h.Errorf("%s: explain did not name the cause %s after it was known:\n%s", f.name, missed.Sub(known), last)
	default:
		h.Logf("%s: named %s after it was known", f.name, named.Sub(known).Round(time.Millisecond))
	}
	out, err := h.polylet("explain", f.pod.Namespace+"/"+f.pod.Name)
	if err != nil || !strings.Contains(out, "waits for ") || !strings.Contains(out, "to do: ") {
		h.Errorf("%s: polylet explain: %v\n%s", f.name, err, out)
	}
	h.Log(out)
}

// names says whether explain names the cause now.
func (n *asked) names(f fault) (bool, string) {
	ctx, cancel := context.WithTimeout(n.h.ctx, 10*time.Second)
	defer cancel()
	resp, err := n.sync.ExplainPod(ctx, &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: f.pod.Namespace, Name: f.pod.Name}})
	if err != nil {
		return false, err.Error()
	}
	for _, w := range resp.GetWaits() {
		about := w.GetObject() + " " + w.GetReason()
		found := w.GetKind() == f.kind && strings.Contains(w.GetAdvice(), f.advice) && w.GetSince().IsValid()
		for _, word := range f.words {
			found = found && strings.Contains(about, word)
		}
		if found {
			return true, w.String()
		}
	}
	return false, fmt.Sprintf("%v\n%v", resp.GetWaits(), resp.GetTimeline())
}

// polylet runs the command line of the node under test.
func (h *house) polylet(args ...string) (string, error) {
	return h.run(append(args, "--socket-dir="+h.node.SocketDir))
}

// run runs the agent's binary and returns what it wrote.
func (h *house) run(args []string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(h.ctx, h.binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (h *house) forceDelete(name string) {
	h.Helper()
	now := int64(0)
	h.must(h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(h.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// nodeFaults are the faults of a node without an apiserver.
func (h *house) nodeFaults() []fault {
	wrongName := app("wrong-image", "sleep")
	wrongName.Spec.Containers[0].Image = "registry.polylet.test/nobody/knows:v9"
	registryAway := app("registry-away", "sleep")
	registryAway.Spec.Containers[0].Image = "away.polylet.test/app:v1"
	hung := filepath.Join(h.inst.Path("hung"), "mount")
	hanging := app("hanging-mount", "sleep")
	hanging.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: hung + "/x", Type: ptr(corev1.HostPathDirectory)},
	}}}
	hanging.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	badInit := app("failing-init", "sleep")
	badInit.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: badInit.Spec.Containers[0].Image, Args: []string{"exit", "code=7"}}}
	never := webApp("never-ready")
	never.Spec.Containers[0].Args = []string{"http", "port=8080", "healthy=false"}
	slowStop := app("hanging-prestop", "sleep")
	slowStop.Spec.TerminationGracePeriodSeconds = ptr(int64(60))
	slowStop.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/testapp", "sleep", "for=1h"}},
	}}
	return []fault{
		{
			name: "wrong image name", pod: wrongName, known: waiting("wrong-image", "ErrImagePull", "ImagePullBackOff"),
			kind: "image", words: []string{"nobody/knows:v9", "not found"}, advice: "the registry does not have it",
		},
		{
			name: "registry away", pod: registryAway, seed: h.registryAway, known: waiting("registry-away", "ErrImagePull", "ImagePullBackOff"),
			kind: "image", words: []string{"away.polylet.test", "connection refused"}, advice: "can be reached",
		},
		{
			name: "mount that hangs", pod: hanging, seed: func() func() { return h.hangingMount(hung) },
			known: func(n *asked) bool { return n.pod("hanging-mount-"+nodeName).Name != "" },
			kind:  "volume", words: []string{"data", hung}, advice: "node's mounts",
		},
		{
			name: "failing init container", pod: badInit, known: event("failing-init", "BackOff"),
			kind: "backoff", words: []string{"prepare", "init container", "exit code 7"}, advice: "last words",
		},
		{
			name: "probe that never succeeds", pod: never, known: event("never-ready", "Unhealthy", "statuscode: 503"), // not that it does not listen yet
			kind: "probe", words: []string{"app", "eadiness probe failed", "50"}, advice: "answers to its probe",
		},
		{
			name: "crash loop", pod: app("crashing", "exit", "code=3"), known: waiting("crashing", "CrashLoopBackOff"),
			kind: "backoff", words: []string{"app", "exit code 3"}, advice: "last words",
		},
		{
			name: "preStop that hangs", pod: slowStop, ends: true, known: event("hanging-prestop", "Killing"),
			kind: "termination", words: []string{"app", "preStop hook", "has not ended"}, advice: "grace period",
		},
		{
			name: "CNI missing", pod: app("no-network", "sleep"), seed: h.withoutCNI, known: event("no-network", "NetworkNotReady"),
			kind: "network", words: []string{"network is not ready", "cni"}, advice: "CNI",
		},
	}
}

// hangingMount mounts a filesystem whose server never answers.
func (h *house) hangingMount(path string) (undo func()) {
	h.Helper()
	h.must(os.MkdirAll(path, 0o755))
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	h.must(err)
	h.must(syscall.Mount("hung", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
	done := false
	undo = func() {
		if !done {
			done = true
			server.Close() // whoever waits for it gets an error now
			h.must(syscall.Unmount(path, syscall.MNT_DETACH))
		}
	}
	h.Cleanup(undo)
	return undo
}

// registryAway makes a registry's name lead to a port where nobody listens.
func (h *house) registryAway() (undo func()) {
	h.Helper()
	dir := h.inst.Path("hosts", "away.polylet.test")
	h.must(os.MkdirAll(dir, 0o755))
	h.must(os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte("server = \"http://127.0.0.1:9\"\n"), 0o644))
	return func() { h.must(os.RemoveAll(dir)) }
}

// withoutCNI takes the network's configuration away.
func (h *house) withoutCNI() (undo func()) {
	h.Helper()
	file := h.inst.Path("cni", "10-polylet.conflist")
	h.must(os.Rename(file, file+".away"))
	return func() { h.must(os.Rename(file+".away", file)) }
}

// refuseStatusesOf makes the apiserver refuse the status of pods whose names begin
// so, and returns when it does.
func (h *house) refuseStatusesOf(pod string) {
	h.Helper()
	api := h.cluster.Client.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse-statuses"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/status"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("!object.metadata.name.startsWith(%q)", pod), Message: "nobody may know how it is"}},
		},
	}
	_, err := api.ValidatingAdmissionPolicies().Create(h.ctx, policy, metav1.CreateOptions{})
	h.must(err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(h.ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse-statuses"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	h.must(err)
	// It is in force some time after it was made: a pod of no node tells when.
	pods := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	canary := app(pod+"-canary", "sleep")
	canary.Spec.NodeName = "no-such-node"
	canary, err = pods.Create(h.ctx, canary, metav1.CreateOptions{})
	h.must(err)
	h.eventually(time.Minute, "the policy is in force", func() error {
		_, err := pods.UpdateStatus(h.ctx, canary, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return boolError(err != nil && strings.Contains(err.Error(), "nobody may know how it is"), "the status is taken: %v", err)
	})
	h.forceDelete(canary.Name)
}
