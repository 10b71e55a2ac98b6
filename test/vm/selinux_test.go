package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const labels, plain = "labels.csi.test", "plain.csi.test"

// TestSELinuxAVolumeForOnePodIsMountedWithTheLabelOfItsPod: by the kernel, of a driver that says
// that it can; of one that does not, the runtime gives each file its label, where it can.
func TestSELinuxAVolumeForOnePodIsMountedWithTheLabelOfItsPod(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	driver(t, client, labels, true)
	driver(t, client, plain, false)
	claim(t, client, "labelled", labels)
	claim(t, client, "plain", plain)
	claim(t, client, "given", plain, `context="`+fileLabel+`s0"`) // where no label can be written
	create(t, client, ofLevel("first", "s0:c1,c2", "labelled", "plain", "given"))
	first := runs(t, client, "first")
	const label = fileLabel + "s0:c1,c2"
	mounted := func() map[string]string {
		t.Helper()
		all := shown(t, labels, "labelled", `context="`+label+`"`, label)
		maps.Copy(all, shown(t, plain, "plain", "seclabel", label))
		maps.Copy(all, shown(t, plain, "given", "context="+fileLabel+"s0", fileLabel+"s0"))
		return all
	}
	before := mounted()
	t.Logf("mounted: %v", before)
	uses(t, first, label)

	// What this process knows of labels is gone with it.
	killPodsync(t)
	create(t, client, ofLevel("second", "s0:c3", "labelled"), ofLevel("beside", "s0:c4"))
	runs(t, client, "beside")
	eventSays(t, client, "second", fmt.Sprintf("conflicting SELinux labels of volume labelled: %q and %q", label, fileLabel+"s0:c3"))
	if got := series(t, `volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/`+labels+`"}`); got == "" || got == "0" {
		t.Errorf("that the second pod waits is counted %q times", got)
	}
	if again := runs(t, client, "first"); again.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container was started again: %+v", again.Status)
	}
	if now := mounted(); !maps.Equal(now, before) {
		t.Errorf("mounted are %v, and were %v", now, before)
	}
	goes(t, client, "first")
	runs(t, client, "second")
	shown(t, labels, "labelled", "context="+fileLabel+"s0:c3", fileLabel+"s0:c3")
	goes(t, client, "second", "beside")
	eventually(t, "nothing is mounted any more", func() error {
		if left := mountsAt(t, "csi"); len(left) > 0 {
			return fmt.Errorf("there is %v", left)
		}
		return nil
	})
}

// shown wants a claim's volume to be mounted with an option, and its files to have a label; it
// returns the mounts.
func shown(t *testing.T, driver, claim, option, label string) map[string]string {
	t.Helper()
	all := volumeAt(t, driver, claim)
	for path, options := range all {
		if got := labelOn(filepath.Join(path, "id")); !strings.Contains(options, option) || got != label {
			t.Errorf("%s is mounted with %s, want %s; its file has the label %s, want %s", path, options, option, got, label)
		}
	}
	return all
}

// uses has a container with the claims of the test write to those of its own label.
func uses(t *testing.T, p *corev1.Pod, label string) {
	t.Helper()
	asked, pid := started(t, p)
	if asked["/v/labelled"] || !asked["/v/plain"] {
		t.Errorf("the runtime is asked to relabel %v", asked)
	}
	if got, want := labelOfProcess(pid), "system_u:system_r:container_t:"+strings.TrimPrefix(label, fileLabel); got != want {
		t.Errorf("the container runs as %s, want %s", got, want)
	}
	if out, err := execute(t, p.Name, "", "sh", "-c", "echo mine >/v/labelled/f && echo mine >/v/plain/f"); err != nil {
		t.Errorf("in the container: %q, %v", out, err)
	}
	for _, volume := range []string{"labelled", "plain"} {
		if got := labelOn(inContainer(pid, "/v/"+volume+"/f")); got != label {
			t.Errorf("what the container has written to %s has the label %s", volume, got)
		}
	}
}

// inContainer is a path as a process sees it.
func inContainer(pid, path string) string { return filepath.Join("/proc", pid, "root", path) }

// started says of each mount of a pod's container whether the runtime was asked to relabel it,
// and which process the container is.
func started(t *testing.T, p *corev1.Pod) (relabel map[string]bool, pid string) {
	t.Helper()
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	got, err := runtimeapi.NewRuntimeServiceClient(criClient(t)).ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		PID    int `json:"pid"`
		Config struct {
			Mounts []struct {
				ContainerPath  string `json:"container_path"`
				SELinuxRelabel bool   `json:"selinux_relabel"`
			} `json:"mounts"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(got.GetInfo()["info"]), &info); err != nil {
		t.Fatal(err)
	}
	relabel = map[string]bool{}
	for _, m := range info.Config.Mounts {
		relabel[m.ContainerPath] = m.SELinuxRelabel
	}
	return relabel, strconv.Itoa(info.PID)
}

// TestSELinuxVolumesAreRelabelledAsAKubeletAsksForThem: those that it makes for a pod, and
// nothing of the host's.
func TestSELinuxVolumesAreRelabelledAsAKubeletAsksForThem(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	if err := write("/srv/theirs/f", "of the host"); err != nil {
		t.Fatal(err)
	}
	ofHost := labelOn("/srv/theirs/f")
	p, want := ofLevel("all", "s0:c5"), map[string]bool{"/etc/hosts": true, "/dev/termination-log": true, "/v/sub": true}
	c := &p.Spec.Containers[0]
	fields := []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	for name, s := range map[string]struct {
		source  corev1.VolumeSource
		relabel bool
	}{
		"disk":      {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, true},
		"memory":    {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, true},
		"host":      {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/theirs"}}, false},
		"map":       {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "words"}}}, true},
		"secret":    {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "words"}}, true},
		"fields":    {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: fields}}, true},
		"projected": {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields}}}}}, true},
	} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: s.source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/v/" + name})
		want["/v/"+name] = s.relabel
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/v/sub", SubPath: "a/b"})
	words := metav1.ObjectMeta{Name: "words"}
	_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: words, Data: map[string]string{"f": "1"}}, metav1.CreateOptions{})
	_, otherErr := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: words, StringData: map[string]string{"f": "1"}}, metav1.CreateOptions{})
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	create(t, client, p)
	asked, pid := started(t, runs(t, client, "all"))
	if !maps.Equal(asked, want) {
		t.Errorf("the runtime is asked to relabel %v, want %v", asked, want)
	}
	for _, path := range []string{"/v/map/f", "/v/secret/f", "/v/fields/f", "/v/projected/f"} {
		want[path+"/../..data/f"] = true // what the link leads to
	}
	for path, relabelled := range want {
		if got := labelOn(inContainer(pid, path)); (got == fileLabel+"s0:c5") != relabelled {
			t.Errorf("%s has the label %s", path, got)
		}
	}
	if now := labelOn("/srv/theirs/f"); now != ofHost {
		t.Errorf("the host's file has the label %s, and had %s", now, ofHost)
	}
	goes(t, client, "all")
}

// TestSELinuxPluginsOfContainersMayUseTheDirectoriesThatAreThereForThem: as a kubelet labels them.
func TestSELinuxPluginsOfContainersMayUseTheDirectoriesThatAreThereForThem(t *testing.T) {
	for _, dir := range []string{"plugins", "plugins_registry"} {
		if got := labelOn(filepath.Join(kubeletRoot, dir)); got != fileLabel+"s0" {
			t.Errorf("%s has the label %s", dir, got)
		}
	}
}

// TestSELinuxALabelThatThePolicyDoesNotKnowKeepsAContainerFromItsStartAndIsNamedAsTheCause: in the
// runtime's words, whatever they are.
func TestSELinuxALabelThatThePolicyDoesNotKnowKeepsAContainerFromItsStartAndIsNamedAsTheCause(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	p := ofLevel("unknown", "s0:c7")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "unheard_t"}}
	create(t, client, p)
	eventually(t, "polylet explain says what to look at", func() error {
		out, err := exec.Command("/usr/bin/polylet", "explain", "default/unknown").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "seLinuxOptions") {
			err = errors.New("it does not name seLinuxOptions")
		}
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, out)
		}
		t.Logf("%s", out)
		return nil
	})
	goes(t, client, "unknown")
}

// TestSELinuxThePolicyDeniesTheFiveNothingAndTheyWorkWhereItIsEnforced comes last: what is denied
// was told until then, and is denied from then on.
func TestSELinuxThePolicyDeniesTheFiveNothingAndTheyWorkWhereItIsEnforced(t *testing.T) {
	client := joinedCluster(t)
	units := []string{"containerd.service", "polylet-handout.service"}
	for _, s := range services {
		units = append(units, "polylet-"+s+".service")
	}
	for _, unit := range units {
		t.Logf("%s runs as %s", unit, labelOfProcess(property(t, unit, "MainPID")))
	}
	for _, path := range []string{"/usr/bin/polylet", kubeletRoot, kubeletRoot + "/pods", "/run/polylet", "/var/log/pods"} {
		t.Logf("%s has the label %s", path, labelOn(path))
	}
	denials(t)
	chain := func(do string) []string { return []string{"iptables", "-t", "mangle", do, "KUBE-IPTABLES-HINT"} }
	made := func() error { return runAll([][]string{chain("-S")}) }
	eventually(t, "podsync has made its chain", made)
	defer func() { _ = run("setenforce", "0") }()
	if err := runAll([][]string{{"setenforce", "1"}, chain("-F"), chain("-X"), append([]string{"systemctl", "restart"}, units[1:]...)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	confined(t, client)
	eventually(t, "podsync has made its chain again", made)
	for _, path := range []string{"/stats/summary", "/metrics", "/pods"} {
		if _, err := get(readOnly + path); err != nil {
			t.Error(err)
		}
	}
	for _, unit := range units {
		// podsync was killed before.
		if state, again := property(t, unit, "ActiveState"), property(t, unit, "NRestarts"); state != "active" || again != "0" && unit != "polylet-podsync.service" {
			t.Errorf("%s is %s, and was started again %s times", unit, state, again)
		}
	}
	denials(t)
}

// confined runs a pod that the policy keeps from all but its own volumes.
func confined(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	p := ofLevel("enforced", "s0:c6")
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, TimeoutSeconds: 60}
	for name, source := range map[string]corev1.VolumeSource{
		"words": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "words"}}},
		"own":   {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"host":  {HostPath: &corev1.HostPathVolumeSource{Path: "/srv/theirs"}},
	} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	create(t, client, p)
	runs(t, client, "enforced")
	if out, err := execute(t, "enforced", "", "sh", "-c", "cat /etc/hosts >/dev/termination-log && echo mine >/own/f && cat /own/f"); err != nil || out != "mine\n" {
		t.Errorf("its own files: %q, %v", out, err)
	}
	if out, err := execute(t, "enforced", "", "cat", "/host/f"); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("what is the host's: %q, %v", out, err)
	}
	words := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "words"}, Data: map[string]string{"f": "2"}}
	if _, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), words, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "the container reads what is new in its ConfigMap", func() error {
		out, err := execute(t, "enforced", "", "cat", "/words/f")
		if err == nil && out != "2" {
			err = fmt.Errorf("it reads %q", out)
		}
		return err
	})
	goes(t, client, "enforced")
}

// denials wants none of polylet's processes among what the policy has denied, or would have,
// but for the change into a domain of its own of a program that podsync starts (iptables),
// which its unit's NoNewPrivileges keeps it from: it runs in podsync's.
func denials(t *testing.T) {
	t.Helper()
	out, err := exec.Command("journalctl", "--no-pager", "-b", "-o", "cat", "_TRANSPORT=audit").Output()
	if err != nil {
		t.Fatal(err)
	}
	who := map[string]int{}
	for line := range strings.Lines(string(out)) {
		found := regexp.MustCompile(`avc: +denied +(\{[^}]*\}).* comm="?([^" ]*).*scontext=(\S+) tcontext=(\S+) tclass=(\S+)`).FindStringSubmatch(line)
		if found == nil {
			continue
		}
		key := strings.Join(found[1:], " ")
		if who[key]++; who[key] == 1 && strings.Contains(line, "polylet") && found[1] != "{ nnp_transition }" {
			t.Errorf("%s", strings.TrimSpace(line))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(who)) {
		t.Logf("%d times %s", who[key], key)
	}
	if text, err := os.ReadFile("/sys/fs/selinux/enforce"); err == nil {
		t.Logf("enforce is %s", text)
	}
}
