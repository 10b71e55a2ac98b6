package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
)

func TestServicesAreChosenInTheOrderOfTheirStop(t *testing.T) {
	all, err := chosen(nil)
	if err != nil || !slices.Equal(all, service.ServersFirst()) {
		t.Errorf("all: %v, %v", all, err)
	}
	two, err := chosen([]string{"gateway", "stats"})
	if err != nil || !slices.Equal(two, []string{"stats", "gateway"}) {
		t.Errorf("two: %v, %v", two, err)
	}
	if _, err := chosen([]string{"gatway"}); err == nil || !strings.Contains(err.Error(), `"gatway"`) {
		t.Errorf("unknown: %v", err)
	}
}

func TestEveryServiceThatIsSupervisedIsACommand(t *testing.T) {
	have := map[string]bool{}
	for _, c := range serviceCommands() {
		have[c.Name()] = true
	}
	for _, name := range service.ServersFirst() {
		if !have[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}

func TestFlagsAreHandedToSystemdAsOneLine(t *testing.T) {
	got, err := environmentLine([]string{"--a=b", "--node-labels=x=y z"})
	if err != nil || got != "POLYLET_ARGS='--a=b \"--node-labels=x=y z\"'\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := environmentLine([]string{"--a=$HOME"}); err == nil {
		t.Error("a dollar sign is passed on")
	}
}

func TestAHandoutHoldsWhatServicesWithoutRootNeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files to other users")
	}
	dir := filepath.Join(t.TempDir(), "sock")
	cmd := newRootCommand()
	cmd.SetArgs([]string{"handout", "--socket-dir=" + dir, "--cert-dir=" + dir + "-pki", "--socket-group=60900",
		"--gateway-user=60901", "--probes-user=60902", "--hostname-override=n1", "--logging-format=text", "--anonymous-auth=false"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"gateway/args.env": "--tls-cert-file=" + dir + "/gateway/tls.crt", "gateway/tls.key": "PRIVATE KEY",
		"probes/args.env": "--config=" + dir + "/probes/config.json", "probes/config.json": "KubeletConfiguration",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %q: %s %v", file, want, got, err)
		}
	}
	info, err := os.Stat(dir + "/gateway/tls.key")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("key: %v, %v", info.Mode(), err)
	}
}

func TestTheSamplesOfDeployAreValid(t *testing.T) {
	loaded := load(t, "--config=../../deploy/config/kubelet.yaml")
	if loaded.Config.StaticPodPath == "" || !loaded.Standalone {
		t.Errorf("static pods %q, standalone %v", loaded.Config.StaticPodPath, loaded.Standalone)
	}
	// All that podsync reads of a directory, whatever its name ends in.
	manifests, err := filepath.Glob("../../deploy/*/manifests/[^.]*")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range manifests {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var pod v1.Pod
		if err := yaml.UnmarshalStrict(raw, &pod); err != nil || pod.Kind != "Pod" || len(pod.Spec.Containers) == 0 {
			t.Errorf("%s: %v %+v", file, err, pod.TypeMeta)
		}
	}
}

func TestTheServicesWithoutRootGetNoHeadersOfTheManifests(t *testing.T) {
	args := []string{"probes", "--v=2", "--manifest-url-header=A:secret", "--manifest_url_header", "B:secret", "--manifest-url=http://me:secret@x", "--manifest-url-header", "C:secret"}
	if got := strings.Join(withoutSecrets(args), " "); got != "probes --v=2" {
		t.Error(got)
	}
	node := &nodeRun{loaded: load(t, "--hostname-override=n1", "--manifest-url=https://me:secret@x", "--manifest-url-header=Authorization:secret"), gid: "0"}
	node.loaded.Flags.SocketDir = t.TempDir()
	for service, identity := range map[string]supervise.Identity{"probes": {Drop: true, UID: 60902, GID: os.Getgid()}, "nodestatus": {}} {
		got, err := node.argsOf(t.Context(), service, identity)
		if err != nil || strings.Contains(strings.Join(got, " "), "secret") {
			t.Errorf("%s: %v, %v", service, got, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(node.loaded.Flags.SocketDir, "probes", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "secret") {
			t.Errorf("%s: %s, %v", file, text, err)
		}
	}
	if root, err := node.argsOf(t.Context(), "podsync", supervise.Identity{}); err != nil || !strings.Contains(strings.Join(root, " "), "secret") {
		t.Errorf("podsync lacks them: %v, %v", root, err)
	}
}
